"""Requests that take too long, ended.

One look at all of them four times a second, instead of a timer made and cancelled for each.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

LOOK_SECONDS: Final = 0.25
"""How late a request may be ended."""


class Deadlines:
    """Until when which request may run; for one event loop."""

    def __init__(self) -> None:
        self._until: dict[asyncio.Task[Any], float] = {}
        self._expired: set[asyncio.Task[Any]] = set()
        self._look: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> asyncio.Task[Any]:
        """Let the current task run for so long from here on, whatever was said before."""
        loop = asyncio.get_running_loop()
        task = cast("asyncio.Task[Any]", asyncio.current_task(loop))  # whatever awaits this is in one
        self._until[task] = loop.time() + seconds
        if self._look is None:
            self._look = loop.call_later(LOOK_SECONDS, self._end_late_ones, loop)
        return task

    def end(self, task: asyncio.Task[Any]) -> None:
        """It is done, one way or another."""
        self._until.pop(task, None)
        if self._expired:  # whatever it awaited may have finished in spite of being cancelled
            self._expired.discard(task)

    def lift(self) -> None:
        """Let the current task go on for as long as it likes."""
        self._until.pop(cast("asyncio.Task[Any]", asyncio.current_task()), None)

    def expired(self, task: asyncio.Task[Any]) -> bool:
        """Whether it was cancelled by us, and by nobody else."""
        if task not in self._expired:
            return False
        self._expired.discard(task)
        return task.uncancel() == 0

    def _end_late_ones(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for task in [task for task, until in self._until.items() if until <= now]:
            del self._until[task]
            self._expired.add(task)
            task.cancel()
        self._look = loop.call_later(LOOK_SECONDS, self._end_late_ones, loop) if self._until else None
