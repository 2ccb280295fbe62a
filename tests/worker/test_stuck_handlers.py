"""Handlers that were told to stop and go on: what they cost, what is said of them, what comes of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.worker.conftest import URLS
from tests.worker.helpers import state_is, until, working
from tidewheel import Context, Retry, Tidewheel, WorkerStuck
from tidewheel.worker import Worker, heartbeat, stuck_handlers
from tidewheel.worker.supervisor import WorkerSupervisor


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has been told is stuck after a moment."""
    monkeypatch.setattr(stuck_handlers, "STUCK_AFTER_SECONDS", 0.2)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What stuck handlers wait for; set at the end, so that none is left."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(params=URLS)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tidewheel]:
    """With short grace and lease."""
    async with Tidewheel(
        URLS[request.param](tmp_path), lease=2, poll_interval=0.05, shutdown_grace=10
    ) as app:
        yield app


def _tasks(app: Tidewheel, release: threading.Event) -> tuple[Any, Any]:
    @app.task(timeout=0.05, max_attempts=1)
    def sticks() -> None:
        release.wait(60)

    @app.task
    async def fine(number: int) -> int:
        return number

    return sticks, fine


async def test_a_worker_with_a_stuck_slot_is_degraded_and_says_so_once(
    app: Tidewheel,
    release: threading.Event,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In its log and on the list of workers; healthy again when the function has returned after all."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.2)
    sticks, fine = _tasks(app, release)
    caplog.set_level(logging.INFO, "tidewheel.worker")
    await sticks.enqueue()
    async with working(app, concurrency=4) as worker:
        await until(lambda: worker.stuck == 1)

        async def listed() -> bool:
            return any(one.degraded and one.stuck == 1 for one in await app.workers())

        await until(listed)
        assert await (await fine.enqueue(number=1)).result(timeout=PATIENCE) == 1, "the other slots work"
        release.set()
        await until(lambda: worker.stuck == 0)
    said = [r.getMessage() for r in caplog.records if "degraded" in r.getMessage()]
    assert len(said) == 2, said
    assert "1 of its 4 slots" in said[0]
    assert "no longer degraded" in said[1]


async def test_a_worker_half_of_whose_slots_are_stuck_drains_and_ends(
    app: Tidewheel, release: threading.Event
) -> None:
    """Running healthy handlers finish first; nothing is left leased; who runs it is told by an exception."""
    sticks, fine = _tasks(app, release)
    go_on = asyncio.Event()
    started = asyncio.Event()

    @app.task
    async def healthy() -> str:
        started.set()
        await go_on.wait()
        return "finished"

    worker = app.worker(handle_signals=False, concurrency=4)
    running = asyncio.create_task(worker.run())
    job = await healthy.enqueue()
    await started.wait()
    stuck_jobs = await sticks.enqueue_many([{}] * 2)
    await until(lambda: worker.health().status == "making way")
    later = await fine.enqueue(number=1)
    await asyncio.sleep(0.2)
    assert not running.done(), "a handler that is well has its grace period"
    go_on.set()
    with pytest.raises(WorkerStuck, match="2 of its 4 slots"):
        await asyncio.wait_for(running, PATIENCE)
    assert await state_is(job, "completed")
    for one in stuck_jobs:
        assert await state_is(one, "failed")
    assert await state_is(later, "pending")
    assert await app.workers() == []


async def test_a_fresh_worker_takes_over_and_nothing_is_lost(
    app: Tidewheel, release: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """``run_worker`` inside another program goes on with new slots, and under its name if it has one."""
    sticks, fine = _tasks(app, release)
    running = asyncio.create_task(app.run_worker(concurrency=2, name="ada", handle_signals=False))
    for round_number in range(3):
        job = await sticks.enqueue()
        await until(lambda job=job: state_is(job, "failed"))  # type: ignore[misc]
        jobs = await fine.enqueue_many([{"number": n} for n in range(5)])
        results = [await one.result(timeout=PATIENCE) for one in jobs]
        assert results == list(range(5)), round_number
        await until(lambda: caplog.text.count("takes over from ada") == round_number + 1)  # noqa: B023
    running.cancel()
    await asyncio.wait((running,))


async def test_a_program_is_not_filled_with_stuck_threads_for_ever(
    app: Tidewheel, release: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """After so many left behind no fresh worker is made: who runs them hears of it."""
    sticks, _ = _tasks(app, release)
    made: list[Worker] = []

    def make() -> Worker:
        made.append(app.worker(handle_signals=False, concurrency=1))
        return made[-1]

    workers = WorkerSupervisor(make, most_left_behind=2)
    await sticks.enqueue_many([{}] * 5)
    with pytest.raises(WorkerStuck):
        await asyncio.wait_for(workers.run(), PATIENCE)
    assert len(made) == 3
    assert workers.has_stuck_handlers
    assert "no fresh worker takes over: 3 before it are stuck" in caplog.text
    assert (await app.stats()).pending == 2
    release.set()
    await until(lambda: not workers.has_stuck_handlers)


async def test_those_whose_handlers_have_ended_do_not_count_as_left_behind(app: Tidewheel) -> None:
    """A program may live through any number of them, as long as not too many are stuck at a time."""
    turns = [threading.Event() for _ in range(4)]

    @app.task(timeout=0.05, max_attempts=1)
    def sticks(turn: int) -> None:
        turns[turn].wait(60)

    made: list[Worker] = []

    def make() -> Worker:
        for turn in turns[: len(made)]:
            turn.set()
        made.append(app.worker(handle_signals=False, concurrency=1))
        return made[-1]

    workers = WorkerSupervisor(make, most_left_behind=1)
    running = asyncio.create_task(workers.run())
    for turn in range(4):
        job = await sticks.enqueue(turn=turn)
        await until(lambda job=job: state_is(job, "failed"))  # type: ignore[misc]
        await until(lambda turn=turn: len(made) == turn + 2)  # type: ignore[misc]
        turns[turn].set()
        await until(lambda turn=turn: not made[turn].lingers)  # type: ignore[misc]
    workers.stop()
    await asyncio.wait_for(running, PATIENCE)


async def test_run_until_idle_returns_whatever_its_handlers_do(
    app: Tidewheel, release: threading.Event
) -> None:
    """With every slot stuck the rest is run by a fresh worker, and counted."""
    sticks, fine = _tasks(app, release)
    await sticks.enqueue_many([{}] * 3)
    jobs = await fine.enqueue_many([{"number": n} for n in range(10)])
    assert await asyncio.wait_for(app.run_until_idle(concurrency=2), PATIENCE) == 13
    for job in jobs:
        assert await state_is(job, "completed")


async def test_a_worker_thread_goes_on_with_a_fresh_worker(app: Tidewheel, release: threading.Event) -> None:
    """Inside a web server, say, where nobody can restart the process for it."""
    sticks, fine = _tasks(app, release)
    async with app.worker_thread(concurrency=1):
        for _ in range(2):
            job = await sticks.enqueue()
            await until(lambda job=job: state_is(job, "failed"))  # type: ignore[misc]
            assert await (await fine.enqueue(number=7)).result(timeout=PATIENCE) == 7


# -- async handlers -----------------------------------------------------------------------------------------


async def test_an_async_handler_that_ignores_everything_is_given_up(
    app: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """After a lease its job ends as its stop says, its slot is free, and it is never resumed."""
    resumed = 0

    @app.task(timeout=0.05, max_attempts=2, retry=Retry.fixed(1000))
    async def swallows() -> None:
        nonlocal resumed
        while True:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass
            resumed += 1

    @app.task
    async def fine() -> str:
        return "ran"

    job = await swallows.enqueue()
    async with working(app, concurrency=3) as worker:
        await until(lambda: "is given up" in caplog.text)
        await until(lambda: not worker.lingers)
        before = resumed
        assert await (await fine.enqueue()).result(timeout=PATIENCE) == "ran"
        await asyncio.sleep(0.05)
        assert resumed == before
    await job.refresh()
    assert (job.shown_state, job.error and job.error.code, job.attempt) == ("retrying", "job_timeout", 1)
    assert "its handler does not end; it is given up" in caplog.text


async def test_an_async_handler_whose_parts_ignore_it_keeps_its_slot(app: Tidewheel) -> None:
    """Cancelling reaches the innermost task only: the job ends all the same, and the slot shows as stuck."""
    release = asyncio.Event()

    async def inner() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass

    @app.task(timeout=0.05, max_attempts=1)
    async def outer() -> None:
        await asyncio.ensure_future(inner())

    job = await outer.enqueue()
    async with working(app, concurrency=3) as worker:
        await until(lambda: state_is(job, "failed"))
        assert job.error is not None
        assert job.error.code == "job_timeout"
        assert worker.stuck == 1
        release.set()
        await until(lambda: worker.stuck == 0)


async def test_a_handler_may_take_its_time_to_clean_up(app: Tidewheel) -> None:
    """Within a lease nothing is taken from it: the job ends when its handler has."""
    begun = asyncio.Event()
    cleaned = asyncio.Event()

    @app.task
    async def tidy() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1.0)
            cleaned.set()

    job = await tidy.enqueue()
    async with working(app, concurrency=3):
        await begun.wait()
        await job.cancel()
        await asyncio.sleep(0.3)
        assert await state_is(job, "running")
        await until(lambda: state_is(job, "cancelled"))
        assert cleaned.is_set()


async def test_a_job_that_ran_out_of_time_is_not_given_back_uncounted_at_a_shutdown(app: Tidewheel) -> None:
    """Or a handler that ignores its timeout would be run again and again by one worker after the other."""
    told = asyncio.Event()
    release = asyncio.Event()

    @app.task(timeout=0.05, max_attempts=1)
    async def ignores(ctx: Context) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                told.set()

    job = await ignores.enqueue()
    worker = app.worker(handle_signals=False, concurrency=3)
    running = asyncio.create_task(worker.run())
    await told.wait()
    worker.stop(now=True)
    await asyncio.wait_for(running, PATIENCE)
    assert await state_is(job, "failed")
    release.set()


async def test_stuck_handlers_do_not_use_up_the_grace_period(app: Tidewheel) -> None:
    """A stop waits for those that may still end, not for those that have shown they will not."""
    release = asyncio.Event()

    @app.task(timeout=0.05, max_attempts=1)
    async def ignores() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass

    await ignores.enqueue()
    app.settings = replace(app.settings, shutdown_grace=10 * PATIENCE)
    worker = app.worker(handle_signals=False, concurrency=3, lease=60)
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.stuck == 1)
    worker.stop()
    await asyncio.wait_for(running, PATIENCE)
    release.set()
