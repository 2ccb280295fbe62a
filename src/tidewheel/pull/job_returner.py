"""Return claimed jobs that no client will receive, and the record of a pulled job.

While the store is unavailable, the release is retried until the jobs' leases end or the app closes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from msgspec import Struct

from tidewheel.core.clock import Clock
from tidewheel.core.model import RELEASED_UNSEEN, Claimed, Settlement
from tidewheel.errors import StoreError, StoreUnavailable
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import Store


class PulledJob(Struct, frozen=True):
    """A job just claimed. ``granted_at`` is when it was asked for, monotonic: its lease began no earlier."""

    job: Claimed
    granted_at: float


_INITIAL_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 2.0
"""Seconds between tries to give a job back while the store is away; each pause is twice the one before."""

_log = logging.getLogger("tidewheel.pulling")


class JobReturner:
    """What is being given back. Lives on one event loop, next to its store; true while there is any."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._hurry = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def return_jobs(self, jobs: list[PulledJob]) -> None:
        """Let others have these, soon."""
        task = asyncio.get_running_loop().create_task(self._release(jobs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait_until_returned(self) -> None:
        """When what is being given back is in its place again. A store that is away is not waited for."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_INITIAL_PAUSE_SECONDS)

    def stop_retrying(self) -> None:
        """The app closes: a store that is away is not tried again."""
        self._hurry.set()

    async def close(self) -> None:
        """Wait for the last try."""
        self.stop_retrying()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _release(self, jobs: list[PulledJob]) -> None:
        """Until it is done, or their time is over: that can be years, and nobody would have them."""
        pause = _INITIAL_PAUSE_SECONDS
        while jobs:
            batch = jobs[:MAX_BATCH]
            try:
                await self._store.settle([Settlement(pulled.job.lease, RELEASED_UNSEEN) for pulled in batch])
                jobs = jobs[MAX_BATCH:]
            except StoreUnavailable as error:
                if await self._hurried_within(pause):
                    _log.warning("%d jobs stay reserved until their leases end: %s", len(jobs), error)
                    return
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)
                now = self._clock.monotonic()
                jobs = [one for one in jobs if one.granted_at + one.job.lease_seconds > now]
            except StoreError as error:
                _log.warning("%d jobs stay reserved until their leases end: %s", len(jobs), error)
                return

    async def _hurried_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return False
        return True
