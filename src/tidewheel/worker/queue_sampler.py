"""What a worker knows of the whole queue: a look now and then, so that who asks waits for none."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import replace

from tidewheel.core.clock import Clock
from tidewheel.core.jitter import jitter
from tidewheel.errors import StoreError
from tidewheel.stores.protocol import Store
from tidewheel.telemetry.metric_gauges import QueueSnapshot, TopicCounts, sample_queue
from tidewheel.worker.async_waits import with_store_timeout
from tidewheel.worker.backoff import Backoff, RecoverySignal

SAMPLE_INTERVAL_SECONDS: Final = 15.0
"""From one look to the next: figures are no older, but for the time of a look, while the store answers."""
FIRST_SAMPLE_SECONDS: Final = 1.0
STORE_TIMEOUT_SECONDS: Final = 10.0


class QueueSampler:
    """Looks from the worker's event loop, where somebody wants to know."""

    def __init__(self, store: Store, clock: Clock, recovery: RecoverySignal) -> None:
        self._store = store
        self._clock = clock
        self._backoff = Backoff("looking at the queue", recovery)
        self._last_sample: tuple[float, QueueSnapshot] | None = None  # when, monotonic, and what
        self.topics: tuple[TopicCounts, ...] = ()

    @property
    def latest(self) -> QueueSnapshot | None:
        """The last look, with how long ago that was; from any thread."""
        seen = self._last_sample
        if seen is None:
            return None
        return replace(seen[1], age_seconds=round(self._clock.monotonic() - seen[0], 3))

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(FIRST_SAMPLE_SECONDS * jitter(0.0, 1.0))
        while True:
            try:
                await with_store_timeout(STORE_TIMEOUT_SECONDS, self._sample())
            except StoreError as error:
                await self._backoff.pause_after_failure(error)
            else:
                self._backoff.record_success()
                await asyncio.sleep(SAMPLE_INTERVAL_SECONDS * jitter(0.8, 1.0))

    async def _sample(self) -> None:
        queue, self.topics = await sample_queue(self._store)
        self._last_sample = self._clock.monotonic(), queue
