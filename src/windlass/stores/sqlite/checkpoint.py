"""Keeping the write-ahead log short, safely.

Every connection of ours has automatic checkpoints off. This does them instead: on the writer's connection,
in RESTART mode, which holds the write lock, so that no commit can race it (SQLite before 3.51.3 could
corrupt the file in that race).

The log's file is not made shorter than ``CHECKPOINT_BYTES``: the next commits write over it. A commit that
makes a file longer waits for the file system's own journal, too, and takes one and a half to two times as
long. SQLite cuts off what is beyond (``journal_size_limit``) with the first commit after a restart, so a file
that is longer is one whose log has grown since.

A reader that started before the newest commit keeps the log from being reset. Small logs are left for a
later try; once the log passes ``PATIENT_BYTES`` the checkpoint waits for such readers, holding new writers
back for up to a second, because a log that grows without end is the worse trouble.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from typing import Final

from windlass.stores.sqlite.location import Location

CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
PATIENT_BYTES: Final = 64 * 1024 * 1024
PATIENCE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 0.25
PATIENT_RETRY_SECONDS: Final = 10.0

_log = logging.getLogger("windlass.sqlite")


class Checkpointer:
    """Decides after each commit whether the log has grown enough."""

    def __init__(self, location: Location, connection: sqlite3.Connection) -> None:
        self._location = location
        self._connection = connection
        self._not_before = 0.0
        self._patient_not_before = 0.0
        self._complained = False
        self._restarted_size = 0  # of the file, when its log was restarted
        connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_BYTES}")

    def after_commit(self) -> None:
        size = self._log_size()
        now = time.monotonic()
        if size <= CHECKPOINT_BYTES:
            self._restarted_size = 0
            return
        # A connection that is not ours does not cut the file off. Then it is as long as it was, and not full.
        if size == self._restarted_size or now < self._not_before:
            return
        patient = size >= PATIENT_BYTES and now >= self._patient_not_before
        if self._checkpoint(PATIENCE_SECONDS if patient else 0.0):
            self._complained = False
            self._restarted_size = size
            return
        self._not_before = now + RETRY_SECONDS
        if patient:
            # Stalling every writer for a second, again and again, would be worse than a long log.
            self._patient_not_before = time.monotonic() + PATIENT_RETRY_SECONDS
            if not self._complained:
                self._complained = True
                _log.warning(
                    "the write-ahead log of %s is %d MiB and cannot be reset: some connection keeps a read "
                    "transaction open; find it and end it",
                    self._location.path,
                    size // (1024 * 1024),
                )

    def failed(self, error: Exception) -> None:
        self._not_before = time.monotonic() + PATIENT_RETRY_SECONDS
        _log.warning("beside a commit to %s: %s; it will be tried again", self._location.path, error)

    def _checkpoint(self, patience: float) -> bool:
        self._connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
        try:
            busy = self._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0]
        except sqlite3.OperationalError as error:
            if not (getattr(error, "sqlite_errorname", "") or "").startswith(
                ("SQLITE_BUSY", "SQLITE_LOCKED")
            ):
                raise
            busy = 1
        finally:
            self._connection.execute("PRAGMA busy_timeout = 0")
        return not busy

    def _log_size(self) -> int:
        # stat, never open: closing a second descriptor drops every POSIX lock this process has on the file.
        try:
            return os.stat(self._location.wal_path).st_size
        except OSError:
            return 0  # not there yet, or out of reach; the next statement that needs it will say so
