"""What a worker knows of the whole queue: a look now and then, so that who asks waits for none."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import replace

from tidewheel.core.clock import Clock
from tidewheel.core.jitter import jitter
from tidewheel.errors import StoreError
from tidewheel.stores.protocol import Store
from tidewheel.telemetry.metric_gauges import QueueFigures, TopicFigures, look
from tidewheel.worker.async_waits import Recovery, within
from tidewheel.worker.backoff import Backoff

LOOK_SECONDS: Final = 15.0
"""From one look to the next: figures are no older, but for the time of a look, while the store answers."""
FIRST_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 10.0


class Outlook:
    """Looks from the worker's event loop, where somebody wants to know."""

    def __init__(self, store: Store, clock: Clock, recovery: Recovery) -> None:
        self._store = store
        self._clock = clock
        self._backoff = Backoff("looking at the queue", recovery)
        self._seen: tuple[float, QueueFigures] | None = None  # when, monotonic, and what
        self.topics: tuple[TopicFigures, ...] = ()

    @property
    def queue(self) -> QueueFigures | None:
        """The last look, with how long ago that was; from any thread."""
        seen = self._seen
        if seen is None:
            return None
        return replace(seen[1], age_seconds=round(self._clock.monotonic() - seen[0], 3))

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(FIRST_SECONDS * jitter(0.0, 1.0))
        while True:
            try:
                await within(ANSWER_SECONDS, self._look())
            except StoreError as error:
                await self._backoff.wait(error)
            else:
                self._backoff.reset()
                await asyncio.sleep(LOOK_SECONDS * jitter(0.8, 1.0))

    async def _look(self) -> None:
        queue, self.topics = await look(self._store)
        self._seen = self._clock.monotonic(), queue
