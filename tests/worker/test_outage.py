"""The store is away: no worker ends for it, and what was finished is settled when it is back (Q22)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import state_is, until
from tests.worker.outages import Switch, working_on
from tidewheel import Context, Job, Tidewheel
from tidewheel.testing.clock import FrozenClock
from tidewheel.worker import backoff, heartbeat, worker


async def test_results_finished_during_an_outage_are_settled_afterwards(app: Tidewheel) -> None:
    """Every handler runs once, however the outage falls."""
    runs: Counter[int] = Counter()
    go_on = asyncio.Event()

    @app.task
    async def work(n: int) -> int:
        runs[n] += 1
        if n < 5:
            await go_on.wait()
        return n

    switch = Switch()
    jobs = await work.enqueue_many([{"n": n} for n in range(10)])
    async with working_on(app, switch, concurrency=5, lease=60) as running:
        await until(lambda: len(runs) == 5)
        switch.down = True
        go_on.set()
        await until(lambda: switch.refused["settle"] > 0 and switch.refused["claim"] > 0)
        states = [record.state for record in (await app.jobs(state="running")).items]
        assert len(states) >= 5, "finished here, but nobody could be told"
        switch.down = False
        assert [await job.result(timeout=PATIENCE) for job in jobs] == list(range(10))
        assert running.tally.lost == 0
    assert set(runs.values()) == {1}


async def test_an_outage_longer_than_the_lease_runs_finished_jobs_again(app: Tidewheel) -> None:
    """By then others may have taken them, so the store refuses: at least once. Each runs once more."""
    clock = FrozenClock()
    runs: Counter[int] = Counter()
    seen: dict[int, list[int]] = {}
    go_on = asyncio.Event()
    with app.on_store("memory://", clock=clock):
        async with app:

            @app.task(max_attempts=3)
            async def work(ctx: Context, n: int) -> int:
                runs[n] += 1
                seen.setdefault(n, []).append(ctx.attempt)
                await go_on.wait()
                return n

            switch = Switch()
            jobs = await work.enqueue_many([{"n": n} for n in range(5)])
            async with working_on(app, switch, lease=10) as running:
                await until(lambda: len(runs) == 5)
                switch.down = True
                go_on.set()
                await until(lambda: switch.refused["settle"] > 0)
                clock.advance(10)
                switch.down = False
                assert [await job.result(timeout=PATIENCE) for job in jobs] == list(range(5))
                assert running.tally.lost == 5
            assert set(runs.values()) == {2}
            # Their start had not been recorded, and they were not alone: the lost runs are not counted.
            assert set(map(tuple, seen.values())) == {(1, 1)}


async def test_handlers_at_work_lose_their_jobs_when_the_lease_ends_in_an_outage(app: Tidewheel) -> None:
    """Nobody can know whether another worker has them by then, so they are stopped, and run again."""
    clock = FrozenClock()
    ended: list[str] = []
    stuck = asyncio.Event()
    with app.on_store("memory://", clock=clock):
        async with app:

            @app.task
            async def work() -> str:
                if ended:
                    return "the second time"
                stuck.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("stopped")
                return "never"

            switch = Switch()
            job = await work.enqueue()
            async with working_on(app, switch, lease=10):
                await stuck.wait()
                switch.down = True
                clock.advance(10)
                await until(lambda: ended == ["stopped"])
                switch.down = False
                assert await job.result(timeout=PATIENCE) == "the second time"


async def test_a_worker_may_start_during_an_outage(app: Tidewheel) -> None:
    """Also what it only does at its start, like subscribing to wake-ups, is tried until it works."""

    @app.task
    async def work() -> str:
        return "done"

    switch = Switch()
    switch.down = True
    job = await work.enqueue()
    async with working_on(app, switch):
        await until(lambda: switch.refused["wakeups"] > 1 and switch.refused["open"] > 1)
        switch.down = False
        assert await job.result(timeout=PATIENCE) == "done"


async def test_the_first_part_to_get_through_wakes_the_others(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After half an hour without a database nobody waits another half minute for each part to find out."""
    monkeypatch.setattr(backoff, "INITIAL_DELAY_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr(backoff, "MAX_DELAY_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.1)
    go_on = asyncio.Event()

    @app.task
    async def work(wait: bool) -> str:
        if wait:
            await go_on.wait()
        return "done"

    switch = Switch()
    async with working_on(app, switch, lease=3600, name="ada"):
        first = await work.enqueue(wait=True)
        await until(lambda: state_is(first, "running"))
        await until(lambda: _listed(app, "ada"))
        switch.down = True
        go_on.set()
        second = await work.enqueue(wait=False)
        await until(lambda: {"settle", "claim", "rescue", "heartbeat"} <= set(switch.refused))
        switch.down = False
        assert await first.result(timeout=PATIENCE) == "done"
        assert await second.result(timeout=PATIENCE) == "done"


