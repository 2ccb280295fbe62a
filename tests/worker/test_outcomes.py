"""What a handler does decides what becomes of its job."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextvars import ContextVar
from decimal import Decimal
from enum import Enum
from typing import Any

import pydantic
import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import take_away, until, working
from tidewheel import (
    Cancel,
    Context,
    Fail,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    LeaseLost,
    ResultTimeout,
    Retry,
    RetryAfter,
    Snooze,
    Tidewheel,
)
from tidewheel.core.ids import new_id
from tidewheel.core.model import NewJob
from tidewheel.tasks.context import make_progress


async def test_a_handler_that_returns_completes_its_job(app: Tidewheel) -> None:
    """The result is kept and comes back as it was returned."""

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    job = await add.enqueue(a=1, b=2)
    await app.run_until_idle()
    assert await job.result(timeout=0) == 3
    await job.refresh()
    assert (job.state, job.attempt, job.attempts) == ("completed", 1, ())
    assert job.progress is not None
    assert job.progress.percent == 100


async def test_a_plain_function_runs_on_a_thread(app: Tidewheel) -> None:
    """It may block as long as it likes: the event loop goes on."""
    threads: list[str] = []

    @app.task
    def work(ctx: Context) -> str:
        threads.append(threading.current_thread().name)
        ctx.sync.progress(50, "half way")
        ctx.sync.checkpoint({"page": 7})
        return "done"

    job = await work.enqueue()
    await app.run_until_idle()
    assert await job.result(timeout=0) == "done"
    await job.refresh()
    assert threads != [threading.main_thread().name]
    assert job.checkpoint == {"page": 7}


async def test_an_error_is_kept_and_tried_again_until_attempts_are_used_up(app: Tidewheel) -> None:
    """Each failed attempt leaves its error with code, message and traceback; the last one fails the job."""

    @app.task(max_attempts=3, retry=Retry.fixed(0))
    async def explode() -> None:
        raise ValueError("boom")

    job = await explode.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert (job.state, job.attempt) == ("failed", 3)
    assert [record.attempt for record in job.attempts] == [1, 2, 3]
    assert job.error is not None
    assert job.error.code == "handler_error"
    assert job.error.message == "ValueError: boom"
    assert job.error.traceback is not None
    assert 'raise ValueError("boom")' in job.error.traceback
    assert "attempt.py" not in job.error.traceback, "the worker's own frames are of no interest"
    with pytest.raises(JobFailed, match="boom"):
        await job.result(timeout=0)


async def test_the_retry_policy_of_a_job_wins_over_the_tasks(app: Tidewheel) -> None:
    """A job may carry a policy of its own."""

    @app.task(retry=Retry.fixed(0, jitter=False))
    async def explode() -> None:
        raise ValueError("boom")

    job = await explode.options(retry=Retry.fixed(1000, jitter=False)).enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert job.state == "pending"
    assert 999 < (job.run_at - job.created_at).total_seconds() < 1010


async def test_a_broken_retry_function_does_not_cost_the_retry(app: Tidewheel) -> None:
    """When the policy raises, the default one decides."""

    def nonsense(attempt: int, error: BaseException) -> float:
        raise RuntimeError("cannot count")

    @app.task(retry=Retry.call(nonsense))
    async def explode() -> None:
        raise ValueError("boom")

    job = await explode.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert (job.shown_state, job.attempt) == ("retrying", 1)


async def test_retry_after_decides_the_delay_and_counts(app: Tidewheel) -> None:
    """RetryAfter is an attempt; the last one fails the job."""

    @app.task(max_attempts=2)
    async def busy() -> None:
        raise RetryAfter(0 if ran else 500, "come back later")

    ran: list[int] = []
    job = await busy.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert (job.state, job.attempt) == ("pending", 1)
    assert (job.run_at - job.created_at).total_seconds() > 499
    other = await busy.options(max_attempts=1).enqueue()
    await app.run_until_idle()
    await other.refresh()
    assert (other.state, other.error and other.error.message) == ("failed", "come back later")


async def test_fail_ends_a_job_whatever_attempts_are_left(app: Tidewheel) -> None:
    """No retry for what cannot succeed."""

    @app.task(max_attempts=10)
    async def refuse() -> None:
        raise Fail("card declined", code="declined")

    job = await refuse.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert (job.state, job.attempt) == ("failed", 1)
    assert job.error is not None
    assert (job.error.code, job.error.message, job.error.retryable) == ("declined", "card declined", False)


async def test_snooze_is_not_an_attempt(app: Tidewheel) -> None:
    """A snoozed job runs again later with its attempts untouched."""

    @app.task
    async def later() -> None:
        raise Snooze(100)

    job = await later.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert (job.state, job.attempt, job.attempts) == ("pending", 0, ())
    assert job.shown_state == "delayed"


async def test_cancel_raised_by_a_handler_cancels(app: Tidewheel) -> None:
    """The reason is kept."""

    @app.task
    async def never_mind() -> None:
        raise Cancel("order withdrawn")

    job = await never_mind.enqueue()
    await app.run_until_idle()
    with pytest.raises(JobCancelled, match="order withdrawn"):
        await job.result(timeout=0)


async def test_release_gives_a_job_back_uncounted(app: Tidewheel) -> None:
    """The next run starts from the checkpoint, as the same attempt."""
    seen: list[tuple[int, Any]] = []

    @app.task
    async def in_parts(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.checkpoint.get("page")))
        if not ctx.checkpoint:
            await ctx.checkpoint({"page": 1})
            ctx.release()

    job = await in_parts.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert job.state == "completed"
    assert seen == [(1, None), (1, 1)]


async def test_a_payload_that_no_longer_fits_fails_at_once(app: Tidewheel) -> None:
    """Trying again cannot help; the error says what did not fit."""

    @app.task(name="strict")
    async def strict(n: int) -> None:
        raise AssertionError("must not run")

    # A newer version of the program enqueued what this one does not take.
    [answer] = await app.store.enqueue(
        [NewJob(id=new_id(), topic="strict", task="strict", payload=b'{"n":"x"}')]
    )
    await app.run_until_idle()
    bad = await app.get(answer.job_id)
    assert (bad.state, bad.attempt) == ("failed", 1)
    assert bad.error is not None
    assert bad.error.code == "invalid_input"


class Grade(Enum):
    GOOD = "good"


class Account(pydantic.BaseModel):
    token: int


async def test_errors_of_payloads_that_do_not_fit_do_not_quote_them(app: Tidewheel) -> None:
    """More people read a job's errors than may see its payload."""

    @app.task(name="strict")
    async def strict(n: int = 0, grade: Grade = Grade.GOOD) -> None:
        raise AssertionError("must not run")

    @app.task(name="model")
    async def model(account: Account) -> None:
        raise AssertionError("must not run")

    bodies = [
        ("strict", b'{"n":["s3cr3t"]}'),
        ("strict", b'{"grade":"s3cr3t"}'),
        ("model", b'{"token":"s3cr3t"}'),
    ]
    answers = await app.store.enqueue(
        [NewJob(id=new_id(), topic=name, task=name, payload=body) for name, body in bodies]
    )
    await app.run_until_idle()
    for answer, place in zip(answers, ("n", "grade", "token"), strict=True):
        job = await app.get(answer.job_id)
        assert job.error is not None
        assert (job.state, job.error.code, job.error.traceback) == ("failed", "invalid_input", None)
        assert f"{place}: " in job.error.message
        assert "s3cr3t" not in f"{job.error} {job.error_summary}"
    with pytest.raises(InvalidPayload, match="s3cr3t"):  # whoever gave it is told which
        await app.enqueue("strict", {"n": ["s3cr3t"]})


