"""One call for several jobs: who is in it, and what becomes of each."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.patience import PATIENCE
from tests.worker.helpers import state_is, take_away, until, working
from tidewheel import (
    Batch,
    BatchContext,
    Cancel,
    ConfigurationError,
    Context,
    Fail,
    Job,
    JobFailed,
    Retry,
    RetryAfter,
    SecurityContext,
    Snooze,
    Tidewheel,
    acting_as,
)
from tidewheel.core.model import BodyFormat, ClaimRequest, Lane
from tidewheel.errors import StoreUnavailable
from tidewheel.testing import in_memory, inline
from tidewheel.worker.stuck_handlers import StuckHandlers


@dataclass
class Item:
    """What one job carries."""

    number: int


def items(count: int) -> list[Item]:
    return [Item(number) for number in range(count)]


async def states(jobs: list[Job[Any]]) -> list[str]:
    return [(await job.refresh()).state for job in jobs]


async def test_jobs_that_are_due_together_are_one_call(app: Tidewheel) -> None:
    """Up to the size that was given, in order, each with its own result."""
    calls: list[list[int]] = []

    @app.task(batch=4)
    async def double(items: list[Item]) -> list[int]:
        calls.append([item.number for item in items])
        return [2 * item.number for item in items]

    jobs = await double.enqueue_many(items(10))
    assert await app.run_until_idle(concurrency=1) == 10
    assert calls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [await job.result(timeout=PATIENCE) for job in jobs] == [2 * number for number in range(10)]


async def test_each_item_may_end_in_its_own_way(app: Tidewheel) -> None:
    """What ``gather(return_exceptions=True)`` answers, say: an error is one item's, others complete."""

    @app.task(batch=10, max_attempts=2, retry=Retry.fixed(60))
    async def work(items: list[Item]) -> list[str | BaseException]:
        ends: list[str | BaseException] = [
            "done",
            ValueError("bad"),
            Fail("never"),
            Snooze(60),
            RetryAfter(60),
            Cancel("no need"),
        ]
        return [ends[item.number] for item in items]

    jobs = await work.enqueue_many(items(6))
    await app.run_until_idle()
    assert await states(jobs) == ["completed", "pending", "failed", "pending", "pending", "cancelled"]
    assert [job.attempt for job in jobs] == [1, 1, 1, 0, 1, 1]
    assert await jobs[0].result(timeout=PATIENCE) == "done"
    errors = [job.error and (job.error.code, job.error.message) for job in jobs]
    assert errors[1] == ("handler_error", "ValueError: bad")
    assert errors[2] == ("handler_error", "never")


async def test_an_error_of_the_call_is_every_jobs_by_its_own_policy(app: Tidewheel) -> None:
    """Attempts are counted job by job: one that is at its last fails, the others are tried again."""

    @app.task(batch=10, max_attempts=3, retry=Retry.fixed(60))
    async def work(items: list[Item]) -> None:
        raise ValueError("all of it")

    jobs = await work.enqueue_many(items(2))
    last = await work.options(max_attempts=1).enqueue(Item(2))
    await app.run_until_idle()
    assert await states([*jobs, last]) == ["pending", "pending", "failed"]
    for job in (*jobs, last):
        assert job.error is not None
        assert job.error.message == "ValueError: all of it"
        assert "raise ValueError" in (job.error.traceback or "")
        assert job.attempt == 1


@pytest.mark.parametrize("value", [[1], {"a": 1}, "ab", [1, 2, 3]])
async def test_results_that_belong_to_nobody_fail_the_jobs(value: Any) -> None:
    """Which result is whose cannot be guessed, and the work is done: no retry repeats it."""
    async with Tidewheel("memory://") as app:

        @app.task(batch=2)
        async def work(items: list[Item]) -> Any:
            return value

        jobs = await work.enqueue_many(items(2))
        await app.run_until_idle()
        assert await states(jobs) == ["failed", "failed"]
        assert jobs[0].error is not None
        assert jobs[0].error.code == "invalid_result"
        assert "for 2 jobs" in jobs[0].error.message


