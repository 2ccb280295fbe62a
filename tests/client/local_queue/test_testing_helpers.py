"""Users' tests: non-durable jobs in memory, by a frozen clock, inline, and nothing left for the next test."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.client.local_queue.test_local_queue import Thing, until
from tests.client.local_queue.test_shutdown import lane_threads
from tests.patience import PATIENCE
from tidewheel import Backpressure, JobFailed, JobNotFound, Retry, Tidewheel, WrongState
from tidewheel.testing import FrozenClock, in_memory, inline

app = Tidewheel("sqlite:////nowhere/that/exists.db", lane_capacity=20)

done: list[Any] = []


@app.task(durable=False)
async def work(thing: Any) -> Any:
    done.append((thing, threading.current_thread().name))
    return thing


@app.task(durable=False, max_attempts=2, retry=Retry.fixed(60, jitter=False))
def fails() -> None:
    raise ValueError("no")


@app.task
async def durable(thing: str) -> None:
    await work.enqueue(thing)


@app.task(durable=False)
async def chain(length: int) -> None:
    if length:
        await chain.enqueue(length - 1)
        await durable.enqueue(thing=f"from {length}")


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


async def test_run_until_idle_returns_when_the_lane_is_idle_too() -> None:
    """Through any number of hand-overs between durable and non-durable jobs."""
    async with in_memory(app):
        job = await work.enqueue(thing := Thing())
        await app.run_until_idle()
        assert (await job.refresh()).state == "completed"
        assert await job.result(timeout=0) is thing
        await chain.enqueue(3)
        await durable.enqueue(thing="first")
        await app.run_until_idle()
        assert sorted(name for name, _ in done[1:]) == ["first", "from 1", "from 2", "from 3"]
        assert app.lane.stats().waiting == app.lane.stats().running == 0


async def test_it_runs_without_a_durable_task() -> None:
    """There is nothing for a worker, and that is no error."""
    alone = Tidewheel("memory://")
    alone.task(durable=False, name="work")(lambda: 1)
    async with alone:
        assert await alone.run_until_idle() == 0
        job = await alone.enqueue("work")
        assert await alone.run_until_idle() == 0
        assert await job.result(timeout=0) == 1


async def test_the_lane_starts_by_itself_in_tests_too() -> None:
    """Code that waits for its non-durable jobs is tested as it is."""
    async with in_memory(app):
        assert await (await work.enqueue(1)).result(timeout=PATIENCE) == 1


async def test_time_passes_when_the_test_says_so(tidewheel_clock: FrozenClock) -> None:
    """Delays and retries of non-durable jobs included."""
    async with in_memory(app, clock=tidewheel_clock):
        later = await work.options(delay=3600).enqueue("later")
        failing = await fails.enqueue()
        await app.run_until_idle()
        assert done == []
        assert (await failing.refresh()).shown_state == "retrying"
        assert (await later.refresh()).shown_state == "delayed"
        tidewheel_clock.advance(3600)
        await app.run_until_idle()
        assert [name for name, _ in done] == ["later"]
        assert (await failing.refresh()).state == "failed"


async def test_inline_runs_non_durable_jobs_where_they_are_enqueued() -> None:
    """Before the call returns, on the test's own thread, also those that jobs enqueue."""
    here = threading.current_thread().name
    async with in_memory(app):
        with inline(app):
            job = await work.enqueue("now")
            assert (job.state, done) == ("completed", [("now", here)])
            await durable.enqueue(thing="nested")
            await chain.enqueue(2)
            assert {thread for _, thread in done} == {here}
            assert sorted(name for name, _ in done) == ["from 1", "from 2", "nested", "now"]
            await work.enqueue_many([{"thing": n} for n in range(3)])
            assert len(done) == 7
        assert await (await work.enqueue("not inline any more")).result(timeout=PATIENCE) is not None
        assert done[-1] == ("not inline any more", "tidewheel-lane")


@pytest.mark.parametrize("is_durable", [True, False])
async def test_inline_a_handlers_own_enqueue_returns_when_that_job_has_run(is_durable: bool) -> None:
    """Also when the worker that runs the handler is the one that takes it; a duplicate is not waited for."""
    nested = Tidewheel("memory://")
    states = []

    @nested.task(durable=is_durable)
    async def inner() -> None:
        await asyncio.sleep(0.02)

    @nested.task(durable=is_durable, key="once")
    async def outer() -> None:
        states.append((await inner.enqueue()).state)
        states.append((await outer.enqueue()).state)

    async with nested:
        with inline(nested):
            await outer.enqueue()
    assert states == ["completed", "running"]


async def test_inline_begins_when_the_lane_already_runs() -> None:
    """Its thread leaves the jobs alone from then on, and is back afterwards."""
    here = threading.current_thread().name
    async with in_memory(app):
        await (await work.enqueue("before")).result(timeout=PATIENCE)
        for _ in range(20):
            with inline(app):
                await work.enqueue("inline")
            await (await work.enqueue("between")).result(timeout=PATIENCE)
        assert {thread for name, thread in done if name == "inline"} == {here}
        assert {thread for name, thread in done if name != "inline"} == {"tidewheel-lane"}


async def test_inline_around_in_memory_is_the_same() -> None:
    """Whichever comes first."""
    with inline(app):
        async with in_memory(app):
            job = await work.enqueue("now")
            assert (job.state, done) == ("completed", [("now", threading.current_thread().name)])


async def test_inline_raises_what_failed_for_good_and_leaves_retries_to_their_time() -> None:
    """As it does for durable jobs; what is left goes on when the mode ends."""
    async with in_memory(app, clock=(clock := FrozenClock())):
        with inline(app):
            retrying = await fails.enqueue()
            with pytest.raises(JobFailed, match="ValueError: no"):
                await fails.options(max_attempts=1).enqueue()
        clock.advance(60)
        await app.run_until_idle()
        assert (await retrying.refresh()).state == "failed"


async def test_nothing_leaks_from_one_test_into_the_next() -> None:
    """Neither jobs, nor results, nor threads, nor a full lane."""
    ids = []
    for _ in range(2):
        async with in_memory(app):
            jobs = await work.options(delay=60).enqueue_many([{"thing": 1}] * 20)
            with pytest.raises(Backpressure):
                await work.enqueue(2)
            ids.append(jobs[0].id)
    async with in_memory(app):
        for job_id in ids:
            with pytest.raises(JobNotFound):
                await app.get(job_id)
        assert app.lane.stats().refused == 0
    await until(lambda: lane_threads() == 0)


async def test_a_store_that_is_put_back_without_closing_takes_its_lane_with_it() -> None:
    """The app's own lane is another one, and the thread of the lost one ends."""
    with app.on_store("memory://"):
        await app.open()
        await (await work.enqueue(1)).result(timeout=PATIENCE)
    assert app.lane.stats().completed == 0
    await until(lambda: lane_threads() == 0)


async def test_waiting_for_oneself_is_refused() -> None:
    """A handler of the lane that waits for the lane to be idle would wait for ever."""
    lonely = Tidewheel("memory://")

    @lonely.task(durable=False)
    async def waits() -> str:
        with pytest.raises(WrongState, match="would wait for that handler"):
            await lonely.run_until_idle()
        return "refused"

    async with lonely:
        assert await (await waits.enqueue()).result(timeout=PATIENCE) == "refused"
