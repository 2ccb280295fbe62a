"""Timeouts and cancellations that come at an awkward moment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.servers.shared import empty_url
from tests.worker.cancellation_latency import measure_beside
from tests.worker.helpers import state_is, until, working
from tests.worker.worker_processes import Site
from tidewheel import Context, Job, JobCancelled, LeaseLost, Retry, Tidewheel, WrongState


async def test_a_job_that_waits_for_a_slot_is_cancelled_without_waiting_for_it(app: Tidewheel) -> None:
    """Claimed by a worker, behind a handler that takes its time: it ends within a second and never runs."""
    started, go_on = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    @app.task
    async def long() -> None:
        started.set()
        await go_on.wait()

    @app.task
    async def short(number: int) -> None:
        ran.append(number)

    async with working(app, concurrency=1, prefetch=10, lease=60):
        first = await long.enqueue()
        await started.wait()
        waiting = await short.enqueue_many([{"number": n} for n in range(3)])
        await until(lambda: _claimed(waiting))
        assert await app.cancel(waiting[1].id) is False, "a worker has it"
        with pytest.raises(JobCancelled):
            await waiting[1].result(timeout=PATIENCE)
        assert not go_on.is_set()
        go_on.set()
        await first.result(timeout=PATIENCE)
        for job in (waiting[0], waiting[2]):
            await job.result(timeout=PATIENCE)
    assert ran == [0, 2]
    await waiting[1].refresh()
    assert waiting[1].error is not None
    assert waiting[1].error.code == "job_canceled"


async def _claimed(jobs: list[Job[Any]]) -> bool:
    return all([(await job.refresh()).shown_state == "claimed" for job in jobs])


async def test_a_last_attempt_that_is_cancelled_is_cancelled_and_has_not_failed(app: Tidewheel) -> None:
    """What was asked for counts, not how many attempts are left."""
    started = asyncio.Event()

    @app.task(max_attempts=2, retry=Retry.fixed(0))
    async def work(ctx: Context) -> None:
        if not ctx.last_attempt:
            raise ValueError("once")
        started.set()
        await asyncio.sleep(3600)

    job = await work.enqueue()
    async with working(app):
        await started.wait()
        await app.cancel(job.id)
        await until(lambda: state_is(job, "cancelled"))
    assert (job.attempt, job.error and job.error.code) == (2, "job_canceled")


async def test_an_error_while_a_cancelled_handler_cleans_up_does_not_make_it_a_failure(
    app: Tidewheel,
) -> None:
    """It was told to stop, and it has."""
    started = asyncio.Event()

    @app.task(max_attempts=1)
    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        finally:
            raise ValueError("while cleaning up")

    job = await work.enqueue()
    async with working(app):
        await started.wait()
        await app.cancel(job.id)
        await until(lambda: state_is(job, "cancelled"))


async def test_a_handler_that_goes_on_after_its_cancellation_and_returns_has_finished(app: Tidewheel) -> None:
    """Cancelling is a request; a timeout is not, see ``test_outcomes``."""
    started = asyncio.Event()

    @app.task
    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
        return "done all the same"

    job = await stubborn.enqueue()
    async with working(app):
        await started.wait()
        await app.cancel(job.id)
        assert await job.result(timeout=PATIENCE) == "done all the same"


async def test_ends_that_meet_agree_on_one(app: Tidewheel) -> None:
    """Completions, timeouts and cancellations at the same moments: a job is completed if and only if its
    handler ran to its end, and nothing is left running.
    """
    numbers = random.Random(7)
    finished: set[str] = set()

    @app.task(max_attempts=1)
    async def work(ctx: Context, seconds: float) -> None:
        await asyncio.sleep(seconds)
        finished.add(str(ctx.job.id))

    jobs: list[Job[Any]] = []
    for _ in range(120):
        seconds = numbers.uniform(0.0, 0.8)
        near = max(0.001, seconds + numbers.uniform(-0.01, 0.01))
        timeout = near if numbers.random() < 0.5 else 60.0
        jobs.append(await work.options(timeout=timeout).enqueue(seconds=seconds))
    async with working(app, concurrency=40):
        active = jobs
        while active:  # cancelled first, looked at later: on a busy machine looking takes longer than they do
            for job in numbers.sample(active, min(2, len(active))):
                with contextlib.suppress(WrongState):  # it has ended meanwhile
                    await app.cancel(job.id)
            await asyncio.sleep(0.02)
            active = [job for job in active if not (await job.refresh()).state.final]
    states = {str(job.id): str(job.state) for job in jobs}
    assert {job_id for job_id, state in states.items() if state == "completed"} == finished
    assert set(states.values()) == {"completed", "failed", "cancelled"}, "they did meet"
    for job in jobs:
        if job.state == "failed":
            assert job.error is not None
            assert job.error.code == "job_timeout"


async def test_a_function_on_a_thread_that_ignores_its_cancellation_is_fenced(app: Tidewheel) -> None:
    """The job ends at once; what the function still says or returns changes nothing."""
    begun, release, refused = threading.Event(), threading.Event(), threading.Event()

    @app.task
    def ignores(ctx: Context) -> str:
        begun.set()
        release.wait(60)
        try:
            ctx.sync.progress(99)
        except LeaseLost:
            refused.set()
        return "too late"

    job = await ignores.enqueue()
    async with working(app, concurrency=4):
        await until(begun.is_set)
        await app.cancel(job.id)
        await until(lambda: state_is(job, "cancelled"))
        release.set()
        await until(refused.is_set)
    await job.refresh()
    assert (job.state, job.progress) == ("cancelled", None)


@pytest.mark.skipif(os.name != "posix", reason="the worker is stopped by a signal")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_cancellation_does_not_wait_until_the_lease_is_extended(store: str, tmp_path: Path) -> None:
    """For a worker in another process: an async handler, a function that ignores it and a process.
    ``python -m tests.worker.cancellation_latency`` has the figures.
    """
    url = empty_url() if store == "postgres" else None
    site = Site(tmp_path, lease=60.0, store_url=url, program="tests.worker.cancellable_worker")
    times = await measure_beside(site, ["waits", "ignores", "isolated"], 3)
    for task, one in times.items():
        assert one.percentile(0.5) < site.lease / 3, (task, one.seconds)