async def test_a_result_that_cannot_be_stored_fails_the_job(app: Tidewheel) -> None:
    """Running it again would only do the work twice."""

    @app.task
    async def odd() -> Any:
        return float("nan")

    job = await odd.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert (job.state, job.attempt, job.error and job.error.code) == ("failed", 1, "invalid_result")


async def test_an_async_handler_is_cancelled_at_its_timeout(app: Tidewheel) -> None:
    """The attempt errs with job_timeout and counts."""
    cancelled = asyncio.Event()

    @app.task(timeout=0.05, max_attempts=1)
    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    job = await slow.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert cancelled.is_set()
    assert (job.state, job.error and job.error.code) == ("failed", "job_timeout")


async def test_a_handler_that_swallows_its_cancellation_has_timed_out_all_the_same(app: Tidewheel) -> None:
    """What it returns afterwards is not taken."""

    @app.task(timeout=0.05, max_attempts=1)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
        return "too late"

    job = await stubborn.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert (job.state, job.error and job.error.code) == ("failed", "job_timeout")


async def test_a_function_on_a_thread_is_told_about_its_timeout_and_keeps_its_slot(app: Tidewheel) -> None:
    """It cannot be interrupted: its outcome is ignored, and its slot stays taken until it returns."""
    release = threading.Event()
    told = threading.Event()

    @app.task(timeout=0.05, max_attempts=1)
    def blocked(ctx: Context) -> None:
        while not ctx.cancelled:
            release.wait(0.01)
        told.set()
        release.wait(PATIENCE)

    @app.task
    async def quick() -> str:
        return "ran"

    job = await blocked.enqueue()
    async with working(app, concurrency=1):
        await until(told.is_set)

        async def failed() -> bool:
            await job.refresh()
            return job.state == "failed"

        await until(failed)
        waiting = await quick.enqueue()
        with pytest.raises(ResultTimeout):
            await waiting.result(timeout=0.2)
        await waiting.refresh()
        assert waiting.started_at is None
        release.set()
        assert await waiting.result(timeout=PATIENCE) == "ran"


