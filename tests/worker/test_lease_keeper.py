"""The keeper, where a store or the event loop gets in its way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import until
from tests.worker.outages import Switch, working_on
from tidewheel import Context, Tidewheel
from tidewheel.core.model import ClaimRequest, Lane
from tidewheel.testing.clock import FrozenClock
from tidewheel.worker import lease_keeper
from tidewheel.worker.active_jobs import ActiveJob, ActiveJobs
from tidewheel.worker.backoff import RecoverySignal
from tidewheel.worker.stuck_handlers import StuckHandlers


@pytest.mark.parametrize(("open_seconds", "tries"), [(0.05, 2), (3600.0, 1)], ids=["tries", "hangs"])
async def test_a_store_that_cannot_be_opened_does_not_stop_the_watchdog(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch, open_seconds: float, tries: int
) -> None:
    """The keeper's own connection meets silence: handlers whose lease has ended are stopped all the same."""
    monkeypatch.setattr(lease_keeper, "OPEN_TIMEOUT_SECONDS", open_seconds)
    clock = FrozenClock()
    started, stopped = asyncio.Event(), asyncio.Event()
    with app.on_store("memory://", clock=clock):
        async with app:

            @app.task
            async def work() -> None:
                if started.is_set():
                    return
                started.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()

            switch = Switch()
            switch.silent = {"open"}
            await work.enqueue()
            async with working_on(app, switch, lease=10):
                await started.wait()
                await until(lambda: switch.unheard["open"] >= tries)
                clock.advance(10)
                await asyncio.wait_for(stopped.wait(), PATIENCE)


async def test_a_handler_whose_job_is_taken_back_is_stopped(app: Tidewheel) -> None:
    """The next extension is refused: the handler stops, and the job is run again with no attempt counted."""
    started = asyncio.Event()
    stopped = asyncio.Event()
    attempts: list[int] = []

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        if len(attempts) > 1:
            return
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    job = await work.enqueue()
    async with working_on(app, Switch(), lease=2):
        await started.wait()
        await app.take_back(job.id)
        await asyncio.wait_for(stopped.wait(), 60)
        await job.result(60)
    assert attempts == [1, 1]


class _Importing(ActiveJob):
    """A job whose start is taken back, to look for a process first, between two looks at it."""

    looks: int = 0

    @property  # type: ignore[misc] # where Held has a field
    def started(self) -> float | None:
        self.looks += 1
        return 0.0 if self.looks == 1 else None

    @started.setter
    def started(self, value: float | None) -> None:
        pass


async def test_a_start_that_is_taken_back_meanwhile_does_not_kill_the_keeper() -> None:
    """Whatever the event loop does while the keeper looks, the worker keeps its keeper."""
    async with Tidewheel("memory://") as app:

        @app.task
        async def work() -> None:
            pass

        await work.enqueue()
        [job] = (await app.store.claim(ClaimRequest("ada", (Lane("work", "work"),), 1, 60.0))).jobs
        unused: Any = None
        one = lease_keeper.LeaseKeeper(
            app.store, ActiveJobs(), app.clock, unused, unused, unused, unused, unused, RecoverySignal()
        )
        await one._store.open()
        held = _Importing.from_claim(0.0, job, work)
        await one._record_starts([held])
        assert held.start_recorded
        await one._store.close()


class _NoRegistrar:
    """For a keeper that keeps leases and nothing else."""

    started = False

    def start(self, _: object) -> None:
        self.started = True

    async def stop(self, _: object) -> None:
        pass


async def test_a_keeper_that_is_told_to_look_does_not_wait_for_its_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lease that is nearly over when the worker gets it is extended all the same."""
    monkeypatch.setattr(lease_keeper, "MAX_TICK_SECONDS", 60.0)
    monkeypatch.setattr(lease_keeper, "MIN_TICK_SECONDS", 60.0)
    clock = FrozenClock()
    unused: Any = None
    async with Tidewheel("memory://", clock=clock) as app:

        @app.task
        async def work() -> None:
            pass

        await work.enqueue()
        [job] = (await app.store.claim(ClaimRequest("ada", (Lane("work", "work"),), 1, 10.0))).jobs
        held = ActiveJobs()
        registrar: Any = _NoRegistrar()
        stuck = StuckHandlers("ada", 1, clock, unused)
        one = lease_keeper.LeaseKeeper(
            app.store, held, clock, unused, unused, unused, stuck, registrar, RecoverySignal()
        )
        running = asyncio.create_task(one.run())
        await until(lambda: registrar.started)
        for seconds in (9.0, 9.0):  # the second one tells whether it can be told again
            clock.advance(seconds)
            mine = ActiveJob.from_claim(clock.monotonic() - 9.0, job, work)
            mine.handler = running  # whichever: the job is at work
            held.add(mine)
            one.check_now()
            while mine.deadline <= clock.monotonic() + 9.0:
                await asyncio.sleep(0.005)
        one.stop()
        await running


async def test_a_question_about_long_leases_leaves_time_to_watch_short_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A store that does not answer is waited for no longer than the shortest lease allows."""
    waits: list[float] = []

    async def no_time(seconds: float, call: Any) -> Any:
        waits.append(seconds)
        return await call

    monkeypatch.setattr(lease_keeper, "with_store_timeout", no_time)
    clock = FrozenClock()
    unused: Any = None
    async with Tidewheel("memory://", clock=clock) as app:

        @app.task
        async def work() -> None:
            pass

        held = ActiveJobs()
        for lease in (60.0, 2.0):
            await work.enqueue()
            [job] = (await app.store.claim(ClaimRequest("ada", (Lane("work", "work"),), 1, lease))).jobs
            held.add(ActiveJob.from_claim(clock.monotonic(), job, work))
        one = lease_keeper.LeaseKeeper(
            app.store, held, clock, unused, unused, unused, unused, unused, RecoverySignal()
        )
        await one._store.open()
        long, short = held.snapshot()
        long.extend_at, long.settling = clock.monotonic(), True
        await one._extend([long, short])
        assert waits == [0.5]
        await one._store.close()
