"""Open SQLite connections with the settings that the whole store relies on.

``ForkGuard`` detects use after ``fork()``, which threads and connections do not survive. A fork hook counts
forks, because asking for the process id is a system call and cost as much as making a job id.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from tidewheel.core.jitter import jitter
from tidewheel.errors import ConfigurationError, StoreError, StoreUnavailable, UsedAfterFork
from tidewheel.stores.sqlite.location import Location

MINIMUM_VERSION: Final = (3, 37, 0)  # STRICT tables; RETURNING came in 3.35

WRITER_CACHE_KIB: Final = 16 * 1024
READER_CACHE_KIB: Final = 4 * 1024

MIN_LOCK_RETRY_SECONDS: Final = 0.00005
MAX_LOCK_RETRY_SECONDS: Final = 0.0005
"""Seconds between two tries for the write lock: an eighth of what the wait has lasted, within these."""
DECODE_ERRORS: Final = (UnicodeError, msgspec.MsgspecError, KeyError, TypeError)
"""What reading rows raises, apart from SQLite's own errors, when a damaged file holds what nobody wrote."""
LOCK_REQUEST_SECONDS: Final = 0.003
"""Seconds until a waiter makes itself heard. Again after ten times as long, because that may get lost."""

_create_lock = threading.Lock()


