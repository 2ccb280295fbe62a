"""What any worker does for all: bring back jobs of dead workers."""

from __future__ import annotations

import asyncio
import logging

from tidewheel.clock import Clock
from tidewheel.errors import StoreError
from tidewheel.jitter import jitter
from tidewheel.stores.protocol import Store
from tidewheel.worker.backoff import Backoff
from tidewheel.worker.waiting import Recovery

RESCUE_SECONDS = 0.5
"""At least this often somebody looks for ended leases; half of the promised second."""

_log = logging.getLogger("tidewheel.worker")


class Janitor:
    """Runs beside the claims; they rescue too, so it only steps in when there are none."""

    def __init__(self, store: Store, poll_interval: float, clock: Clock, recovery: Recovery) -> None:
        self._store = store
        self._every = min(RESCUE_SECONDS, poll_interval)
        self._clock = clock
        self._last_claim = float("-inf")  # not yet
        self._backoff = Backoff("rescuing", recovery)

    @property
    def failing(self) -> bool:
        """Whether the store did not answer when it was last asked."""
        return self._backoff.failing

    def claimed(self, at: float) -> None:
        """A claim that was answered at this moment, monotonic, has done the rescuing."""
        self._last_claim = at

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._every * jitter(0.75, 1.0))
            try:
                if self._clock.monotonic() - self._last_claim >= self._every:
                    rescued = await self._store.rescue()
                    if rescued.total:
                        _log.info("rescued %s", rescued)
            except StoreError as error:
                await self._backoff.wait(error)
            else:
                self._backoff.reset()
