"""Callers who were answered together mostly call again at once: they are given a moment to, and then share
a commit again.

Without it the first of ten clients who delete their jobs has a commit to itself, and the others wait for it.
"""

from __future__ import annotations

import asyncio
from typing import Final

PATIENCE: Final = 0.0005
"""Seconds: about what a commit takes, so that nobody waits longer than for another's."""


class Rounds:
    """Whose next call is still expected. A single caller is never waited for, and never waits."""

    def __init__(self) -> None:
        self._expected = 0
        self._complete: asyncio.Future[None] | None = None

    def called(self) -> None:
        """Somebody wants something of the store."""
        if self._expected:
            self._expected -= 1
            if not self._expected:
                self._go()

    def answered(self, callers: int) -> None:
        """So many got what they wanted."""
        self._expected += callers

    async def gather(self) -> None:
        """Until those who were answered have called again, or for a moment."""
        if not self._expected:
            return
        loop = asyncio.get_running_loop()
        if self._complete is None:
            self._complete = loop.create_future()
            loop.call_later(PATIENCE, self._go)
        await asyncio.shield(self._complete)

    def _go(self) -> None:
        self._expected = 0
        complete, self._complete = self._complete, None
        if complete is not None and not complete.done():
            complete.set_result(None)
