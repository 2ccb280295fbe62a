"""A worker whose connections have died without a word, and one that is cut off from its database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.faults.sites import starts_recorded
from tests.patience import PATIENCE
from tests.stores.postgres.proxy import Proxy
from tests.worker.helpers import until, working
from tidewheel import Context, Tidewheel
from tidewheel.stores.postgres import database, wakeups
from tidewheel.worker import worker as worker_module
from tidewheel.worker.worker import Worker

LEASE = 2.0
MOST = 12
"""Connections of the worker."""
ANSWER_SECONDS = 1.0
"""What ten seconds are in real life: how long a worker waits for the answer to a claim."""
STATEMENT_SECONDS = 1.5
"""What half a minute is in real life: how long anybody waits for the answer to a statement."""


class Scene:
    """A worker behind a proxy, a producer with a connection of its own, and what the handlers did."""

    def __init__(self, app: Tidewheel, proxy: Proxy, worker: Worker) -> None:
        self.app = app
        self.proxy = proxy
        self.worker = worker
        self.runs: list[tuple[int, str]] = []
        self.gate = asyncio.Event()


@asynccontextmanager
async def scene(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(worker_module, "CLAIM_TIMEOUT_SECONDS", ANSWER_SECONDS)
    monkeypatch.setattr(database, "STATEMENT_SECONDS", STATEMENT_SECONDS)
    monkeypatch.setattr(database, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(wakeups, "PROBE_SECONDS", 0.5)
    monkeypatch.setattr(wakeups, "START_SECONDS", 0.5)
    async with (
        Tidewheel(url) as app,
        Proxy(url) as proxy,
        Tidewheel(f"{proxy.url}&connections={MOST}", lease=LEASE, poll_interval=0.2) as behind,
    ):

        @behind.task(max_attempts=5)
        async def work(ctx: Context, n: int, wait: bool = False) -> int:
            here.runs.append((n, "start"))
            if wait:
                await here.gate.wait()
            here.runs.append((n, "end"))
            return ctx.attempt

        async with working(behind, concurrency=20) as worker:
            here = Scene(app, proxy, worker)
            yield here


async def run(here: Scene, numbers: range) -> list[Any]:
    """What attempt each of these jobs needed, once all are completed."""
    jobs = await here.app.enqueue_many("work", [{"n": n} for n in numbers])
    return [await job.result(timeout=60) for job in jobs]


async def test_a_worker_whose_connections_are_all_half_open_soon_works_on_new_ones(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One wait for an answer, however many connections there were: what one has found out holds for all."""
    async with scene(postgres_url, monkeypatch) as here:
        # Several in the pool of the worker: what it does at once it does on different ones.
        assert await run(here, range(50)) == [1] * 50
        await asyncio.gather(*(here.worker._store.now() for _ in range(MOST)))
        silent = here.proxy.half_open()
        assert silent >= MOST
        began = time.monotonic()
        assert await run(here, range(50, 60)) == [1] * 10
        seconds = time.monotonic() - began
        assert seconds < silent * STATEMENT_SECONDS, "one wait for each of them"
        await until(lambda: here.worker.tally.completed == 60)
        assert here.worker.tally.lost == 0


async def test_running_jobs_survive_connections_that_are_half_open(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keeper gives its own up in a fraction of the lease, so nobody else gets the jobs."""
    async with scene(postgres_url, monkeypatch) as here:
        jobs = await here.app.enqueue_many("work", [{"n": n, "wait": True} for n in range(5)])
        await until(lambda: len(here.runs) == 5)
        await asyncio.sleep(LEASE / 2)  # extended once, on a connection that is about to die
        here.proxy.half_open()
        await asyncio.sleep(LEASE)
        here.gate.set()
        assert [await job.result(timeout=PATIENCE) for job in jobs] == [1] * 5
        assert here.worker.tally.lost == 0
    assert len(here.runs) == 10


@pytest.mark.parametrize("seconds", [3.0, pytest.param(60.0, marks=pytest.mark.long)])
async def test_a_worker_that_was_cut_off_works_again_by_itself(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Longer than the lease: what it ran has been done by another, and what it says of that is refused."""
    async with scene(postgres_url, monkeypatch) as here:
        jobs = await here.app.enqueue_many("work", [{"n": n, "wait": True} for n in range(5)])
        await starts_recorded(jobs)
        here.proxy.blackhole()
        here.proxy.cut()
        cut_off = time.monotonic()

        @here.app.task(name="work", max_attempts=5)
        async def work(ctx: Context, n: int, wait: bool = False) -> int:
            return ctx.attempt

        async with working(here.app):
            assert [await job.result(timeout=PATIENCE) for job in jobs] == [1] * 5
        await asyncio.sleep(max(0.0, cut_off + seconds - time.monotonic()))
        await until(lambda: here.worker.tally.lost == 5)  # it stopped them itself, without being told
        here.proxy.restore()
        assert await run(here, range(100, 110)) == [1] * 10
        assert (await here.app.stats()).completed == 15
    assert [run for run in here.runs if run[1] == "end" and run[0] < 100] == []