async def test_an_invalid_payload_fails_alone(app: Tidewheel) -> None:
    """Before the call, which does not see it."""
    calls: list[list[int]] = []

    @app.task(batch=10)
    async def work(items: list[Item]) -> None:
        calls.append([item.number for item in items])

    first = await work.enqueue(Item(0))
    template = work.template({})
    bad = template.job(b'{"number":"seven"}', BodyFormat.JSON)
    await app.store.enqueue([bad])
    last = await work.enqueue(Item(1))
    await app.run_until_idle()
    assert calls == [[0, 1]]
    assert await states([first, last]) == ["completed", "completed"]
    job = await app.get(bad.id)
    assert (job.state, job.error and job.error.code) == ("failed", "invalid_input")


async def test_a_batch_waits_for_more_but_not_for_long(app: Tidewheel) -> None:
    """One that is full does not wait; one that is not goes on when its time is over."""
    calls: list[int] = []

    @app.task(batch=Batch(size=3, wait=30))
    async def full(items: list[Item]) -> None:
        calls.append(len(items))

    @app.task(batch=Batch(size=100, wait=0.05))
    async def partial(items: list[Item]) -> None:
        calls.append(len(items))

    async with working(app, concurrency=2):
        for item in items(3):  # one by one: each wakes the worker for itself
            last = await full.enqueue(item)
        await last.result(timeout=PATIENCE)
        assert calls == [3]
        await (await partial.enqueue(Item(0))).result(timeout=PATIENCE)
        assert calls == [3, 1]


async def test_jobs_that_come_meanwhile_join_the_batch_that_waits(app: Tidewheel) -> None:
    """Also where it holds the only slot, and the worker therefore takes no more jobs."""
    calls: list[int] = []

    @app.task(batch=Batch(size=50, wait=0.2))
    async def work(items: list[Item]) -> None:
        calls.append(len(items))

    async with working(app, concurrency=1):
        first = await work.enqueue(Item(0))
        await until(lambda: state_is(first, "running"))
        others = await work.enqueue_many(items(5))
        await others[-1].result(timeout=PATIENCE)
    assert calls == [6]


async def test_jobs_of_an_older_name_of_the_task_are_in_the_same_batch(app: Tidewheel) -> None:
    """They wait under that name, in its topic; an alias finds them there."""
    calls: list[int] = []

    @app.task(batch=4, aliases=["older"])
    async def work(items: list[Item]) -> None:
        calls.append(len(items))

    template = work.template({})
    jobs = [template.job(b'{"number":1}', BodyFormat.JSON) for _ in range(6)]
    await app.store.enqueue([replace(job, task="older", topic="older") for job in jobs[::2]])
    await app.store.enqueue(jobs[1::2])
    assert await app.run_until_idle(concurrency=1) == 6
    assert calls == [4, 2]


async def test_a_batch_is_of_one_tenant(app: Tidewheel) -> None:
    """Its handler acts for that tenant, and sees nothing of others."""
    calls: list[tuple[str | None, list[int]]] = []

    @app.task(batch=10)
    async def work(items: list[Item]) -> None:
        context = SecurityContext.current()
        calls.append((None if context is None else context.tenant, sorted(item.number for item in items)))

    for number in range(6):
        await work.options(tenant="ab"[number % 2]).enqueue(Item(number))
    await app.run_until_idle(concurrency=1)
    assert sorted(calls, key=str) == [("a", [0, 2, 4]), ("b", [1, 3, 5])]


async def test_each_job_has_a_context_of_its_own(app: Tidewheel) -> None:
    """Progress, checkpoint and steps are the job's, as in a handler of one."""
    attempts: list[list[Any]] = []

    async def work(items: list[Item], ctx: BatchContext) -> list[Any]:  # the context anywhere
        attempts.append([one.checkpoint.value for one in ctx])
        for item, one in zip(items, ctx, strict=True):
            assert one.job.task == "work" == ctx.task
            await one.progress(10 * item.number)
            await one.checkpoint(item.number)
        assert await ctx[1].step("half", len, "seven..") == 7
        return [RetryAfter(0) if one.attempt == 1 else one.attempt for one in ctx]

    decorate: Any = app.task(batch=10, retry=Retry.fixed(0))
    jobs = await decorate(work).enqueue_many(items(2))
    await app.run_until_idle()
    assert attempts == [[None, None], [0, 1]]
    assert [await job.result(timeout=PATIENCE) for job in jobs] == [2, 2]
    await jobs[1].refresh()
    assert [step.name for step in jobs[1].steps] == ["half"]


