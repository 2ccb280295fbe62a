"""What time it is by the store, for anybody who asks a server."""

from __future__ import annotations

import asyncio
from typing import Final

from tidewheel.clock import Clock, seconds_to_microseconds
from tidewheel.stores.protocol import Store

REMEMBERED_SECONDS: Final = 1.0
"""How long one look at the store's clock stands, counted on from there: nobody can make the store busy by
asking for the time, which needs no key."""


class StoreTime:
    """The store's clock, seen from one event loop."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._seen = 0
        self._seen_at = float("-inf")
        self._looking = asyncio.Lock()

    async def now(self) -> int:
        """Microseconds since 1970."""
        async with self._looking:
            if self._clock.monotonic() - self._seen_at >= REMEMBERED_SECONDS:
                self._seen = await self._store.now()
                self._seen_at = self._clock.monotonic()
            return self._seen + seconds_to_microseconds(self._clock.monotonic() - self._seen_at)
