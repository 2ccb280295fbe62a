"""Jobs of non-durable tasks have the life and the verbs of all jobs, in the process that enqueued them."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import weakref
from typing import Any

import pytest

from tests.patience import PATIENCE
from tidewheel import (
    Context,
    JobCancelled,
    JobFailed,
    JobNotFound,
    NotOpen,
    Retry,
    Tidewheel,
    WrongState,
)
from tidewheel.core.ids import new_id
from tidewheel.core.model import NewJob, State
from tidewheel.stores.memory.local_store import MAX_FINISHED, LocalStore
from tidewheel.testing.clock import FrozenClock


class Thing:
    """Any object."""


async def until(condition: Any) -> None:
    """Wait for something another thread does."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


async def test_objects_go_in_and_come_out_as_they_are(app: Tidewheel) -> None:
    """Sockets, functions, objects of any class: the handler gets the caller's, the caller the handler's."""

    @app.task(durable=False)
    async def swap(ctx: Context, first: socket.socket, second: Any) -> tuple[Any, Any]:
        return second, first

    @app.task(durable=False)
    def identity(thing: Thing) -> Thing:
        return thing

    here, there = socket.socketpair()
    with here, there:
        job = await swap.enqueue(here, len)
        assert await job.result(timeout=PATIENCE) == (len, here)
    thing = Thing()
    for enqueued in (
        identity.enqueue(thing),
        app.enqueue("identity", {"thing": thing}),
        app.enqueue(identity, thing),
        identity.options(priority=5).enqueue(thing=thing),
    ):
        assert await (await enqueued).result(timeout=PATIENCE) is thing
    many = await identity.enqueue_many([{"thing": thing}, {"thing": 2}])
    assert [await each.result(timeout=PATIENCE) for each in many] == [thing, 2]


async def test_blocking_callers_have_the_same(app: Tidewheel) -> None:
    """Under ``.sync``, from a thread without an event loop."""

    @app.task(durable=False)
    def identity(thing: Thing) -> Thing:
        return thing

    def blocking() -> None:
        thing = Thing()
        job = identity.sync.enqueue(thing)
        assert job.result(timeout=PATIENCE) is thing
        assert app.sync.get(job.id).state == "completed"
        assert identity.options(key="k").sync.enqueue(thing).result(timeout=PATIENCE) is thing

    await asyncio.to_thread(blocking)
    app.sync.close()


async def test_nothing_is_written_to_the_store(app: Tidewheel) -> None:
    """Lists, counts and statistics are those of the durable jobs; the lane has its own."""

    @app.task(durable=False)
    async def work() -> None: ...

    @app.task(durable=False)
    async def fail() -> None:
        raise ValueError("no")

    assert app.lane.stats().completed == 0
    await (await work.enqueue()).result(timeout=PATIENCE)
    with pytest.raises(JobFailed, match="ValueError: no"):
        await (await fail.options(max_attempts=1).enqueue()).result(timeout=PATIENCE)
    assert (await app.count()).total == 0
    assert await app.topics() == []
    stats = app.lane.stats()
    assert (stats.waiting, stats.running, stats.completed, stats.failed) == (0, 0, 1, 1)
    assert (stats.capacity, stats.concurrency, stats.refused) == (256, 4, 0)


async def test_no_thread_is_started_before_the_first_job(app: Tidewheel) -> None:
    """Who has such a task and never uses it pays nothing."""

    @app.task(durable=False)
    async def work() -> None: ...

    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "tidewheel-lane"]

    assert threads() == []
    await (await work.enqueue()).result(timeout=PATIENCE)
    assert threads() == ["tidewheel-lane"]


async def test_handlers_run_apart_from_the_program(app: Tidewheel) -> None:
    """A handler that blocks does not hold the event loop up that enqueued it."""
    blocking, release = threading.Event(), threading.Event()

    @app.task(durable=False)
    async def rude() -> str:
        blocking.set()
        release.wait(PATIENCE)
        return "done"

    job = await rude.enqueue()
    await until(blocking.is_set)
    assert (await job.refresh()).state == "running"
    release.set()
    assert await job.result(timeout=PATIENCE) == "done"


async def test_handlers_use_the_app_and_its_other_tasks(app: Tidewheel) -> None:
    """Durable jobs and further non-durable ones, and they may wait for the latter."""

    @app.task
    async def durable(n: int) -> None: ...

    @app.task(durable=False)
    async def inner(n: int) -> int:
        return n + 1

    @app.task(durable=False)
    async def outer(n: int) -> int:
        await durable.enqueue(n=n)
        return await (await inner.enqueue(n)).result(timeout=PATIENCE) + 1

    assert await (await outer.enqueue(1)).result(timeout=PATIENCE) == 3
    assert (await app.count(task="durable", state="pending")).total == 1


