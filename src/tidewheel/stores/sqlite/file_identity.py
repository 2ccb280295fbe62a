"""Prove that all processes use the same database file and the same write-ahead log.

SQLite names the log after the file. A file with two names (bind mount, hard link) has two logs, and commits
overwrite each other. A process that uses a log keeps locks on its ``-shm``, whatever its name. If the
database is locked but our ``-shm`` is not, the holder has another log or no WAL mode; the file is not opened.
Only Linux reports locks without taking one. Elsewhere, and after 16 files, a ``-shm`` counts as in use.
``FileIdentity`` checks that the path still names the open file, because SQLite would commit to a removed one.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Final

from tidewheel.errors import StoreUnavailable
from tidewheel.stores.sqlite.connection import is_busy
from tidewheel.stores.sqlite.location import MOUNT_THE_DIRECTORY, Location

SETTLE_SECONDS: Final = 5.0
"""How long a process that opens or closes the file may hold it while its ``-shm`` is not there."""
CHECK_SECONDS: Final = 0.02
MAX_DESCRIPTORS: Final = 16

_lock = threading.Lock()
_looked_at: dict[tuple[int, int], int] = {}
"""Descriptors of the files that were asked for locks, by device and inode, at most ``MAX_DESCRIPTORS``.

Closing one would drop the locks that connections of this process have on the file, so each stays open until
the file is removed.
"""


def check_shared_wal(location: Location) -> None:
    """Raise ``StoreUnavailable`` if another process may have the file open with another log. Blocks."""
    until = time.monotonic() + SETTLE_SECONDS
    while _has_content(location.path) and not _is_in_use(f"{location.path}-shm"):
        if _is_only_connection(location):
            return
        if time.monotonic() > until:
            raise StoreUnavailable(
                f"{location.path} stayed locked by another process for {SETTLE_SECONDS:g} s, and the log of "
                f"that process is not {Path(location.path).name}-wal. Either it keeps the file locked, or it "
                "uses the file under another name and each side would overwrite the commits of the other. "
                f"{MOUNT_THE_DIRECTORY}"
            )
        time.sleep(CHECK_SECONDS)


def _is_in_use(shared_memory: str) -> bool:
    """Return whether a process has locks on it; where the system does not tell, whether it exists."""
    locked = _is_locked(shared_memory)
    return os.path.exists(shared_memory) if locked is None else locked


def _is_locked(path: str) -> bool | None:
    """Return whether any connection, also of this process, has locks on this file; None if unknown."""
    if sys.platform != "linux":
        return None
    import fcntl

    # struct flock: type, whence, start, length (0: the whole file), process. Its pad at the end differs.
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with _lock:
            descriptor = _descriptor(path)
            if descriptor is None:
                return None
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    except FileNotFoundError:
        return False
    except OSError:
        return None  # no rights, or a system that has no such question, such as gVisor
    return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)


def _descriptor(path: str) -> int | None:
    """Return a descriptor of the file that stays open while the file exists; None if there are too many."""
    for identity, descriptor in list(_looked_at.items()):
        if os.fstat(descriptor).st_nlink == 0:  # the last connection to it is gone, with its locks
            os.close(_looked_at.pop(identity))
    status = os.stat(path)
    identity = status.st_dev, status.st_ino
    if identity not in _looked_at:
        if len(_looked_at) >= MAX_DESCRIPTORS:
            return None
        _looked_at[identity] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return _looked_at[identity]


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False  # opening it tells what is wrong


def _is_only_connection(location: Location) -> bool:
    """Return whether no other connection has the file open."""
    locked = _is_locked(location.path)
    return _can_be_locked(location) if locked is None else not locked


def _can_be_locked(location: Location) -> bool:
    """Ask for the file alone, and let go at once.

    Through SQLite, because closing a file of our own would drop the locks of this process.
    """
    try:
        connection = sqlite3.connect(
            f"{Path(location.path).as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None
        )
    except sqlite3.OperationalError:
        return True  # opening it tells what is wrong
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # before the first read: needs no -shm
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError as error:
        return not is_busy(error)  # opening it tells what else is wrong
    except sqlite3.DatabaseError:
        return True  # likewise
    finally:
        connection.close()
    return True


class FileIdentity:
    """The database and its log as they were when they were opened."""

    def __init__(self, location: Location) -> None:
        self._path, self._log_path = location.path, location.wal_path
        self._file = _identity(self._path)
        self._log: tuple[int, int] | None = None

    def check(self, *, in_transaction: bool = False) -> None:
        """Raise ``StoreUnavailable`` unless both are there."""
        if (found := _identity(self._path)) != self._file:
            raise self._file_replaced_error(self._path, found)
        if (found := _identity(self._log_path)) == self._log:
            return
        if self._log is not None:
            raise self._file_replaced_error(self._log_path, found)
        # Until our connection is in a transaction for the first time, another one's end may remove the log.
        if in_transaction:
            self._log = found

    def _file_replaced_error(self, path: str, found: tuple[int, int] | None) -> StoreUnavailable:
        return StoreUnavailable(
            f"{path} was {'removed' if found is None else 'replaced'} while it was in use, and what is "
            f"written would be lost; put it back, or stop every process that uses {self._path} and start "
            f"again with the right file, without an older {Path(self._path).name}-wal beside it"
        )


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
