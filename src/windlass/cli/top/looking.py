"""Looks at the store again and again, at a pace that neither it nor this machine feels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from windlass.app import Windlass
from windlass.cli.top.rates import Meter
from windlass.cli.top.view import View
from windlass.errors import StoreError
from windlass.glance import Glance, take_glance

MOST_JOBS: Final = 60
"""Running jobs that are asked for; a screen has no room for more."""
MOST_FAILURES: Final = 40
SELDOM_SECONDS: Final = 5.0
"""How often what changes slowly, and costs more, is looked at: failures by error, attention, workers."""
REST: Final = 4.0
"""After a look as many times as long as it took is rested at least: a slow store is not made slower."""
ANSWER_SECONDS: Final = 10.0
"""After so long without an answer the store counts as away, and is asked again."""


class Lookout:
    """Keeps a view up to date, also while the store is away."""

    def __init__(self, app: Windlass, view: View, tenant: str | None = None) -> None:
        self._app = app
        self._view = view
        self._tenant = tenant
        self._meter = Meter()

    async def once(self) -> None:
        """Everything, once, and rates over a moment; raises what the store does."""
        self._see(await self._glance(), time.monotonic())
        await asyncio.sleep(min(self._view.every, 1.0))
        self._see(await self._glance(), time.monotonic())
        await self._look_closer()

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
            await self._try(look, began)
            news()
            took = time.monotonic() - began
            await asyncio.sleep(max(every - took, took * REST))

    async def _try(self, look: Callable[[], Awaitable[None]], began: float) -> None:
        view = self._view
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await look()
        except (StoreError, TimeoutError) as error:
            if view.trouble is None:
                view.trouble_since = began
            view.trouble = str(error) or f"no answer within {ANSWER_SECONDS:g} s"
        else:
            view.trouble = None

    async def _look(self) -> None:
        began = time.monotonic()
        glance = await self._glance()
        self._view.took_seconds = time.monotonic() - began
        self._see(glance, began)

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

    async def _look_closer(self) -> None:
        ask, view = self._app.questions, self._view
        if self._tenant is None:
            view.workers = await self._app.workers()
        view.failed = await ask.failed(limit=MOST_FAILURES, tenant=self._tenant)
        view.attention = await ask.attention(tenant=self._tenant)