async def test_attempts_retries_and_the_context_are_those_of_all_jobs(app: Tidewheel) -> None:
    """Errors are kept, a checkpoint reaches the next attempt, ids and tenants arrive."""
    seen: list[tuple[Any, ...]] = []

    @app.task(durable=False, retry=Retry.fixed(0, jitter=False))
    async def work(ctx: Context, thing: Thing) -> str:
        seen.append((ctx.attempt, ctx.checkpoint.value, ctx.tenant, ctx.correlation_id, ctx.user_id, thing))
        if ctx.attempt < 3:
            await ctx.progress(10 * ctx.attempt, "trying")
            await ctx.checkpoint({"attempt": ctx.attempt})
            raise ValueError("again")
        return "done"

    thing = Thing()
    job = await work.options(tenant="acme", correlation_id="c", user_id="u").enqueue(thing)
    assert await job.result(timeout=PATIENCE) == "done"
    assert seen == [
        (1, None, "acme", "c", "u", thing),
        (2, {"attempt": 1}, "acme", "c", "u", thing),
        (3, {"attempt": 2}, "acme", "c", "u", thing),
    ]
    await job.refresh()
    assert [each.error.message for each in job.attempts] == ["ValueError: again"] * 2
    assert (job.progress.percent if job.progress else None, job.tenant, job.attempt) == (100.0, "acme", 3)
    assert job.payload is None


async def test_a_timeout_ends_an_attempt(app: Tidewheel) -> None:
    """As it does for any other handler."""

    @app.task(durable=False, timeout=0.05, max_attempts=1)
    async def work() -> None:
        await asyncio.sleep(PATIENCE)

    with pytest.raises(JobFailed, match="job_timeout"):
        await (await work.enqueue()).result(timeout=PATIENCE)


async def test_running_and_waiting_jobs_are_cancelled(app: Tidewheel) -> None:
    """A running handler is asked to stop, a waiting job ends at once."""
    begun = threading.Event()

    @app.task(durable=False)
    async def work() -> None:
        begun.set()
        await asyncio.sleep(PATIENCE)

    running = await work.enqueue()
    waiting = await work.options(delay=60).enqueue()
    await until(begun.is_set)
    assert await app.cancel(waiting.id) is True
    assert waiting.shown_state == "delayed"
    assert (await waiting.refresh()).state == "cancelled"
    assert await running.cancel() is False
    with pytest.raises(JobCancelled):
        await running.result(timeout=PATIENCE)


async def test_keys_priorities_delays_and_expiry(app: Tidewheel) -> None:
    """As the memory store has them, within the process."""
    release = threading.Event()
    order: list[Any] = []

    @app.task(durable=False)
    def block() -> None:
        release.wait(PATIENCE)

    @app.task(durable=False)
    async def work(name: Any) -> None:
        order.append(name)

    blocked = await block.enqueue_many([{}] * 4)
    await until(lambda: app.lane.stats().running == 4)
    low = await work.enqueue("low")
    high = await work.options(priority=10).enqueue("high")
    first = await work.options(key="k").enqueue("kept")
    second = await work.options(key="k").enqueue("not taken")
    assert (second.id, second.duplicate, second.replaced) == (first.id, True, False)
    third = await work.options(key="k", on_duplicate="replace").enqueue("replaced")
    assert (third.id, third.replaced) == (first.id, True)
    late = await work.options(expires=0.001).enqueue("too late")
    await until(lambda: app.lane.stats().cancelled == 1)
    release.set()
    for job in (*blocked, low, high, first):
        await job.result(timeout=PATIENCE)
    assert order == ["high", "low", "replaced"]
    assert (await late.refresh()).error_summary is not None


async def test_a_topic_of_its_own_makes_no_difference(app: Tidewheel) -> None:
    """Whatever topic a job is routed to, the lane runs it."""

    @app.task(durable=False)
    async def work() -> str:
        return "done"

    job = await work.options(topic="elsewhere").enqueue()
    assert await job.result(timeout=PATIENCE) == "done"
    assert (await job.refresh()).topic == "elsewhere"


async def test_a_task_may_be_registered_when_the_lane_runs(app: Tidewheel) -> None:
    """The lane runs whatever its app has."""

    @app.task(durable=False)
    async def early() -> None: ...

    await (await early.enqueue()).result(timeout=PATIENCE)

    @app.task(durable=False)
    async def late() -> str:
        return "done"

    assert await (await late.enqueue()).result(timeout=PATIENCE) == "done"