def connect(location: Location, *, read_only: bool = False, for_handler: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode; transactions are begun by hand.

    The file must be there, unless the location says otherwise and the connection is to write.

    A connection that is ``lent`` to a handler prepares every statement anew, so that ``handler_transaction``
    sees all of them, and enforces foreign keys, which cannot be switched on later.

    ``wal_autocheckpoint`` is off: a checkpoint that races a commit can corrupt the file in every SQLite
    before 3.51.3, so only ``checkpoint.py`` does it, while it has the write lock.
    """
    if sqlite3.sqlite_version_info < MINIMUM_VERSION:
        needed = ".".join(map(str, MINIMUM_VERSION))
        raise ConfigurationError(
            f"SQLite {sqlite3.sqlite_version} is too old; Tidewheel needs {needed} or newer. "
            "It is part of your Python: use a newer Python or operating system"
        )
    try:
        connection = sqlite3.connect(
            _address(location, create=location.create and not read_only and not for_handler),
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=0 if for_handler else 256,
        )
    except sqlite3.Error as error:
        raise translate_error(error, location) from error
    try:
        # A few statements below need a lock that another process may hold for a moment.
        connection.execute(f"PRAGMA busy_timeout = {int(location.busy_seconds * 1000)}")
        # Nevertheless this one fails at once when two processes do it to a new file at the same moment.
        mode = _retry_while_busy(connection, "PRAGMA journal_mode = WAL", location).fetchone()[0]
        if mode != "wal":
            raise StoreError(
                f"{location.path} cannot use write-ahead logging (journal mode is {mode!r}); "
                "use a file on a local disk, or memory:// for an in-memory queue"
            )
        connection.execute(f"PRAGMA synchronous = {location.synchronous}")
        if location.synchronous == "FULL":
            # On macOS a plain fsync leaves data in the drive's cache; elsewhere these do nothing.
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        cache = READER_CACHE_KIB if read_only or for_handler else WRITER_CACHE_KIB
        connection.execute(f"PRAGMA cache_size = -{cache}")
        if for_handler:
            connection.execute("PRAGMA foreign_keys = ON")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            # What a statement would need to be undone is otherwise written to a file in the directory for
            # temporary ones, made and removed by every transaction that changes more than a few pages.
            connection.execute("PRAGMA temp_store = MEMORY")
            # From here on waiting is done by begin_immediate, which is fair where SQLite's own is not.
            connection.execute("PRAGMA busy_timeout = 0")
    except (sqlite3.Error, *DECODE_ERRORS) as error:
        connection.close()
        raise translate_error(error, location) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _address(location: Location, *, create: bool) -> str:
    """Return the URI of the file, after making it where it is missing and may be made."""
    if create:
        with _create_lock:  # whoever finds the file may lock it, and closing it would drop that lock
            _make_file(location)
    return f"{Path(location.path).as_uri()}?mode=rw"


def _make_file(location: Location) -> None:
    """Make an empty file that only its owner can read: SQLite would make one that everyone can.

    The log and the shared memory get the mode of the file from SQLite. An existing file keeps its mode.
    """
    path = Path(location.path)
    has_log = os.path.exists(location.wal_path)  # asked first: who makes both just now makes the file first
    if path.exists():
        return
    if has_log:
        raise StoreUnavailable(
            f"{path} is not there, but {path.name}-wal is, with what was written last, and SQLite would "
            f"throw that away; put {path.name} back, or remove {path.name}-wal to begin with an empty queue"
        )
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return  # another process was faster
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be made: {error.strerror}; this process must be able to make files in "
            f"{path.parent}"
        ) from error


def begin_immediate(
    connection: sqlite3.Connection, location: Location, request_lock: Callable[[], None] = lambda: None
) -> None:
    """Take the write lock, waiting fairly; ``make_heard`` tells others that somebody does.

    Always IMMEDIATE: a deferred transaction that turns into a writer fails at once when somebody else wrote.
    """
    _retry_while_busy(connection, "BEGIN IMMEDIATE", location, request_lock)


def _retry_while_busy(
    connection: sqlite3.Connection,
    statement: str,
    location: Location,
    request_lock: Callable[[], None] = lambda: None,
) -> sqlite3.Cursor:
    """Try until nobody holds the lock.

    SQLite's own back-off sleeps longer and longer and starves (1.6 s seen); short random sleeps do not.
    The first ones are shorter still: whoever was woken by a hint waits for the commit it was sent before.
    """
    began = time.monotonic()
    patience = LOCK_REQUEST_SECONDS
    while True:
        try:
            return connection.execute(statement)
        except sqlite3.OperationalError as error:
            waited = time.monotonic() - began
            if not is_busy(error) or waited > location.busy_seconds:
                raise translate_error(error, location) from error
            if waited > patience:
                patience *= 10
                request_lock()
            rest = min(max(waited / 8, MIN_LOCK_RETRY_SECONDS), MAX_LOCK_RETRY_SECONDS)
            time.sleep(rest * jitter(0.5, 1.5))


def translate_error(error: Exception, location: Location) -> StoreError:
    """What the driver or a decoder said, in our words: what happened, to which file, what helps."""
    if isinstance(error, DECODE_ERRORS):
        # A bug of ours could look the same, and nobody should throw a good file away for it.
        return StoreError(
            f"{location.path} holds something that cannot be read ({error!r}); it is damaged if "
            f"`sqlite3 {location.path} 'PRAGMA integrity_check'` says so: then restore a backup"
        )
    text = str(error)
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) or "locked" in text:
        return StoreUnavailable(
            f"{location.path} stayed locked for {location.busy_seconds:g} s by another connection; "
            "look for a process with a long write transaction"
        )
    if name.startswith("SQLITE_FULL"):
        return StoreUnavailable(f"no space left for {location.path}: {text}; make room on its disk")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        unavailable = StoreUnavailable(
            f"{location.path} cannot be read or written: {text} ({name}); this process must be able to write "
            "the file and to make others in its directory"
        )
        unavailable.lacks_rights = _lacks_rights(Path(location.path))
        return unavailable
    if name.startswith("SQLITE_IOERR"):
        return StoreUnavailable(
            f"{location.path} cannot be read or written: {text} ({name}); look at the disk and at the "
            "system's log"
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged_file_error(text, location)
    if "no such table: tidewheel_" in text:
        return StoreError(
            f"{location.path} has no Tidewheel tables yet; run `tidewheel migrate`, or what "
            "`tidewheel migrate --print` prints, or open the app with the setting migrate on"
        )
    return StoreError(f"{location.path}: {text} ({name or type(error).__name__})")


def _lacks_rights(path: Path) -> bool:
    """Whether this process may not write the file, or may not make others beside it."""
    beside = path.parent
    return (path.exists() and not os.access(path, os.R_OK | os.W_OK)) or (
        beside.exists() and not os.access(beside, os.W_OK | os.X_OK)
    )


def damaged_file_error(text: str, location: Location) -> StoreError:
    """Not ``StoreUnavailable``: waiting does not help."""
    return StoreError(
        f"{location.path} is damaged or not a database: {text}; stop what uses it and restore a backup, or "
        f"save what is left with `sqlite3 {location.path} .recover`"
    )


def is_busy(error: sqlite3.OperationalError) -> bool:
    return (getattr(error, "sqlite_errorname", "") or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


class ForkGuard:
    """The process this was made in."""

    _forks = 0  # how often this process's ancestors forked, since this module was loaded

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._fork_count = ForkGuard._forks

    @property
    def forked(self) -> bool:
        """Whether this is another process, forked from it."""
        return self._fork_count != ForkGuard._forks

    def check(self) -> None:
        if self.forked:
            raise UsedAfterFork(
                f"this store was opened in process {self._pid} and is used in process {os.getpid()}; "
                "open a new Tidewheel after fork()"
            )


def _count_fork() -> None:
    ForkGuard._forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)
