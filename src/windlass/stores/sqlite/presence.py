"""Whether the open file is still the one its path names.

SQLite goes on with a file that was removed or replaced: it commits into something nobody will find again, and
tells its caller that all is well. A look costs two microseconds.
"""

from __future__ import annotations

import os
from pathlib import Path

from windlass.errors import StoreUnavailable
from windlass.stores.sqlite.location import Location


class Presence:
    """The database and its log as they were when they were opened."""

    def __init__(self, location: Location) -> None:
        self._path = location.path
        self._known = {path: _identity(path) for path in (location.path, location.wal_path)}

    def check(self) -> None:
        """Raise ``StoreUnavailable`` unless both are there."""
        for path, known in self._known.items():
            found = _identity(path)
            if found == known:
                continue
            if known is None:
                self._known[path] = found  # SQLite makes the log when it is first needed
                continue
            raise StoreUnavailable(
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
