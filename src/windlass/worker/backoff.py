"""Waiting longer after each failure, and saying so once instead of every time."""

from __future__ import annotations

import asyncio
import logging
import random

from windlass.errors import UsedAfterFork

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 30.0

_log = logging.getLogger("windlass.worker")


class Backoff:
    """How long to wait before the store is tried again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._failures = 0

    @property
    def failing(self) -> bool:
        return self._failures > 0

    def next_delay(self) -> float:
        nominal = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return nominal * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    async def wait(self, error: Exception) -> None:
        if isinstance(error, UsedAfterFork):
            raise error  # a forked child must not go on as if it were the worker
        if not self._failures:
            _log.error("%s failed; trying again until it works: %s", self._what, error)
        await asyncio.sleep(self.next_delay())

    def reset(self) -> None:
        if self._failures:
            _log.warning("%s works again after %d failed tries", self._what, self._failures)
        self._failures = 0
