"""A worker process whose only work is to let schedules fire, in a time that runs faster than ours.

``python -m tests.schedules.scheduler_process URL FILE``: says when it is ready, and runs until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tidewheel import Tidewheel
from tidewheel.core.clock import to_microseconds
from tidewheel.schedules import scheduler

SPEED: Final = 14_400
"""Four hours a second."""
START: Final = datetime(2024, 3, 9, 22, tzinfo=UTC)


class FastClock:
    """The same in all processes. It stands still until a file says at which moment of ours it began."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began: int | None = None

    def begin(self) -> None:
        draft = self._file.with_suffix(".draft")
        draft.write_text(str(time.time_ns()), "ascii")
        draft.rename(self._file)

    def now(self) -> int:
        if self._began is None and self._file.exists():
            self._began = int(self._file.read_text("ascii"))
        passed = 0 if self._began is None else (time.time_ns() - self._began) * SPEED // 1000
        return to_microseconds(START) + passed

    monotonic = staticmethod(time.monotonic)


def make_app(url: str, file: Path) -> Tidewheel:
    return Tidewheel(url, clock=FastClock(file), check_on_start=False)


async def main(url: str, file: Path) -> None:
    scheduler.REFRESH_SECONDS = 0.05  # of our time, in which twelve minutes pass there
    app = make_app(url, file)

    @app.task
    async def nothing_to_do() -> None: ...

    async with app:
        print("ready", flush=True)
        await app.run_worker()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
