"""Waiting longer after each failure, and saying so once instead of every time."""

from __future__ import annotations

import asyncio
import logging
import threading

from tidewheel.core.jitter import jitter
from tidewheel.errors import UsedAfterFork


class RecoverySignal:
    """Where the parts of one worker that failed wait for their next try; the first to get through wakes all.

    Without it each would sleep its own pause of up to half a minute after the store is back. From any thread,
    heard on any event loop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By their futures, in the order they came: a set would wake them in any order.
        self._sleeping: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    async def sleep(self, seconds: float) -> bool:
        """True when somebody got through before the time was over."""
        loop = asyncio.get_running_loop()
        sleeper = loop.create_future()
        with self._lock:
            self._sleeping[sleeper] = loop
        try:
            woken, _ = await asyncio.wait((sleeper,), timeout=seconds)
        finally:
            with self._lock:
                self._sleeping.pop(sleeper, None)
        return bool(woken)

    def notify_all(self) -> None:
        """The store answers again."""
        with self._lock:
            for future, loop in self._sleeping.items():
                try:
                    loop.call_soon_threadsafe(_release, future)
                except RuntimeError:
                    if not loop.is_closed():  # closed: the sleeper is gone with it
                        raise
            self._sleeping.clear()


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


INITIAL_DELAY_SECONDS = 0.1
MAX_DELAY_SECONDS = 30.0

_log = logging.getLogger("tidewheel.worker")


def delay_after_failures(failures: int, max_seconds: float = MAX_DELAY_SECONDS) -> float:
    """Seconds to wait after so many failures in a row, never quite the same."""
    nominal = min(max_seconds, INITIAL_DELAY_SECONDS * 2.0 ** min(failures - 1, 16))
    return nominal * jitter(0.5, 1.0)


class Backoff:
    """One part of a worker that speaks with the store, and how long it waits before it tries again."""

    def __init__(
        self, operation: str, recovery: RecoverySignal, max_seconds: float = MAX_DELAY_SECONDS
    ) -> None:
        self._what = operation
        self._recovery = recovery
        self._longest = max_seconds
        self._failures = 0  # since the store last answered, or was said to
        self._tries = 0

    @property
    def failing(self) -> bool:
        return self._tries > 0

    def record_failure(self, error: Exception) -> float:
        """Note a failure; how long to wait now."""
        if isinstance(error, UsedAfterFork):
            raise error  # a forked child must not go on as if it were the worker
        if not self._tries:
            _log.error("%s failed; trying again until it works: %s", self._what, error)
        self._tries += 1
        self._failures += 1
        return delay_after_failures(self._failures, self._longest)

    async def pause(self, seconds: float) -> None:
        """Wait, or until another part got through."""
        if await self._recovery.sleep(seconds):
            # What was wrong is over. Should connections have to be made anew, the next tries come quickly.
            self._failures = 0

    async def pause_after_failure(self, error: Exception) -> None:
        """Note a failure, and pause after it."""
        await self.pause(self.record_failure(error))

    def record_success(self) -> None:
        """It worked."""
        if self._tries:
            _log.warning("%s works again after %d failed tries", self._what, self._tries)
            self._failures = self._tries = 0
            self._recovery.notify_all()
