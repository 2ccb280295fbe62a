"""The clock of a store, to be stepped back and forward while workers run.

On SQLite it is a ``Clock`` of ours. PostgreSQL asks its own machine, so there the server runs
under libfaketime, which adds what it reads in a file to every wall clock it is asked for.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.servers import FAST, PostgresServer
from tests.servers.accounts import server_account
from tests.servers.packages import FAKETIME, unpacked

HOUR = 3600.0


class StoreClock(Protocol):
    def step(self, offset: float) -> None:
        """From now on it shows this many seconds more than it should."""


class SteppingClock:
    """The machine's clock and something added to it; what is measured inside a process is not touched."""

    def __init__(self) -> None:
        self._offset = 0.0

    def now(self) -> int:
        return round((time.time() + self._offset) * 1e6)

    def monotonic(self) -> float:
        return time.monotonic()

    def step(self, offset: float) -> None:
        self._offset = offset


class ServerClock:
    """What the processes of one server believe, through a file that they read at every look at the clock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.step(0.0)

    def step(self, offset: float) -> None:
        # Renamed into place: nobody reads half a number.
        written = self._path.with_suffix(".new")
        written.write_text(f"{offset:+.0f}\n")
        server_account().give(written)
        os.replace(written, self._path)


def faketime_environment(library: Path, **more: str) -> dict[str, str]:
    """For a process whose wall clock is off. Its monotonic clock runs as it should."""
    return {"LD_PRELOAD": str(library), "FAKETIME_DONT_FAKE_MONOTONIC": "1", **more}


def faketime_library() -> Path:
    return FAKETIME.of(unpacked(FAKETIME))


@contextmanager
def server_with_clock() -> Iterator[tuple[PostgresServer, ServerClock]]:
    server = PostgresServer(settings=FAST)
    # Where the account of the server can read it, unlike somebody's cache directory.
    library = Path(shutil.copy(faketime_library(), server.directory))
    server_account().give(library)
    clock = ServerClock(server.directory / "clock")
    server.environment = faketime_environment(
        library, FAKETIME_TIMESTAMP_FILE=str(server.directory / "clock"), FAKETIME_NO_CACHE="1"
    )
    with server:
        yield server, clock
