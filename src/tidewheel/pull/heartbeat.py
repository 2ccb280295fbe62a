"""Keeping a program that pulls by hand on the list of workers.

Operators see who takes the jobs of a topic, and how many it has, whether it runs tasks or pulls.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Collection
from typing import Final

from tidewheel.__about__ import __version__
from tidewheel.core.clock import Clock, seconds_to_microseconds
from tidewheel.core.jitter import jitter
from tidewheel.core.model import Lane, Lease, WorkerRecord
from tidewheel.core.names import MAX_NAME_LENGTH
from tidewheel.errors import StoreError
from tidewheel.stores.protocol import Store

HEARTBEAT_SECONDS: Final = 5.0
FIRST_HEARTBEAT_SECONDS: Final = 1.0
"""Who pulls for a shorter time is on no list: short scripts and tests write nothing more for it."""
MAX_LANES: Final = 200
"""Most topics that are told; of the others it tells the number."""

_log = logging.getLogger("tidewheel.pulling")


class PullerHeartbeat:
    """What this event loop has pulled, and telling the store about it every few seconds."""

    def __init__(
        self,
        name: str,
        store: Store,
        clock: Clock,
        *,
        topics: Callable[[], Collection[str]],
        waiting: Callable[[], int],
    ) -> None:
        self._name = name
        self._store = store
        self._clock = clock
        self._topics = topics
        self._waiting = waiting
        self._held: dict[Lease, float] = {}  # until when, monotonic
        self._ended = 0
        self._lost = 0
        self._started = clock.monotonic()
        self._started_at: int | None = None  # by the store's clock; None while it is not listed
        self._beating: asyncio.Task[None] | None = None

    def record_lease(self, lease: Lease, until: float) -> None:
        """It was granted, or made to last longer."""
        self._held[lease] = until
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat_while_busy(), name="tidewheel-listing")

    def record_waiting(self) -> None:
        """Somebody waits for a job."""
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat_while_busy(), name="tidewheel-listing")

    def record_end(self, lease: Lease, *, held: bool) -> None:
        """It was ended by a verb; or it was to be, and was not held any more."""
        self._held.pop(lease, None)
        if held:
            self._ended += 1
        else:
            self._lost += 1

    async def close(self) -> None:
        """Off the list."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait((self._beating,))
        await self._deregister()

    async def _beat_while_busy(self) -> None:
        try:
            await asyncio.sleep(FIRST_HEARTBEAT_SECONDS)
            while self._busy():
                await self._try_to_beat()
                await asyncio.sleep(HEARTBEAT_SECONDS * jitter(0.8, 1.0))
                if not self._busy():
                    await self._deregister()  # who comes while it leaves is listed again
        finally:
            self._beating = None

    def _busy(self) -> bool:
        return self._waiting() > 0 or self._held_count() > 0

    def _held_count(self) -> int:
        now = self._clock.monotonic()
        for lease in [lease for lease, until in self._held.items() if until <= now]:
            del self._held[lease]
        return len(self._held)

    async def _try_to_beat(self) -> None:
        try:
            if self._started_at is None:
                # The store's clock, not this machine's, which may be off by a day.
                so_far = seconds_to_microseconds(self._clock.monotonic() - self._started)
                self._started_at = await self._store.now() - so_far
            await self._store.heartbeat(self._describe(self._started_at))
        except StoreError as error:
            # Nobody's job is disturbed for it; who pulls has been told already.
            _log.debug("%s could not be listed: %s", self._name, error)

    async def _deregister(self) -> None:
        if self._started_at is None:
            return
        try:
            await self._store.deregister_worker(self._name, self._started_at)
        except StoreError as error:
            _log.warning("%s stays listed until it is forgotten: %s", self._name, error)
        self._started_at = None

    def _describe(self, started_at: int) -> WorkerRecord:
        topics = sorted(self._topics())
        at_hand = self._held_count()
        return WorkerRecord(
            name=self._name,
            host=socket.gethostname()[:MAX_NAME_LENGTH],
            pid=os.getpid(),
            version=__version__,
            started_at=started_at,
            lanes=tuple(Lane(topic) for topic in topics[:MAX_LANES]),
            more_lanes=max(0, len(topics) - MAX_LANES),
            concurrency=at_hand + self._waiting(),
            running=at_hand,
            polling=self._store.notifications_down,
            clock_step_seconds=self._store.clock_step_seconds,
            ran=self._ended,
            lost=self._lost,
        )
