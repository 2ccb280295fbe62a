"""Waiting longer after each failure, and saying so once instead of every time."""

from __future__ import annotations

import logging

from tidewheel.core.jitter import jitter
from tidewheel.errors import UsedAfterFork
from tidewheel.worker.async_waits import Recovery

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 30.0

_log = logging.getLogger("tidewheel.worker")


def pause_after(failures: int, longest: float = LONGEST_SECONDS) -> float:
    """Seconds to wait after so many failures in a row, never quite the same."""
    nominal = min(longest, FIRST_SECONDS * 2.0 ** min(failures - 1, 16))
    return nominal * jitter(0.5, 1.0)


class Backoff:
    """One part of a worker that speaks with the store, and how long it waits before it tries again."""

    def __init__(self, what: str, recovery: Recovery, longest: float = LONGEST_SECONDS) -> None:
        self._what = what
        self._recovery = recovery
        self._longest = longest
        self._failures = 0  # since the store last answered, or was said to
        self._tries = 0

    @property
    def failing(self) -> bool:
        return self._tries > 0

    def failed(self, error: Exception) -> float:
        """Note a failure; how long to wait now."""
        if isinstance(error, UsedAfterFork):
            raise error  # a forked child must not go on as if it were the worker
        if not self._tries:
            _log.error("%s failed; trying again until it works: %s", self._what, error)
        self._tries += 1
        self._failures += 1
        return pause_after(self._failures, self._longest)

    async def pause(self, seconds: float) -> None:
        """Wait, or until another part got through."""
        if await self._recovery.sleep(seconds):
            # What was wrong is over. Should connections have to be made anew, the next tries come quickly.
            self._failures = 0

    async def wait(self, error: Exception) -> None:
        """Note a failure, and pause after it."""
        await self.pause(self.failed(error))

    def reset(self) -> None:
        """It worked."""
        if self._tries:
            _log.warning("%s works again after %d failed tries", self._what, self._tries)
            self._failures = self._tries = 0
            self._recovery.tell()
