"""Callers who were answered together mostly call again at once: they are given a moment to, and then share
a commit again.

Without it the first of ten clients who delete their jobs has a commit to itself, and the others wait for it.
Worse, the store's thread and the event loop then work at the same time, and fight for the interpreter: ten
clients in step were served twice as fast as the same ten out of step.
"""

from __future__ import annotations

import asyncio
from typing import Final

QUIET: Final = 0.001
"""Seconds. When nobody has called for so long, those who are missing do not come.
Event loops know no less."""
LONGEST: Final = 0.003
"""Seconds that anybody waits for others in any case."""


class Rounds:
    """Whose next call is still expected. A single caller is never waited for, and never waits."""

    def __init__(self) -> None:
        self._expected = 0
        self._complete: asyncio.Future[None] | None = None
        self._heard = False  # somebody, since the last look
        self._ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def called(self) -> None:
        """Somebody wants something of the store."""
        if self._expected:
            self._heard = True
            self._expected -= 1
            if not self._expected:
                self._go()

    def answered(self, callers: int) -> None:
        """So many got what they wanted, and are expected to call again at once."""
        self._expected += callers

    async def gather(self) -> None:
        """Until those who were answered have called again, or for a moment."""
        if not self._expected:
            return
        if self._complete is None:
            loop = asyncio.get_running_loop()
            self._complete = loop.create_future()
            self._heard = False
            self._ends_at = loop.time() + LONGEST
            self._timer = loop.call_later(QUIET, self._look)
        await asyncio.shield(self._complete)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if self._heard and loop.time() < self._ends_at:
            self._heard = False
            self._timer = loop.call_later(QUIET, self._look)
        else:
            self._go()

    def _go(self) -> None:
        self._expected = 0
        if self._timer is not None:
            self._timer.cancel()  # it would end the next round before its time
        complete, self._complete = self._complete, None
        if complete is not None and not complete.done():
            complete.set_result(None)
