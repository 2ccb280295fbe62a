"""Prove at opening that every process on a database file uses the same write-ahead log.

SQLite finds the log by the name of the file. A file that is reached by two names, such as a bind mount or a
hard link, therefore has two logs, and what is committed to one of them overwrites the other.

Every process that uses a log keeps locks on the shared memory beside it, ``-shm``, and a lock on the
database file. Locks belong to the file, whatever its name. So if no process has locks on the ``-shm`` under
our name and the database is locked nevertheless, the holder of that lock has another log, or has locked a
file that was never in WAL mode. In both cases the file is not opened while the lock is held.

A killed process leaves its ``-shm`` behind without locks. Only Linux tells of locks without taking one, and
the question needs a descriptor that stays open. On other systems, and in a process that has asked about many
files already, a ``-shm`` that exists counts as in use.
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
LOOK_SECONDS: Final = 0.02
MAX_DESCRIPTORS: Final = 16

_lock = threading.Lock()
_looked_at: dict[tuple[int, int], int] = {}
"""Descriptors of the files that were asked for locks, by device and inode, at most ``MAX_DESCRIPTORS``.

Closing one would drop the locks that connections of this process have on the file, so each stays open until
the file is removed.
"""


def prove_shared_log(location: Location) -> None:
    """Raise ``StoreUnavailable`` if another process may have the file open with another log. Blocks."""
    until = time.monotonic() + SETTLE_SECONDS
    while _has_content(location.path) and not _is_in_use(f"{location.path}-shm"):
        if _is_free(location):
            return
        if time.monotonic() > until:
            raise StoreUnavailable(
                f"{location.path} stayed locked by another process for {SETTLE_SECONDS:g} s, and the log of "
                f"that process is not {Path(location.path).name}-wal. Either it keeps the file locked, or it "
                "uses the file under another name and each side would overwrite the commits of the other. "
                f"{MOUNT_THE_DIRECTORY}"
            )
        time.sleep(LOOK_SECONDS)


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


def _is_free(location: Location) -> bool:
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
