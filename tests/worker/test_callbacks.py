"""What a task wants called when its jobs end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import state_is, until, working
from tidewheel import (
    Cancel,
    ConfigurationError,
    Context,
    JobError,
    LeaseLost,
    Retry,
    Snooze,
    TaskError,
    Tidewheel,
)
from tidewheel.core.model import ClaimRequest, Released, Settlement
from tidewheel.testing import inline
from tidewheel.worker import callback_runner


async def test_each_end_is_told_to_whom_it_concerns(app: Tidewheel) -> None:
    """A completion to on_success, every errored attempt to fallback, the failure to on_failure as well."""
    calls: list[tuple[str, int, object]] = []

    def note(kind: str) -> Callable[[Context, Any], object]:
        async def noted(ctx: Context, value: Any) -> None:
            job = await app.get(ctx.job.id)
            calls.append((f"{kind} {job.state}", ctx.attempt, value))

        return noted

    @app.task(
        max_attempts=2,
        retry=Retry.fixed(0),
        on_success=note("success"),
        on_failure=note("failure"),
        fallback=note("fallback"),
    )
    async def work(how: str) -> dict[str, int]:
        if how == "fail":
            raise TaskError("boom", code="odd")
        if how == "cancel":
            raise Cancel
        return {"a": 1}

    await work.enqueue(how="well")
    await app.run_until_idle()
    assert calls == [("success completed", 1, {"a": 1})]
    calls.clear()
    await work.enqueue(how="cancel")
    await app.run_until_idle()
    assert calls == []
    await work.enqueue(how="fail")
    await app.run_until_idle(concurrency=1)
    kinds = [
        (kind.split()[0], attempt, value.code)
        for kind, attempt, value in calls
        if isinstance(value, JobError)
    ]
    assert kinds == [("fallback", 1, "odd"), ("fallback", 2, "odd"), ("failure", 2, "odd")]
    assert calls[-1][0] == "failure failed"


async def test_a_snoozed_or_released_job_calls_nobody(app: Tidewheel) -> None:
    """Such an attempt is not counted, and nothing has ended."""
    calls: list[object] = []

    @app.task(on_success=calls.append, on_failure=calls.append, fallback=calls.append)
    async def later() -> None:
        raise Snooze(1000)

    await later.enqueue()
    await app.run_until_idle()
    assert calls == []


async def test_errors_that_no_handler_raised_are_told_too(app: Tidewheel) -> None:
    """A timeout, a payload that does not fit and a result that cannot be kept are errors of the attempt."""
    codes: list[str] = []

    def note(error: JobError) -> None:
        codes.append(error.code)

    @app.task(timeout=0.02, max_attempts=1, on_failure=note)
    async def slow() -> None:
        await asyncio.sleep(60)

    @app.task(on_failure=note)
    async def odd_result() -> object:
        return object()

    await app.enqueue("unfit", {"a": "one"})

    @app.task(on_failure=note)
    async def unfit(a: int) -> None: ...

    await slow.enqueue()
    await odd_result.enqueue()
    await app.run_until_idle()
    assert sorted(codes) == ["invalid_input", "invalid_result", "job_timeout"]


async def test_a_callback_takes_what_it_asks_for(app: Tidewheel) -> None:
    """The context by its type, the value otherwise, in any order; or nothing. Async or on a thread."""
    seen: dict[str, object] = {}

    def nothing() -> None:
        seen["nothing"] = threading.current_thread().name.startswith("tidewheel-handler")

    async def only_context(c: Context) -> None:
        seen["only_context"] = c.job.task

    def only_value(value: int) -> None:
        seen["only_value"] = value

    async def turned(value: int, c: Context) -> None:
        seen["turned"] = (value, c.attempt)

    def untyped(a, b):  # type: ignore[no-untyped-def]
        seen["untyped"] = (type(a), b)

    async def given() -> None:
        seen["lambda"] = True

    everything: list[Any] = [
        nothing,
        only_context,
        only_value,
        turned,
        untyped,
        lambda _ctx, _value: given(),
        lambda *both: seen.update(variadic=len(both)),
    ]
    for number, callback in enumerate(everything):

        @app.task(name=f"t{number}", on_success=callback)
        async def answer() -> int:
            return 42

        await answer.enqueue()
    await app.run_until_idle()
    assert seen == {
        "nothing": True,
        "only_context": "t1",
        "only_value": 42,
        "turned": (42, 1),
        "untyped": (Context, 42),
        "lambda": True,
        "variadic": 2,
    }


@pytest.mark.parametrize(
    ("callback", "said"),
    [
        ("not a function", "give a function"),
        (lambda a, b, c: (a, b, c), "a, b, c"),
        (lambda a, *, b: (a, b), "a, b"),
    ],
)
async def test_a_callback_that_cannot_be_called_is_refused_with_its_task(callback: Any, said: str) -> None:
    """When the task is registered, not when the first job has failed."""
    app = Tidewheel("memory://")
    with pytest.raises(ConfigurationError, match=r"task 'work'.*on_failure") as refused:

        @app.task(on_failure=callback)
        async def work() -> None: ...

    assert said in str(refused.value)


async def test_the_context_of_a_callback_reads_and_does_not_write(app: Tidewheel) -> None:
    """It knows what the handler's knew; what belongs to a running handler is refused."""
    facts: list[object] = []
    refused: list[str] = []

    async def look(ctx: Context, result: object) -> None:
        facts.extend([ctx.job.key, ctx.tenant, ctx.user_id, ctx.correlation_id, ctx.attempt, ctx.cancelled])
        facts.append(ctx.checkpoint.value)
        for write in (ctx.progress(50), ctx.checkpoint({"a": 1})):
            try:
                await write
            except LeaseLost as error:
                refused.append(str(error))

    def look_from_thread(ctx: Context) -> None:
        try:
            ctx.sync.progress(50)
        except LeaseLost as error:
            refused.append(str(error))

    @app.task(on_success=look, on_failure=look_from_thread)
    async def work(ctx: Context, fail: bool = False) -> None:
        if fail:
            raise TaskError(retryable=False)

    await work.options(key="k", user_id="u", correlation_id="c").enqueue()
    await app.run_until_idle()
    await work.enqueue(fail=True)
    await app.run_until_idle()
    assert facts == ["k", "root", "u", "c", 1, False, None]
    assert len(refused) == 3
    assert all("has been settled" in words for words in refused)