async def test_a_batch_has_no_transaction_of_a_job() -> None:
    """It would complete one of them; the error says what to do instead."""
    async with Tidewheel("memory://") as app:

        @app.task(batch=10, max_attempts=1)
        async def work(ctx: BatchContext, items: list[Item]) -> None:
            await ctx[0].transaction.execute("SELECT 1")

        job = await work.enqueue(Item(0))
        await app.run_until_idle()
        with pytest.raises(JobFailed, match="connection of yours"):
            await job.result(timeout=PATIENCE)


async def test_one_job_of_a_batch_can_be_cancelled(app: Tidewheel) -> None:
    """It is told through its context; the call goes on for the others, and what it says of them counts."""
    seen: list[list[bool]] = []
    started = asyncio.Event()

    @app.task(batch=10)
    async def work(ctx: BatchContext, items: list[Item]) -> list[Any]:
        started.set()
        while not any(one.cancelled for one in ctx):
            await asyncio.sleep(0.005)
        seen.append([one.cancelled for one in ctx])
        return [Cancel() if one.cancelled else item.number for item, one in zip(items, ctx, strict=True)]

    jobs = await work.enqueue_many(items(3))
    async with working(app):
        await started.wait()
        await jobs[1].cancel()
        assert await jobs[0].result(timeout=PATIENCE) == 0
        assert await jobs[2].result(timeout=PATIENCE) == 2
        await until(lambda: state_is(jobs[1], "cancelled"))
    assert seen == [[False, True, False]]


