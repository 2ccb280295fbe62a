"""Any process that keeps a store open brings back jobs of the dead and removes old ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.patience import PATIENCE
from tests.telemetry.prometheus_text import scrape
from tidewheel import State, Tidewheel
from tidewheel.core.model import ClaimRequest, Lane, RescueResult
from tidewheel.telemetry.samples import format_prometheus
from tidewheel.worker import store_maintenance


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute is over in a moment."""
    monkeypatch.setattr(store_maintenance, "STORE_MAINTENANCE_SECONDS", 0.02)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.01)


async def test_a_program_that_only_pulls_removes_finished_jobs(url: str) -> None:
    """Retention holds without a worker: what is done goes, what waits stays."""
    async with Tidewheel(url, retention=0) as app:
        for _ in range(3):
            await app.queue.put("mail", b"1")
            await (await app.queue.reserve("mail", 10)).delete()
        await app.queue.put("mail", b"2")

        async def only_the_waiting_one() -> bool:
            return (await app.count()).total == 1

        await until(only_the_waiting_one)


async def test_a_program_that_only_enqueues_brings_back_jobs_of_the_dead(url: str) -> None:
    """A job whose lease has ended is pending again, though nobody claims."""
    async with Tidewheel(url) as app:
        job = await app.enqueue("mail")
        await app.store.claim(ClaimRequest("dead", (Lane("mail"),), 1, 0.01))

        async def back() -> bool:
            return (await job.refresh()).state is State.PENDING

        await until(back)


async def test_a_worker_removes_finished_jobs_of_its_app(url: str) -> None:
    """Also while it runs jobs; what the worker pruned is counted for metrics."""
    async with Tidewheel(url, metrics=True) as app:

        @app.task(retention=0)
        async def work() -> None: ...

        await work.enqueue_many([{}] * 3)
        await app.run_until_idle()

        metrics = app.telemetry.metrics
        assert metrics is not None

        async def counted() -> bool:
            return (
                scrape(format_prometheus(metrics.samples()))["tidewheel_jobs_pruned_total", "completed"] == 3
            )

        await until(counted)
        assert (await app.count()).total == 0


async def test_maintenance_outlives_a_bug(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One look that fails in a way nobody expected is logged, and the next one is made."""
    async with Tidewheel("memory://", retention=0) as app:
        rescue = app.store.rescue
        failures = 0

        async def fail_once() -> RescueResult:
            nonlocal failures
            if not failures:
                failures += 1
                raise ZeroDivisionError
            return await rescue()

        monkeypatch.setattr(app.store, "rescue", fail_once)
        await app.queue.put("mail", b"1")
        await (await app.queue.reserve("mail", 10)).delete()

        async def pruned() -> bool:
            return (await app.count()).total == 0

        await until(pruned)
    assert failures == 1
    assert "ZeroDivisionError" in caplog.text


async def test_maintenance_ends_with_the_app() -> None:
    """Nothing looks at a store that is closed."""
    async with Tidewheel("memory://") as app:
        await app.enqueue("mail")
    await asyncio.sleep(0.1)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tidewheel-maintenance"]
