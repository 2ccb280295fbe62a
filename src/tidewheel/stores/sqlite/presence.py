"""Whether the open file is still the one its path names.

SQLite goes on with a file that was removed or replaced: it commits into something nobody will find again, and
tells its caller that all is well. A look is two calls of ``stat``, which is little beside a commit.
"""

from __future__ import annotations

import os
from pathlib import Path

from tidewheel.errors import StoreUnavailable
from tidewheel.stores.sqlite.location import Location


class Presence:
    """The database and its log as they were when they were opened."""

    def __init__(self, location: Location) -> None:
        self._path, self._log_path = location.path, location.wal_path
        self._file = _identity(self._path)
        self._log: tuple[int, int] | None = None

    def check(self, *, in_transaction: bool = False) -> None:
        """Raise ``StoreUnavailable`` unless both are there."""
        if (found := _identity(self._path)) != self._file:
            raise self._taken_away(self._path, found)
        if (found := _identity(self._log_path)) == self._log:
            return
        if self._log is not None:
            raise self._taken_away(self._log_path, found)
        # Until our connection is in a transaction for the first time, another one's end may remove the log.
        if in_transaction:
            self._log = found

    def _taken_away(self, path: str, found: tuple[int, int] | None) -> StoreUnavailable:
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
