"""How often a worker asks its store, when nobody tells it to."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import until, working
from tidewheel import StoreUnavailable, Tidewheel
from tidewheel.core.model import Claim, ClaimRequest
from tidewheel.settings import Settings
from tidewheel.stores.protocol import Wakeups


class Claims:
    """Every claim of a store that has nothing to do, by the moment it came; the first ones may fail."""

    def __init__(self, app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.moments: list[float] = []
        self.failing = False
        claim: Callable[[ClaimRequest], asyncio.Future[Claim]] = app.store.claim  # type: ignore[assignment]

        async def counted(request: ClaimRequest) -> Claim:
            self.moments.append(asyncio.get_running_loop().time())
            if self.failing:
                raise StoreUnavailable("gone")
            return await claim(request)

        monkeypatch.setattr(app.store, "claim", counted)

    @property
    def pauses(self) -> list[float]:
        return [after - before for before, after in itertools.pairwise(self.moments)]


@asynccontextmanager
async def idle(poll_interval: float) -> AsyncIterator[Tidewheel]:
    async with Tidewheel("memory://", poll_interval=poll_interval) as app:

        @app.task
        async def work() -> None: ...

        yield app


async def test_an_idle_worker_asks_once_in_each_poll_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never much more often, and never in step with others; once a second unless told."""
    assert Settings().poll_interval == 1.0
    async with idle(0.1) as app:
        claims = Claims(app, monkeypatch)
        async with working(app):
            await until(lambda: len(claims.moments) >= 8)
    assert min(claims.pauses) >= 0.075 - 0.005  # the event loop's own clock may be a little early
    assert len({round(pause, 4) for pause in claims.pauses}) > 1


async def test_a_hint_is_not_waited_for_until_the_next_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll is what is left when wake-ups fail; with them a job starts at once."""
    async with idle(60) as app:
        claims = Claims(app, monkeypatch)
        async with working(app):
            await until(lambda: bool(claims.moments))
            job = await app.enqueue("work", {})
            await job.result(timeout=PATIENCE)


async def test_a_job_is_found_by_the_poll_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every wake-up lost, a job starts within a poll interval."""

    async def deaf(self: Wakeups, timeout: float) -> None:
        await asyncio.sleep(timeout)

    async with idle(0.1) as app:
        async with app.store.wakeups(topics=("work",)) as wakeups:
            monkeypatch.setattr(type(wakeups), "wait", deaf)
        async with working(app):
            job = await app.enqueue("work", {})
            await job.result(timeout=PATIENCE)


async def test_a_store_that_fails_is_asked_less_and_less_and_then_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Errors of the store, not of jobs, make the pauses grow; the first answer ends that."""
    async with idle(0.05) as app:
        claims = Claims(app, monkeypatch)
        claims.failing = True
        async with working(app):
            await until(lambda: len(claims.moments) >= 5)  # pauses of up to 0.1, 0.2, 0.4, 0.8 s
            growing = claims.pauses[:4]
            claims.failing = False
            await until(lambda: len(claims.moments) >= 9)
    assert growing[3] > growing[0]
    assert growing[3] >= 0.4 - 0.05
    assert min(claims.pauses[5:]) < growing[3] / 2