async def test_an_error_in_a_callback_is_logged_and_changes_nothing(
    app: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither an exception nor an exit nor a cancellation of its own; the next one is called all the same."""
    called: list[str] = []

    async def ends() -> None:
        raise SystemExit(3)

    def raises(error: JobError) -> None:
        called.append("fallback")
        raise ValueError("in the callback")

    async def cancels() -> None:
        called.append("on_failure")
        raise asyncio.CancelledError

    @app.task(on_success=ends, fallback=raises, on_failure=cancels)
    async def work(fail: bool) -> None:
        if fail:
            raise TaskError(retryable=False)

    well = await work.enqueue(fail=False)
    ill = await work.enqueue(fail=True)
    assert await app.run_until_idle() == 2
    assert await state_is(well, "completed")
    assert await state_is(ill, "failed")
    assert called == ["fallback", "on_failure"]
    lines = [record.getMessage() for record in caplog.records if record.name == "tidewheel.worker"]
    for option, job in (("on_success", well), ("fallback", ill), ("on_failure", ill)):
        assert f"{option} of job {job.id} (work) failed" in lines
    assert "in the callback" in caplog.text


async def test_a_callback_that_hangs_is_given_up(
    app: Tidewheel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the loop or on a thread: after a stated time its slot is free, and its job ended long before."""
    monkeypatch.setattr(callback_runner, "CALLBACK_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(callback_runner, "CANCEL_GRACE_SECONDS", 0.05)
    release = threading.Event()
    unwound = asyncio.Event()

    async def hangs() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            unwound.set()

    async def swallows() -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass

    def blocks() -> None:
        release.wait(60)

    for callback in (hangs, swallows, blocks):

        @app.task(name=callback.__name__, on_success=callback)
        async def work() -> None: ...

        await work.enqueue()
    try:
        assert await app.run_until_idle(concurrency=10) == 3
        assert unwound.is_set()
        for name, still in (("hangs", False), ("swallows", True), ("blocks", True)):
            [line] = [r.getMessage() for r in caplog.records if f"({name}) took longer" in r.getMessage()]
            assert line.endswith("it still runs") is still
    finally:
        release.set()


async def test_a_slow_callback_keeps_no_outcome_waiting(app: Tidewheel) -> None:
    """Others settle while it runs, and its own job is complete for everybody before it begins."""
    started, release = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        started.set()
        await release.wait()

    @app.task(on_success=slow)
    async def first() -> str:
        return "done"

    @app.task
    async def second() -> str:
        return "done too"

    async with working(app, concurrency=2):
        job = await first.enqueue()
        await started.wait()
        assert await job.result(timeout=PATIENCE) == "done"
        assert await (await second.enqueue()).result(timeout=PATIENCE) == "done too"
        release.set()


async def test_callbacks_of_a_job_come_in_the_order_of_its_attempts(app: Tidewheel) -> None:
    """Also where the next attempt is over before the first one's callback is."""
    told: list[str] = []

    async def errs(ctx: Context) -> None:
        told.append(f"begins {ctx.attempt}")
        if ctx.attempt == 1:
            await until(lambda: state_is(job, "failed"))
            await asyncio.sleep(0.05)  # time for the other one, which would be called by now
        told.append(f"ends {ctx.attempt}")

    @app.task(max_attempts=2, retry=Retry.fixed(0), fallback=errs, on_failure=lambda: told.append("failed"))
    async def fails() -> None:
        raise ValueError

    job = await fails.enqueue()
    async with working(app, concurrency=4):
        await until(lambda: "failed" in told)
    assert told == ["begins 1", "ends 1", "begins 2", "ends 2", "failed"]


async def test_callbacks_count_as_slots_so_that_they_cannot_pile_up() -> None:
    """A worker whose callbacks are slow takes no more jobs than it can tell about."""
    at_once: list[int] = []
    running = 0
    release = asyncio.Event()
    full = asyncio.Event()

    async def slow() -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        if running == 3:
            full.set()
        await release.wait()
        running -= 1

    async with Tidewheel("memory://", poll_interval=0.02) as app:

        @app.task(on_success=slow)
        async def quick() -> None: ...

        await quick.enqueue_many([{}] * 50)
        async with working(app, concurrency=3, prefetch=0):
            await full.wait()
            for _ in range(20):
                await asyncio.sleep(0.005)
            stats = await app.stats()
            assert stats.pending >= 40, "its slots are taken"
            release.set()
            await until(lambda: len(at_once) == 50)
        assert max(at_once) == 3


async def test_an_outcome_that_was_refused_calls_nobody(app: Tidewheel) -> None:
    """The job belongs to another run, which will tell how it ended."""
    calls: list[object] = []

    @app.task(on_success=calls.append, fallback=calls.append)
    async def work() -> None:
        # Somebody else ends this lease, as a rescue would.
        await app.store.settle(taken)

    taken: list[Settlement] = []
    original = app.store.claim

    async def claim(request: ClaimRequest) -> Any:
        claim = await original(request)
        taken.extend(Settlement(job.lease, Released(1000.0)) for job in claim.jobs)
        return claim

    app.store.claim = claim  # type: ignore[method-assign]
    await work.enqueue()
    await app.run_until_idle()
    assert calls == []
    assert taken


async def test_a_callback_may_enqueue_what_must_follow(app: Tidewheel) -> None:
    """The way to a follow-up that survives a crash: a job of its own, here after a failure."""

    @app.task
    async def refund(order: int) -> int:
        return order

    async def give_back(ctx: Context, error: JobError) -> None:
        await refund.options(key=str(ctx.job.id)).enqueue(order=7)

    def log_it(error: JobError) -> None:
        refund.sync.enqueue(order=8)

    @app.task(max_attempts=1, on_failure=give_back, fallback=log_it)
    async def charge() -> None:
        raise ValueError("no money")

    await charge.enqueue()
    await app.run_until_idle()
    page = await app.jobs(task="refund", state="completed")
    assert page.total == 2
    await asyncio.to_thread(app.sync.close)


async def test_inline_mode_calls_back_before_enqueue_returns() -> None:
    """What tests see is what has happened."""
    calls: list[object] = []
    async with Tidewheel("memory://") as app:

        @app.task(on_success=calls.append)
        async def work() -> int:
            return 1

        with inline(app):
            await work.enqueue()
        assert calls == [1]


async def test_a_worker_that_stops_lets_callbacks_finish(app: Tidewheel) -> None:
    """Within its grace period: also that of a handler which ended last."""
    started = asyncio.Event()
    done: list[str] = []

    async def slow() -> None:
        started.set()
        await asyncio.sleep(0.2)
        done.append("called")

    @app.task(on_success=slow)
    async def work() -> None: ...

    async with working(app):
        await work.enqueue()
        await started.wait()
    assert done == ["called"]


async def test_a_worker_that_is_hurried_lets_go_of_callbacks(
    app: Tidewheel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They get a moment, are cancelled then, and those that wait are counted in the log."""
    monkeypatch.setattr("tidewheel.worker.worker.CALLBACK_GRACE_SECONDS", 0.05)
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def endless() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    @app.task(on_success=endless)
    async def work() -> None: ...

    jobs = await work.enqueue_many([{}] * 2)
    worker = app.worker(handle_signals=False, concurrency=1, prefetch=5)
    run = asyncio.create_task(worker.run())
    await started.wait()
    for job in jobs:
        await until(lambda job=job: state_is(job, "completed"))  # type: ignore[misc]
    with caplog.at_level(logging.WARNING):
        worker.stop(now=True)
        await asyncio.wait_for(run, PATIENCE)
    assert cancelled.is_set()
    assert "callbacks of 1 jobs are stopped and those of 1 are not called" in caplog.text


def test_a_task_without_callbacks_has_none_to_look_at() -> None:
    """Workers of such apps never ask."""
    app = Tidewheel("memory://")

    @app.task(on_success=None)
    async def plain() -> None: ...

    assert plain.callbacks is None
    assert not app.registry.has_callbacks
