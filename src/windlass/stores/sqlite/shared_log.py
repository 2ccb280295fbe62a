"""Prove at opening that every process on a database file uses the same write-ahead log.

SQLite finds the log by the name of the file. A file that is reached by two names, such as a bind mount or a
hard link, therefore has two logs, and what is committed to one of them overwrites the other.

Every process that uses a log keeps the shared memory beside it, ``-shm``, and a lock on the database file.
Locks belong to the file, whatever its name. So if there is no ``-shm`` under our name and the file is locked
nevertheless, the holder of that lock has another log, or has locked a file that was never in WAL mode. In
both cases the file is not opened while the lock is held. A ``-shm`` that a killed process left behind hides
this; ``check_location`` refuses the usual causes by what the system tells of the file.
"""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

from windlass.errors import StoreUnavailable
from windlass.stores.sqlite.connection import is_busy
from windlass.stores.sqlite.location import MOUNT_THE_DIRECTORY, Location

SETTLE_SECONDS: Final = 5.0
"""How long a process that opens or closes the file may hold it while its ``-shm`` is not there."""
LOOK_SECONDS: Final = 0.02


def prove_shared_log(location: Location) -> None:
    """Raise ``StoreUnavailable`` if another process may have the file open with another log. Blocks."""
    until = time.monotonic() + SETTLE_SECONDS
    while _has_content(location.path) and not os.path.exists(f"{location.path}-shm"):
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


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False  # opening it tells what is wrong


def _is_free(location: Location) -> bool:
    """Whether no other connection has the file open. Asks for the file alone, and lets go at once.

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