async def test_jobs_of_the_lane_are_not_pulled_by_hand() -> None:
    """They are objects, and those who pull want bodies."""
    store = LocalStore(clock=FrozenClock(), capacity=1)
    job_id = new_id()
    await store.enqueue([NewJob(id=job_id, topic="t")])
    for call in (
        store.claim_job(job_id, worker="w", lease_seconds=60),
        store.kick("t", 1),
        store.kick_jobs([job_id]),
    ):
        with pytest.raises(WrongState, match="make the task durable"):
            await call
    assert await store.states([job_id]) == [State.PENDING]


async def test_deleted_jobs_are_gone_and_ended_ones_cannot_be_requeued(app: Tidewheel) -> None:
    """The arguments of a job that ended are not kept."""

    @app.task(durable=False)
    async def fail() -> None:
        raise ValueError("no")

    job = await fail.options(max_attempts=1).enqueue()
    with pytest.raises(JobFailed):
        await job.result(timeout=PATIENCE)
    with pytest.raises(WrongState, match="enqueue it anew"):
        await job.requeue()
    await job.delete()
    with pytest.raises(JobNotFound):
        await app.get(job.id)
    with pytest.raises(JobNotFound):
        await job.result(timeout=PATIENCE)
    with pytest.raises(JobNotFound):
        await app.requeue(job.id)


async def test_arguments_are_let_go_when_the_job_ends_and_results_when_it_is_forgotten(
    app: Tidewheel,
) -> None:
    """Even those that lead back to their own job and context, and though somebody keeps the handle."""

    @app.task(durable=False)
    async def work(ctx: Context, thing: Any) -> Any:
        thing.context = ctx
        result = Thing()
        result.context = ctx  # type: ignore[attr-defined]
        results.append(weakref.ref(result))
        return result

    results: list[weakref.ref[Thing]] = []
    thing = Thing()
    job = await work.enqueue(thing)
    thing.job = job  # type: ignore[attr-defined]
    arguments = weakref.ref(thing)
    await until(lambda: app.lane.stats().completed == 1)
    del thing
    await until(lambda: gc.collect() is None or arguments() is None)
    assert await job.result(timeout=PATIENCE) is results[0]()
    await job.refresh()
    await job.delete()
    await until(lambda: gc.collect() is None or results[0]() is None)


async def test_finished_jobs_are_remembered_up_to_a_number(app: Tidewheel) -> None:
    """The oldest are forgotten, and asking for one is asking for a job that is not there."""

    @app.task(durable=False)
    async def work(n: int) -> int:
        return n

    first = await work.enqueue(0)
    assert await first.result(timeout=PATIENCE) == 0
    for start in range(0, MAX_FINISHED, 250):
        jobs = await work.enqueue_many([{"n": n} for n in range(start, start + 250)])
        assert [await job.result(timeout=PATIENCE) for job in jobs] == list(range(start, start + 250))
    with pytest.raises(JobNotFound):
        await first.refresh()
    assert await jobs[-1].result(timeout=0) == MAX_FINISHED - 1
    store = app.lane.open()
    assert len(store._table.jobs) == len(store._table.results) == MAX_FINISHED
    assert store._table.arguments == {}


async def test_a_users_code_that_runs_at_the_end_of_an_object_may_use_the_lane(app: Tidewheel) -> None:
    """Objects are let go of outside of the store's lock."""
    stuck: list[bool] = []

    class Last:
        def __del__(self) -> None:
            # From another thread: the lock is one that the same thread may take twice.
            asking = threading.Thread(target=app.lane.stats)
            asking.start()
            asking.join(PATIENCE / 10)
            stuck.append(asking.is_alive())

    @app.task(durable=False)
    async def work(last: Any) -> None: ...

    job = await work.options(delay=60).enqueue(Last())
    await job.cancel()
    assert stuck == [False]


async def test_an_app_that_is_not_open_takes_no_job() -> None:
    """The lane belongs to an open app, like everything else."""
    app = Tidewheel("memory://")

    @app.task(durable=False)
    async def work() -> None: ...

    with pytest.raises(NotOpen):
        await work.enqueue()
    async with app:
        job = await work.enqueue()
        await job.result(timeout=PATIENCE)
    with pytest.raises(NotOpen):
        await work.enqueue()
    with pytest.raises(NotOpen):
        await job.refresh()


async def test_verbs_by_id_are_narrowed_by_tenant_as_in_any_store(app: Tidewheel) -> None:
    """What scopes a durable job by its tenant scopes a non-durable one."""

    @app.task(durable=False)
    async def work() -> None: ...

    job = await work.options(tenant="acme", delay=60).enqueue()
    store = app._store_of(job.id)
    assert store is not app.store
    assert await store.get(job.id, tenant="other") is None
    assert [str(v) for v in await store.cancel([job.id], tenant="other")] == ["ActionResult.NOT_FOUND"]
    assert [str(v) for v in await store.requeue([job.id], tenant="other")] == ["ActionResult.NOT_FOUND"]
    assert (await job.refresh()).state == "pending"