async def test_a_part_that_keeps_failing_alone_is_neither_loud_nor_quick(
    app: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """Claims go on while nothing can be settled (a full disk, say); one line says so, and tries get rarer."""

    @app.task
    async def work() -> str:
        return "kept"

    switch = Switch()
    switch.only = {"settle"}
    switch.down = True
    caplog.set_level(logging.WARNING, "tidewheel")
    async with working_on(app, switch) as running:
        jobs = [await work.enqueue() for _ in range(3)]
        await until(lambda: switch.refused["settle"] >= 3)
        assert caplog.text.count("settling finished jobs failed") == 1
        assert "claiming" not in caplog.text
        switch.down = False
        for job in jobs:
            assert await job.result(timeout=PATIENCE) == "kept"
    assert running.tally.completed == 3
    assert caplog.text.count("settling finished jobs works again after") == 1


async def test_a_checkpoint_waits_for_the_store_and_progress_does_not(app: Tidewheel) -> None:
    """Progress is a courtesy, and its loss no reason to fail; a checkpoint that was saved is saved."""
    began, reported = asyncio.Event(), asyncio.Event()
    switch = Switch()

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> str:
        await ctx.checkpoint({"page": 1})
        switch.down = True
        began.set()
        await ctx.progress(50)
        reported.set()
        await ctx.checkpoint({"page": 2})
        assert not switch.down
        return "done"

    async with working_on(app, switch, lease=60):
        job = await work.enqueue()
        await began.wait()
        await asyncio.wait_for(reported.wait(), PATIENCE)
        await until(lambda: switch.refused["report"] >= 3)
        assert (await app.get(job.id)).checkpoint == {"page": 1}
        switch.down = False
        assert await job.result(timeout=PATIENCE) == "done"
        assert (await app.get(job.id)).checkpoint == {"page": 2}


async def test_a_function_on_a_thread_waits_with_its_checkpoint_too(app: Tidewheel) -> None:
    """And is let go when its job is cancelled meanwhile."""
    switch = Switch()
    waiting, errors = threading.Event(), []

    @app.task(max_attempts=1)
    def work(ctx: Context) -> None:
        switch.only, switch.down = {"report"}, True
        waiting.set()
        try:
            ctx.sync.checkpoint({"page": 1})
        except Exception as error:
            errors.append(type(error).__name__)
            raise

    async with working_on(app, switch, lease=60):
        job = await work.enqueue()
        await until(lambda: waiting.is_set() and switch.refused["report"] > 1)
        await job.cancel()
        await until(lambda: state_is(job, "cancelled"))
        await until(lambda: errors == ["LeaseLost"])


async def test_the_start_of_a_last_attempt_is_recorded_once_the_store_is_back(app: Tidewheel) -> None:
    """Until then its handler does not run: a crash now could repeat it for ever."""
    ran: list[int] = []

    @app.task(max_attempts=1)
    async def work() -> None:
        ran.append(1)

    switch = Switch()
    switch.only, switch.down = {"mark_started"}, True
    async with working_on(app, switch, lease=60):
        job = await work.enqueue()
        await until(lambda: switch.refused["mark_started"] > 1)
        assert not ran
        switch.down = False
        await job.result(timeout=PATIENCE)
    assert ran == [1]


async def test_a_worker_can_be_stopped_during_an_outage(
    app: Tidewheel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what it could not write, and those jobs run again when their leases end."""
    monkeypatch.setattr(worker, "SETTLE_GRACE_SECONDS", 0.2)
    monkeypatch.setattr(heartbeat, "FIRST_HEARTBEAT_SECONDS", 0.0)
    go_on = asyncio.Event()

    @app.task
    async def work() -> str:
        await go_on.wait()
        return "done"

    switch = Switch()
    jobs: list[Job[str]] = []
    async with working_on(app, switch, name="ada") as running:
        jobs.append(await work.enqueue())
        await until(lambda: state_is(jobs[0], "running"))
        await until(lambda: _listed(app, "ada"))
        switch.down = True
        go_on.set()
        await until(lambda: switch.refused["settle"] > 0)
        running.stop()
    assert "1 outcomes could not be written before the worker ended" in caplog.text
    assert "worker ada stays listed until it is forgotten" in caplog.text
    assert await state_is(jobs[0], "running")
    assert [one.name for one in await app.workers()] == ["ada"]
    async with working_on(app, Switch()):
        assert await jobs[0].result(timeout=PATIENCE) == "done"


async def _listed(app: Tidewheel, name: str) -> bool:
    return any(one.name == name for one in await app.workers())
