"""Looks at the store again and again, at a pace that neither it nor this machine feels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidewheel.admin.reports.answers import Attention, FailedJobs
from tidewheel.admin.reports.queue_snapshot import QueueSnapshot, take_queue_snapshot
from tidewheel.admin.worker_info import WorkerInfo
from tidewheel.app import Tidewheel
from tidewheel.cli.top.state import RateMeter, TopState
from tidewheel.errors import StoreError

MAX_RUNNING_JOBS: Final = 60
"""Running jobs that are asked for; a screen has no room for more."""
MAX_FAILURES: Final = 40
DETAILS_SECONDS: Final = 5.0
"""How often what may cost more is looked at at least: failures by error, attention, workers."""
CHEAP_RATIO: Final = 20.0
"""Where that took less than a twentieth of the time between two looks, it is part of each of them."""
REST_FACTOR: Final = 4.0
"""After a look as many times as long as it took is rested at least: a slow store is not made slower."""
POLL_TIMEOUT_SECONDS: Final = 10.0
"""After so long without an answer the store counts as away, and is asked again."""


@dataclass(frozen=True, slots=True)
class DetailsSnapshot:
    """What a closer look found."""

    began: float
    workers: Sequence[WorkerInfo]
    failed: FailedJobs
    attention: Attention


def pause_after_poll(every: float, took: float, *, answered: bool) -> float:
    """Seconds until the next look; one in vain may have waited long, and the store may be back any moment."""
    return max(every - took, took * REST_FACTOR if answered else min(took * REST_FACTOR, DETAILS_SECONDS))


class StatePoller:
    """Keeps a view up to date, also while the store is away."""

    def __init__(self, app: Tidewheel, state: TopState, tenant: str | None = None) -> None:
        self._app = app
        self._state = state
        self._tenant = tenant
        self._meter = RateMeter()
        self._details_took = DETAILS_SECONDS  # until it is known

    async def poll_once(self) -> None:
        """Everything, once, and rates over a moment; raises what the store does."""
        self._apply_glance(await self._glance(), time.monotonic())
        await asyncio.sleep(min(self._state.every, 1.0))
        began = time.monotonic()
        glance, closer = await self._glance(), await self._read_details()
        self._apply_glance(glance, began)
        self._apply_details(closer)

    async def run(self, on_change: Callable[[], None]) -> None:
        """Until cancelled; ``news`` is called whenever there is something else to show."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._repeat(self._poll, self._state.every, on_change))
            both.create_task(self._repeat(self._poll_details, DETAILS_SECONDS, on_change))

    async def _repeat(
        self, look: Callable[[], Awaitable[None]], every: float, news: Callable[[], None]
    ) -> None:
        while True:
            began = time.monotonic()
            answered = await self._try(look, began)
            news()
            await asyncio.sleep(pause_after_poll(every, time.monotonic() - began, answered=answered))

    async def _try(self, look: Callable[[], Awaitable[None]], began: float) -> bool:
        view = self._state
        try:
            async with asyncio.timeout(POLL_TIMEOUT_SECONDS):
                await look()
        except (StoreError, TimeoutError) as error:
            if view.error is None:
                view.error_since = began
            view.error = str(error) or f"no answer within {POLL_TIMEOUT_SECONDS:g} s"
            return False
        view.error = None
        return True

    async def _poll(self) -> None:
        """What is shown side by side is seen at one moment, as long as that costs little."""
        began = time.monotonic()
        glance = await self._glance()
        took = time.monotonic() - began
        closer = await self._read_details() if self._details_took * CHEAP_RATIO <= self._state.every else None
        self._state.poll_seconds = took
        self._apply_glance(glance, began)
        if closer is not None:
            self._apply_details(closer)

    async def _poll_details(self) -> None:
        """Unless each look does."""
        if time.monotonic() - self._state.details_at >= DETAILS_SECONDS / 2:
            self._apply_details(await self._read_details())

    async def _glance(self) -> QueueSnapshot:
        return await take_queue_snapshot(self._app, running=MAX_RUNNING_JOBS, tenant=self._tenant)

    def _apply_glance(self, glance: QueueSnapshot, taken: float) -> None:
        view = self._state
        view.glance = glance
        view.polled_at = time.monotonic()
        rates = self._meter.measure(glance, taken)
        if rates is not None:
            view.rates = rates
            view.history.append(rates.overall["completed"])

    async def _read_details(self) -> DetailsSnapshot:
        ask, began = self._app.questions, time.monotonic()
        closer = DetailsSnapshot(
            began,
            await self._app.workers() if self._tenant is None else (),
            await ask.failed(limit=MAX_FAILURES, tenant=self._tenant),
            await ask.attention(tenant=self._tenant),
        )
        self._details_took = time.monotonic() - began
        return closer

    def _apply_details(self, details: DetailsSnapshot) -> None:
        view = self._state
        view.details_at, view.workers = details.began, details.workers
        view.failed, view.attention = details.failed, details.attention
