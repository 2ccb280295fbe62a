"""What any worker does for all: bring back jobs of dead workers, remove what is past its keep."""

from __future__ import annotations

import asyncio
import logging
import random

from windlass.clock import Clock
from windlass.errors import StoreError
from windlass.stores.protocol import MAX_BATCH, Store
from windlass.worker.backoff import Backoff
from windlass.worker.observers import Observers
from windlass.worker.waiting import Recovery

RESCUE_SECONDS = 0.5
"""At least this often somebody looks for ended leases; half of the promised second."""
PRUNE_SECONDS = 60.0
PRUNE_BATCHES = 20
"""Batches per pass: a backlog of old jobs is worked off in the background, not in one go."""

_log = logging.getLogger("windlass.worker")


class Janitor:
    """Runs beside the claims; they rescue too, so it only steps in when there are none."""

    def __init__(
        self,
        store: Store,
        poll_interval: float,
        clock: Clock,
        recovery: Recovery,
        observers: Observers | None = None,
    ) -> None:
        self._store = store
        self._every = min(RESCUE_SECONDS, poll_interval)
        self._clock = clock
        self._last_claim = float("-inf")  # not yet
        self._backoff = Backoff("rescuing and pruning", recovery)
        self._observers = observers

    @property
    def failing(self) -> bool:
        """Whether the store did not answer when it was last asked."""
        return self._backoff.failing

    def claimed(self, at: float) -> None:
        """A claim that was answered at this moment, monotonic, has done the rescuing."""
        self._last_claim = at

    async def run(self) -> None:
        # Not all workers of a deployment at once.
        next_prune = self._clock.monotonic() + random.uniform(0.0, PRUNE_SECONDS)  # noqa: S311
        while True:
            await asyncio.sleep(self._every * random.uniform(0.75, 1.0))  # noqa: S311
            try:
                if self._clock.monotonic() - self._last_claim >= self._every:
                    rescued = await self._store.rescue()
                    if rescued.total:
                        _log.info("rescued %s", rescued)
                if self._clock.monotonic() >= next_prune:
                    next_prune = self._clock.monotonic() + PRUNE_SECONDS * random.uniform(0.75, 1.25)  # noqa: S311
                    await self._prune()
            except StoreError as error:
                await self._backoff.wait(error)
            else:
                self._backoff.reset()

    async def _prune(self) -> None:
        for _ in range(PRUNE_BATCHES):
            pruned = await self._store.prune(MAX_BATCH)
            if self._observers is not None:
                self._observers.pruned(pruned)
            if sum(pruned.values()) < MAX_BATCH:
                return
            await asyncio.sleep(0.05)  # let others write in between