async def test_context_variables_do_not_leak_from_one_job_to_the_next(app: Tidewheel) -> None:
    """What a handler sets is gone with it, on the loop and on threads."""
    variable: ContextVar[str] = ContextVar("variable", default="clean")
    seen: list[str] = []

    @app.task
    async def on_loop() -> None:
        seen.append(variable.get())
        variable.set("dirty")

    @app.task
    def on_thread() -> None:
        seen.append(variable.get())
        variable.set("dirty")

    for task in (on_loop, on_thread):
        await task.enqueue_many([{}, {}, {}])
        await app.run_until_idle(concurrency=1)
    assert seen == ["clean"] * 6


async def test_a_handler_cannot_end_the_worker(app: Tidewheel) -> None:
    """SystemExit and a stray CancelledError are errors of that attempt."""

    @app.task(max_attempts=1)
    async def leave() -> None:
        sys.exit(3)

    @app.task(max_attempts=1)
    async def confused() -> None:
        raise asyncio.CancelledError

    @app.task(max_attempts=1)
    def leave_thread() -> None:
        sys.exit(3)

    jobs = [await leave.enqueue(), await confused.enqueue(), await leave_thread.enqueue()]
    await app.run_until_idle()
    for job in jobs:
        await job.refresh()
    assert [(job.state, job.attempt) for job in jobs] == [("failed", 1)] * 3


async def test_errors_with_unstorable_text_are_kept_readable(app: Tidewheel) -> None:
    """NUL and lone surrogates in a message must not lose the settlement."""

    @app.task(max_attempts=1)
    async def explode() -> None:
        raise ValueError("nul \x00 and surrogate \ud800 " + "x" * 100_000)

    job = await explode.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert job.state == "failed"
    assert job.error is not None
    assert "nul \\x00 and surrogate \\ud800" in job.error.message
    assert len(job.error.message) <= 2000


async def test_progress_and_checkpoint_are_visible_while_running(app: Tidewheel) -> None:
    """Who looks sees how far it is."""
    reported = asyncio.Event()
    go_on = asyncio.Event()

    @app.task
    async def report(ctx: Context) -> None:
        await ctx.progress(42.5, "rendering", stage="two")
        await ctx.checkpoint(["a", 1])
        reported.set()
        await go_on.wait()

    job = await report.enqueue()
    async with working(app):
        await reported.wait()
        await job.refresh()
        assert job.progress is not None
        assert (job.progress.percent, job.progress.message, job.progress.stage) == (42.5, "rendering", "two")
        assert job.checkpoint == ["a", 1]
        go_on.set()
        await job.result(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (33.3, 33.3), (0.29, 0.29), (66.666, 66.67), (99.999, 99.99), (100.5, 100), (-3, 0),
        (float("inf"), 100), (float("nan"), 0), (Decimal("12.5"), 12.5),
    ],
)  # fmt: skip
def test_a_percentage_is_kept_as_it_was_given_within_0_and_100(given: Any, kept: float) -> None:
    """Rounded to two decimals, clamped, and 100 only for what is complete."""
    assert make_progress(given).percent == kept


async def test_a_report_of_progress_cannot_fail_its_job(app: Tidewheel) -> None:
    """Reports are cosmetic: long texts are cut, and characters that cannot be stored are escaped."""

    @app.task(max_attempts=1)
    async def report(ctx: Context) -> None:
        await ctx.progress(250, "x" * 5000, stage="NUL \x00 and half \ud800")

    job = await report.enqueue()
    await app.run_until_idle()
    await job.result(timeout=PATIENCE)
    await job.refresh()
    assert job.progress is not None
    assert (job.progress.message, job.progress.stage) == ("x" * 999 + "…", "NUL \\x00 and half \\ud800")


async def test_a_run_that_lost_its_job_cannot_report(app: Tidewheel) -> None:
    """Progress and checkpoints are fenced like everything else."""
    started = asyncio.Event()
    refused = asyncio.Event()
    rescued = asyncio.Event()

    @app.task
    async def slow(ctx: Context) -> None:
        started.set()
        await rescued.wait()
        try:
            await ctx.progress(50)
        except LeaseLost:
            refused.set()
            raise

    job = await slow.enqueue()
    async with working(app, topics=["slow"]):
        await started.wait()
        await take_away(app, job)
        rescued.set()
        await refused.wait()
    await job.refresh()
    assert (job.state, job.attempt) == ("pending", 0)