async def test_a_batch_nobody_wants_any_more_is_cancelled(app: Tidewheel) -> None:
    """As soon as the last of its jobs was asked to stop."""
    started, ended = asyncio.Event(), asyncio.Event()

    @app.task(batch=10)
    async def work(items: list[Item]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    jobs = await work.enqueue_many(items(3))
    async with working(app):
        await started.wait()
        for job in jobs:
            assert not ended.is_set()
            await job.cancel()
        await asyncio.wait_for(ended.wait(), PATIENCE)
        await until(lambda: state_is(jobs[0], "cancelled"))
    assert await states(jobs) == ["cancelled"] * 3


async def test_a_cancelled_job_does_not_wait_for_a_long_call() -> None:
    """After a lease it ends without the call, which goes on and is no stuck handler."""
    started, go_on = asyncio.Event(), asyncio.Event()
    async with Tidewheel("memory://", lease=2, poll_interval=0.05) as app:

        @app.task(batch=10)
        async def work(items: list[Item]) -> list[int]:
            started.set()
            await go_on.wait()
            return [item.number for item in items]

        jobs = await work.enqueue_many(items(2))
        async with working(app, concurrency=1) as worker:
            await started.wait()
            await jobs[0].cancel()
            await until(lambda: state_is(jobs[0], "cancelled"))
            assert await states(jobs) == ["cancelled", "running"]
            assert worker.stuck == 0
            go_on.set()
            assert await jobs[1].result(timeout=PATIENCE) == 1
        assert await states(jobs) == ["cancelled", "completed"]


async def test_a_job_that_is_lost_leaves_the_others_alone(app: Tidewheel) -> None:
    """What the call says of it is not written; the others complete."""
    started, go_on = asyncio.Event(), asyncio.Event()
    lost: list[bool] = []

    @app.task(batch=10)
    async def work(ctx: BatchContext, items: list[Item]) -> list[int]:
        started.set()
        await go_on.wait()
        lost.extend(one.cancelled for one in ctx)
        return [item.number for item in items]

    jobs = await work.enqueue_many(items(2))
    async with working(app):
        await started.wait()
        await take_away(app, jobs[0])
        await asyncio.sleep(0)
        go_on.set()
        assert await jobs[1].result(timeout=PATIENCE) == 1
    assert await states(jobs) == ["pending", "completed"]


async def test_a_timeout_is_each_jobs_and_ends_the_call_with_the_last(app: Tidewheel) -> None:
    """A shorter one of one job counts for that job alone."""
    cancelled: list[list[bool]] = []

    @app.task(batch=10, timeout=0.3, max_attempts=1)
    async def work(ctx: BatchContext, items: list[Item]) -> None:
        while not any(one.cancelled for one in ctx):
            await asyncio.sleep(0.005)
        cancelled.append([one.cancelled for one in ctx])
        await asyncio.Event().wait()

    long = await work.enqueue(Item(0))
    short = await work.options(timeout=0.02).enqueue(Item(1))
    await app.run_until_idle()
    assert cancelled == [[False, True]]
    for job, seconds in ((long, "0.3 s"), (short, "0.02 s")):
        await job.refresh()
        assert job.error is not None
        assert (job.state, job.error.code) == ("failed", "job_timeout")
        assert seconds in job.error.message


async def test_a_shutdown_gives_every_job_back(app: Tidewheel) -> None:
    """Uncounted, those that run when the grace is over and those that were still gathered."""
    started = asyncio.Event()

    @app.task(batch=10)
    async def work(items: list[Item]) -> None:
        started.set()
        await asyncio.Event().wait()

    @app.task(batch=Batch(size=10, wait=30))
    async def wait(items: list[Item]) -> None: ...

    running = await work.enqueue_many(items(3))
    gathered = await wait.enqueue(Item(0))
    worker = app.worker(handle_signals=False)
    run = asyncio.create_task(worker.run())
    await started.wait()
    await until(lambda: state_is(gathered, "running"))
    worker.stop(now=True)
    await asyncio.wait_for(run, PATIENCE)
    assert await states([*running, gathered]) == ["pending"] * 4
    assert {job.attempt for job in (*running, gathered)} == {0}


async def test_a_plain_function_runs_on_a_thread(app: Tidewheel) -> None:
    """With the blocking twins of each job's context."""
    threads: list[str] = []

    @app.task(batch=10)
    def work(ctx: BatchContext, items: list[Item]) -> list[int]:
        threads.append(threading.current_thread().name)
        ctx[0].sync.progress(50)
        return [item.number for item in items]

    jobs = await work.enqueue_many(items(2))
    await app.run_until_idle()
    assert [await job.result(timeout=PATIENCE) for job in jobs] == [0, 1]
    assert threads[0].startswith("tidewheel-handler")
    assert len(threads) == 1


async def test_a_batch_takes_one_slot_and_others_run_beside_it(app: Tidewheel) -> None:
    """Whatever its size."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task(batch=50)
    async def work(items: list[Item]) -> None:
        started.set()
        await go_on.wait()

    @app.task
    async def beside() -> str:
        go_on.set()
        return "ran"

    jobs = await work.enqueue_many(items(50))
    async with working(app, concurrency=2):
        await started.wait()
        assert await (await beside.enqueue()).result(timeout=PATIENCE) == "ran"
        await jobs[-1].result(timeout=PATIENCE)


async def test_callbacks_are_called_job_by_job() -> None:
    """Each with the result of its own job."""
    told: list[tuple[int, int]] = []

    def note(ctx: Context, result: int) -> None:
        told.append((ctx.attempt, result))

    async with Tidewheel("memory://") as app:

        @app.task(batch=10, on_success=note)
        async def work(items: list[Item]) -> list[int]:
            return [item.number for item in items]

        await work.enqueue_many(items(3))
        await app.run_until_idle()
    assert sorted(told) == [(1, 0), (1, 1), (1, 2)]


async def test_a_store_that_does_not_answer_costs_a_batch_nothing_but_its_size() -> None:
    """It goes on with the jobs it has."""
    calls: list[int] = []
    async with Tidewheel("memory://", poll_interval=0.05) as app:

        @app.task(batch=Batch(size=10, wait=0.02))
        async def work(items: list[Item]) -> None:
            calls.append(len(items))

        job = await work.enqueue(Item(0))
        claim = app.store.claim
        asked = 0

        async def fails_the_second_time(request: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 2:
                raise StoreUnavailable("away")
            return await claim(request)

        app.store.claim = fails_the_second_time  # type: ignore[method-assign]
        await app.run_until_idle()
        assert await states([job]) == ["completed"]
    assert calls == [1]
    assert asked > 2


async def test_suspects_run_alone(app: Tidewheel) -> None:
    """What a lost worker had at hand may have killed it: the next one runs each by itself."""
    calls: list[list[int]] = []

    @app.task(batch=10)
    async def work(items: list[Item]) -> None:
        calls.append(sorted(item.number for item in items))

    jobs = await work.enqueue_many(items(3))
    gone = ClaimRequest(worker="gone", lanes=(Lane("work", "work"),), limit=10, lease_seconds=0.05)
    claim = await app.store.claim(gone)
    assert len(claim.jobs) == 3
    later = await work.enqueue_many([Item(10), Item(11)])
    async with working(app):
        await jobs[0].result(timeout=PATIENCE)
        for job in (*jobs, *later):
            await job.result(timeout=PATIENCE)
    assert sorted(call for call in calls if call[0] < 10) == [[0], [1], [2]]


async def test_batches_in_tests() -> None:
    """In memory and inline they are as everywhere."""
    app = Tidewheel("sqlite:///never-opened.db")

    @app.task(batch=10)
    async def work(items: list[Item]) -> list[int]:
        return [len(items)] * len(items)

    async with in_memory(app):
        with inline(app):
            jobs = await work.enqueue_many(items(3))
        assert [await job.result(timeout=PATIENCE) for job in jobs] == [3, 3, 3]
    assert await work([Item(1), Item(2)]) == [2, 2], "called by itself it is the function"


def test_what_cannot_be_a_batch_is_refused_when_it_is_registered() -> None:
    """With the reason, and what to do."""
    app = Tidewheel("memory://")
    task: Any = app.task

    def one(items: list[Item]) -> None: ...

    def two(items: list[Item], more: list[Item]) -> None: ...

    def many(*items: list[Item]) -> None: ...

    refusals: list[tuple[dict[str, Any], Any, str]] = [
        ({"batch": 0}, one, "batch size is 0; 1 to 1,000"),
        ({"batch": 1001}, one, "1 to 1,000"),
        ({"batch": True}, one, "give a number of jobs"),
        ({"batch": "many"}, one, "give a number of jobs"),
        ({"batch": 2, "durable": False}, one, "batch together with durable=False"),
        ({"batch": 2, "isolation": "process"}, one, "takes one job at a time"),
        ({"batch": 2}, lambda: None, "it takes one list of items"),
        ({"batch": 2}, two, "it takes one list of items"),
        ({"batch": 2}, many, "it takes one list of items"),
    ]
    for options, fn, why in refusals:
        with pytest.raises(ConfigurationError, match=why):
            task(name="work", **options)(fn)
    with pytest.raises(ValueError, match="the limit is 60 s"):
        Batch(size=2, wait=timedelta(seconds=61))
    assert Batch(2, timedelta(seconds=1)) == Batch(size=2, wait=1.0)

    async def no_list(item: Item) -> None: ...

    async def other_context(ctx: Context, items: list[Item]) -> None: ...

    async def not_a_batch(ctx: BatchContext, item: int) -> None: ...

    with pytest.raises(ConfigurationError, match="is no list"):
        task(batch=2)(no_list)
    with pytest.raises(ConfigurationError, match="a BatchContext if it likes"):
        task(batch=2)(other_context)
    with pytest.raises(ConfigurationError, match="BatchContext"):
        task(not_a_batch)


async def test_the_payload_is_that_of_one_item() -> None:
    """Its schema, its checks and its key; of plain types it is a field with the parameter's name."""
    async with Tidewheel("memory://") as app:

        @app.task(batch=10)
        async def work(items: list[Item]) -> list[int | Fail]:
            return [item.number for item in items]

        @app.task(batch=10)
        async def mail(user_ids: list[int]) -> None:
            assert user_ids == [7]

        assert work.json_schema()["properties"] == {"number": {"type": "integer"}}
        assert work.result_schema() == {"type": "integer"}
        assert mail.json_schema()["properties"] == {"user_ids": {"type": "integer"}}
        with pytest.raises(ValueError, match="does not fit task 'work'"):
            await app.enqueue("work", {"number": "seven"})
        job = await mail.enqueue(7)
        await app.run_until_idle()
        assert (await job.refresh()).state == "completed"


def test_a_context_that_only_type_checkers_import_is_one() -> None:
    """Its name alone has to do, as for a handler of one job."""
    app = Tidewheel("memory://")
    names: dict[str, Any] = {}
    exec("async def work(ctx: 'BatchContext', numbers: list[int]) -> None: ...", names)  # noqa: S102 - a module of somebody else
    task = app.task(batch=2)(names["work"])
    assert task.signature.context == "ctx"
    assert list(task.json_schema()["properties"]) == ["numbers"]


async def test_a_batch_of_plain_functions_that_will_not_stop_keeps_one_slot() -> None:
    """Its jobs are over; the worker counts one slot, whatever the number of jobs."""
    release = threading.Event()
    async with Tidewheel("memory://", poll_interval=0.05) as app:

        @app.task(batch=10, timeout=0.02, max_attempts=1)
        def work(items: list[Item]) -> None:
            release.wait(PATIENCE)

        jobs = await work.enqueue_many(items(5))
        try:
            async with working(app, concurrency=4) as worker:
                await until(lambda: state_is(jobs[0], "failed"))
                assert worker.health().running == 1
                release.set()
                await until(lambda: worker.health().running == 0)
        finally:
            release.set()
        assert await states(jobs) == ["failed"] * 5


async def test_a_cancelled_job_of_a_plain_function_is_no_stuck_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its call goes on for the others, as it should: a worker must not make way for that."""
    monkeypatch.setattr("tidewheel.worker.stuck_handlers.STUCK_AFTER_SECONDS", 0.0)
    monkeypatch.setattr("tidewheel.worker.lease_keeper.MAX_TICK_SECONDS", 0.05)
    started, looked = threading.Event(), threading.Semaphore(0)
    look = StuckHandlers.check

    def looking(stuck_handlers: StuckHandlers) -> None:
        look(stuck_handlers)
        looked.release()

    async with Tidewheel("memory://", poll_interval=0.05) as app:

        @app.task(batch=10)
        def work(ctx: BatchContext, items: list[Item]) -> list[int]:
            started.set()
            while not (ctx[0].cancelled and ctx[1].cancelled):
                looked.acquire(timeout=PATIENCE)
            for _ in range(3):  # by now both have been told, and were looked at twice
                looked.acquire(timeout=PATIENCE)
            return [item.number for item in items]

        monkeypatch.setattr(StuckHandlers, "check", looking)
        jobs = await work.enqueue_many(items(3))
        async with working(app, concurrency=1) as worker:
            await until(started.is_set)
            for job in jobs[:2]:
                await job.cancel()
            assert await jobs[2].result(timeout=PATIENCE) == 2
            assert (worker.stuck, worker.health().status) == (0, "working")


async def test_a_step_of_any_job_keeps_the_slot_until_its_function_ends() -> None:
    """A thread cannot be stopped, whosever step it runs."""
    release = threading.Event()
    async with Tidewheel("memory://", poll_interval=0.05) as app:

        @app.task(batch=10, timeout=0.05, max_attempts=1)
        async def work(ctx: BatchContext, items: list[Item]) -> None:
            await ctx[len(items) - 1].step("wait", lambda: release.wait(PATIENCE))

        jobs = await work.enqueue_many(items(2))
        try:
            async with working(app, concurrency=4) as worker:
                await until(lambda: state_is(jobs[0], "failed"))
                assert worker.health().running == 1
                release.set()
                await until(lambda: worker.health().running == 0)
        finally:
            release.set()


async def test_a_function_that_outlives_its_worker_is_known_to() -> None:
    """Whoever ends the process then must not wait for it."""
    started, release = threading.Event(), threading.Event()
    async with Tidewheel("memory://", poll_interval=0.05) as app:

        @app.task(batch=10)
        def work(items: list[Item]) -> None:
            started.set()
            release.wait(PATIENCE)

        jobs = await work.enqueue_many(items(2))
        try:
            async with working(app) as worker:
                await until(started.is_set)
                worker.stop(now=True)
            assert await states(jobs) == ["pending", "pending"]
            assert worker.lingers
        finally:
            release.set()
        await until(lambda: not worker.lingers)


async def test_batches_of_many_tenants_do_not_hoard(app: Tidewheel) -> None:
    """Jobs that came along for other tenants count, when a batch asks for more."""
    held: list[int] = []

    @app.task(batch=10)
    async def work(items: list[Item]) -> None:
        with acting_as(None):  # for all tenants
            stats = await app.stats()
        held.append(stats.running + stats.completed - len(held))  # those that have run may not be settled yet

    for number in range(40):
        with acting_as(SecurityContext(f"t{number}")):
            await work.enqueue(Item(number))
    assert await app.run_until_idle(concurrency=1, prefetch=0) == 40
    assert max(held) <= 10
