"""Looks at the store again and again, at a pace that neither it nor this machine feels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidewheel.admin.reports.answers import Attention, FailedJobs
from tidewheel.admin.reports.queue_snapshot import Glance, take_glance
from tidewheel.admin.worker_info import WorkerInfo
from tidewheel.app import Tidewheel
from tidewheel.cli.top.state import Meter, View
from tidewheel.errors import StoreError

MOST_JOBS: Final = 60
"""Running jobs that are asked for; a screen has no room for more."""
MOST_FAILURES: Final = 40
SELDOM_SECONDS: Final = 5.0
"""How often what may cost more is looked at at least: failures by error, attention, workers."""
CHEAP: Final = 20.0
"""Where that took less than a twentieth of the time between two looks, it is part of each of them."""
REST: Final = 4.0
"""After a look as many times as long as it took is rested at least: a slow store is not made slower."""
ANSWER_SECONDS: Final = 10.0
"""After so long without an answer the store counts as away, and is asked again."""


@dataclass(frozen=True, slots=True)
class Closer:
    """What a closer look found."""

    began: float
    workers: Sequence[WorkerInfo]
    failed: FailedJobs
    attention: Attention


def rest(every: float, took: float, *, answered: bool) -> float:
    """Seconds until the next look; one in vain may have waited long, and the store may be back any moment."""
    return max(every - took, took * REST if answered else min(took * REST, SELDOM_SECONDS))


class Lookout:
    """Keeps a view up to date, also while the store is away."""

    def __init__(self, app: Tidewheel, view: View, tenant: str | None = None) -> None:
        self._app = app
        self._view = view
        self._tenant = tenant
        self._meter = Meter()
        self._closer_took = SELDOM_SECONDS  # until it is known

    async def once(self) -> None:
        """Everything, once, and rates over a moment; raises what the store does."""
        self._see(await self._glance(), time.monotonic())
        await asyncio.sleep(min(self._view.every, 1.0))
        began = time.monotonic()
        glance, closer = await self._glance(), await self._closer_look()
        self._see(glance, began)
        self._see_closer(closer)

    async def run(self, news: Callable[[], None]) -> None:
        """Until cancelled; ``news`` is called whenever there is something else to show."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._repeat(self._look, self._view.every, news))
            both.create_task(self._repeat(self._look_closer, SELDOM_SECONDS, news))

    async def _repeat(
        self, look: Callable[[], Awaitable[None]], every: float, news: Callable[[], None]
    ) -> None:
        while True:
            began = time.monotonic()
            answered = await self._try(look, began)
            news()
            await asyncio.sleep(rest(every, time.monotonic() - began, answered=answered))

    async def _try(self, look: Callable[[], Awaitable[None]], began: float) -> bool:
        view = self._view
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await look()
        except (StoreError, TimeoutError) as error:
            if view.trouble is None:
                view.trouble_since = began
            view.trouble = str(error) or f"no answer within {ANSWER_SECONDS:g} s"
            return False
        view.trouble = None
        return True

    async def _look(self) -> None:
        """What is shown side by side is seen at one moment, as long as that costs little."""
        began = time.monotonic()
        glance = await self._glance()
        took = time.monotonic() - began
        closer = await self._closer_look() if self._closer_took * CHEAP <= self._view.every else None
        self._view.took_seconds = took
        self._see(glance, began)
        if closer is not None:
            self._see_closer(closer)

    async def _look_closer(self) -> None:
        """Unless each look does."""
        if time.monotonic() - self._view.closer_at >= SELDOM_SECONDS / 2:
            self._see_closer(await self._closer_look())

    async def _glance(self) -> Glance:
        return await take_glance(self._app, running=MOST_JOBS, tenant=self._tenant)

    def _see(self, glance: Glance, taken: float) -> None:
        view = self._view
        view.glance = glance
        view.seen_at = time.monotonic()
        rates = self._meter.measure(glance, taken)
        if rates is not None:
            view.rates = rates
            view.history.append(rates.overall["completed"])

    async def _closer_look(self) -> Closer:
        ask, began = self._app.questions, time.monotonic()
        closer = Closer(
            began,
            await self._app.workers() if self._tenant is None else (),
            await ask.failed(limit=MOST_FAILURES, tenant=self._tenant),
            await ask.attention(tenant=self._tenant),
        )
        self._closer_took = time.monotonic() - began
        return closer

    def _see_closer(self, closer: Closer) -> None:
        view = self._view
        view.closer_at, view.workers = closer.began, closer.workers
        view.failed, view.attention = closer.failed, closer.attention
