"""Keeping the write-ahead log short, safely.

SQLite before 3.51.3 can corrupt a file when a checkpoint races a commit, of any process. So every connection
of ours has automatic checkpoints off, and this does them instead: a second connection takes the write lock,
and only then does the writer's copy the log into the database, with a passive checkpoint. A RESTART
checkpoint would not do: it takes that lock itself, and goes on without it where another process has it.

A passive checkpoint leaves the log as it is. The next commit begins it anew, provided all of it has been
copied and nobody reads it any more; whoever begins to read after the copy does without the log.

The log's file is not made shorter than ``CHECKPOINT_BYTES``: the next commits write over it. A commit that
makes a file longer waits for the file system's own journal, too, and takes one and a half to two times as
long. SQLite cuts off what is beyond (``journal_size_limit``) with the first commit of a log begun anew, so a
file that is longer is one whose log has grown since.

A reader that started before the copy keeps the log from being begun anew. Small logs are left for a later
try; once the log passes ``BLOCKING_CHECKPOINT_BYTES`` the lock is held for a second, in which such readers
come to their end, because a log that grows without end is worse than writers that wait.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from typing import Final

from tidewheel.stores.sqlite.connection import connect, is_busy
from tidewheel.stores.sqlite.location import Location

CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
BLOCKING_CHECKPOINT_BYTES: Final = 64 * 1024 * 1024
LOCK_SECONDS: Final = 0.05
"""How long the lock is waited for. Whoever has it longer has it again soon: a later try is as good."""
READER_WAIT_SECONDS: Final = 1.0
SIZE_CHECK_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 0.25
PATIENT_RETRY_SECONDS: Final = 10.0

_log = logging.getLogger("tidewheel.sqlite")


class Checkpointer:
    """Decides after each commit whether the log has grown enough."""

    def __init__(self, location: Location, connection: sqlite3.Connection) -> None:
        self._location = location
        self._connection = connection
        self._guard = connect(location)  # holds the write lock, and writes nothing
        self._guard.execute(f"PRAGMA busy_timeout = {int(LOCK_SECONDS * 1000)}")
        self._not_before = 0.0
        self._patient_not_before = 0.0
        self._was_patient = False
        self._warned = False
        self._copied_size = 0  # of the file, when all of its log had been copied
        connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")

    def after_commit(self) -> None:
        size = self._log_size()
        if size <= CHECKPOINT_BYTES:
            self._copied_size = 0
            self._warned = False
            return
        # As long as it was: the log was begun anew by a connection that is not ours, and cuts nothing off.
        if size == self._copied_size:
            return
        now = time.monotonic()
        if self._copied_size:
            # Longer: somebody still reads it, or this commit would have begun it anew.
            self._copied_size = 0
            self._report_blocked(size, now)
        if now < self._not_before:
            return
        patient = size >= BLOCKING_CHECKPOINT_BYTES and now >= self._patient_not_before
        copied = self._copy(READER_WAIT_SECONDS if patient else 0.0)
        now = time.monotonic()
        self._was_patient = patient
        if patient:
            # Stalling every writer for a second, again and again, would be worse than a long log.
            self._patient_not_before = now + PATIENT_RETRY_SECONDS
        if copied:
            self._copied_size = size
        else:
            self._report_blocked(size, now)

    def failed(self, error: Exception) -> None:
        self._not_before = time.monotonic() + PATIENT_RETRY_SECONDS
        _log.warning("beside a commit to %s: %s; it will be tried again", self._location.path, error)

    def close(self) -> None:
        self._guard.close()

    def _report_blocked(self, size: int, now: float) -> None:
        self._not_before = now + RETRY_SECONDS
        if self._was_patient and not self._warned:
            self._warned = True
            _log.warning(
                "the write-ahead log of %s is %d MiB and cannot be reset: some connection keeps a read "
                "transaction open; find it and end it",
                self._location.path,
                size // (1024 * 1024),
            )

    def _copy(self, patience: float) -> bool:
        """Copy the log into the database while nobody can write; whether that was possible to its end."""
        until = time.monotonic() + patience
        try:
            self._guard.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if is_busy(error):
                return False
            raise
        try:
            while True:
                busy, frames, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                if (rest := until - time.monotonic()) <= 0:
                    return not busy and frames == copied
                time.sleep(min(rest, SIZE_CHECK_SECONDS))
        finally:
            self._guard.execute("ROLLBACK")

    def _log_size(self) -> int:
        # stat, never open: closing a second descriptor drops every POSIX lock this process has on the file.
        try:
            return os.stat(self._location.wal_path).st_size
        except OSError:
            return 0  # not there yet, or out of reach; the next statement that needs it will say so
