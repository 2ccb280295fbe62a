"""A handler may say precisely what went wrong, and every code of the source design can be met."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.worker.helpers import state_is, until, working
from tidewheel import (
    HandlerNotFound,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LimitExceeded,
    Retry,
    TaskError,
    Tidewheel,
    TidewheelError,
)
from tidewheel.core.ids import new_id
from tidewheel.core.model import Claimed
from tidewheel.worker import outcomes
from tidewheel.worker.executor import JobExecutor


async def test_a_task_error_is_kept_as_it_was_said(app: Tidewheel) -> None:
    """Code, message, details and retryability come back from every store, with the traceback."""
    details = {"order": 2**63 - 1, "nested": {"ünï": [1.5, None, True, ""]}}

    @app.task(max_attempts=3, retry=Retry.fixed(0))
    async def charge() -> None:
        raise TaskError("no money left", code="card_declined", details=details)

    job = await charge.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert (job.state, job.attempt) == ("failed", 3)
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("card_declined", "no money left")
    assert job.error.details == details
    assert job.error.retryable
    assert 'raise TaskError("no money left"' in (job.error.traceback or "")
    assert job.error_summary == "card_declined: no money left"
    with pytest.raises(JobFailed) as failed:
        await job.result(timeout=0)
    assert failed.value.error == job.error


async def test_an_error_that_is_not_retryable_fails_the_job_at_once(app: Tidewheel) -> None:
    """Whatever attempts are left."""

    @app.task(max_attempts=5)
    def charge() -> None:
        raise TaskError("stolen", code="card_stolen", retryable=False)

    job = await charge.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert (job.state, job.attempt) == ("failed", 1)
    assert job.error is not None
    assert (job.error.code, job.error.retryable, job.error.details) == ("card_stolen", False, None)


class Half(TaskError):
    """Does not call its parent's constructor."""

    def __init__(self) -> None:
        self.code = "half: made"


async def test_a_code_may_look_like_a_summary(app: Tidewheel) -> None:
    """A colon in the code does not cost the job its error."""

    @app.task(max_attempts=1)
    async def odd() -> None:
        raise Half

    job = await odd.enqueue()
    await app.run_until_idle()
    await job.refresh()
    assert job.error is not None
    assert (job.error.code, job.error.retryable) == ("half: made", True)
    assert job.error.traceback is not None


@pytest.mark.parametrize(
    ("details", "kept"),
    [
        ({"nan": float("nan")}, "not finite"),
        ({"who": object()}, "cannot be written as JSON"),
        ({"long": "x" * 20_000}, "20,011 bytes; the limit is 16,000"),
        ({"big": 2**70}, "the range is"),
        ({"nul": "a\0b"}, "NUL"),
        ({"lone": "\ud800"}, "surrogate"),
    ],
)
def test_details_that_cannot_be_kept_do_not_lose_the_error(details: Any, kept: str) -> None:
    """The error is stored with the reason instead of its details."""
    error = outcomes.describe_exception(TaskError("boom", code="odd", details=details))
    assert (error.code, error.message) == ("odd", "boom")
    assert error.details is not None
    assert kept in error.details["details_dropped"]


def test_details_that_are_no_object_are_put_into_one() -> None:
    """They are an object for whoever reads them."""
    values: Any = ["a"]
    assert outcomes.describe_exception(TaskError("boom", details=values)).details == {"value": ["a"]}


def test_nonsense_for_a_code_is_no_reason_to_lose_the_error() -> None:
    """An empty code is the usual one; others are cut."""
    nothing: Any = None
    assert outcomes.describe_exception(TaskError("boom", code="")).code == "handler_error"
    assert outcomes.describe_exception(TaskError("boom", code="x" * 1000)).code == "x" * 100
    assert outcomes.describe_exception(TaskError(nothing)).message == "None"


# -- the codes of the source design -------------------------------------------------------------------------


async def _error_of(app: Tidewheel, job: Any) -> tuple[str, bool]:
    await app.run_until_idle()
    await job.refresh()
    assert job.error is not None
    return job.error.code, job.error.retryable


async def test_job_not_found_and_handler_not_found_are_told_to_callers() -> None:
    """They are codes of exceptions: no job is there to carry them."""
    async with Tidewheel("memory://", strict_tasks=True) as app:
        with pytest.raises(JobNotFound) as missing:
            await app.get(new_id())
        assert (missing.value.code, missing.value.retryable) == ("job_not_found", False)
        with pytest.raises(HandlerNotFound) as unknown:
            await app.enqueue("nobody")
        assert (unknown.value.code, unknown.value.retryable) == ("handler_not_found", False)


@pytest.mark.parametrize(
    ("raises", "kept"),
    [
        (JobNotFound("no"), ("job_not_found", False)),
        (HandlerNotFound("no"), ("handler_not_found", False)),
        (InvalidInput("no"), ("invalid_input", False)),
        (LimitExceeded("no"), ("limit_exceeded", True)),
    ],
    ids=["job", "handler", "input", "limit"],
)
async def test_what_trying_again_cannot_mend_ends_the_attempt_that_raised_it(
    raises: TidewheelError, kept: tuple[str, bool]
) -> None:
    """A handler that asks for a job that is not there will find none the next time; a limit may be lifted."""
    async with Tidewheel("memory://") as app:

        @app.task(max_attempts=2, retry=Retry.fixed(0))
        async def ask() -> None:
            raise raises

        job = await ask.enqueue()
        assert await _error_of(app, job) == kept
        assert job.attempt == (2 if kept[1] else 1)


async def test_invalid_input_is_not_retried(app: Tidewheel) -> None:
    """A stored payload that does not fit the handler fails its job at once."""

    @app.task
    async def add(a: int) -> int:
        return a

    job = await app.enqueue("elsewhere", {"a": "one"})

    @app.task(topic="elsewhere", name="elsewhere")
    async def late(a: int) -> int:
        return a

    assert await _error_of(app, job) == ("invalid_input", False)


async def test_a_timeout_is_retryable(app: Tidewheel) -> None:
    """job_timeout: the next attempt may be quicker."""

    @app.task(timeout=0.02, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    assert await _error_of(app, await slow.enqueue()) == ("job_timeout", True)


async def test_a_cancelled_job_says_so(app: Tidewheel) -> None:
    """job_canceled, not retryable, in the job and in the exception."""

    @app.task
    async def idle() -> None:
        pass

    job = await idle.options(delay=1000).enqueue()
    await job.cancel()
    assert await _error_of(app, job) == ("job_canceled", False)
    with pytest.raises(JobCancelled) as cancelled:
        await job.result(timeout=0)
    assert cancelled.value.code == "job_canceled"


async def test_an_exception_of_a_handler_is_a_handler_error(app: Tidewheel) -> None:
    """Retryable unless the exception says otherwise."""

    class Hopeless(Exception):
        retryable = False

    @app.task(max_attempts=1)
    async def plain() -> None:
        raise ValueError("boom")

    @app.task
    async def hopeless() -> None:
        raise Hopeless

    assert await _error_of(app, await plain.enqueue()) == ("handler_error", True)
    assert await _error_of(app, await hopeless.enqueue()) == ("handler_error", False)


async def test_a_bug_of_the_worker_is_an_internal_error_and_retryable(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is not to blame, and does not stay leased for it."""

    @app.task(max_attempts=1)
    async def fine() -> None:
        pass

    async def broken(self: JobExecutor, held: Any) -> None:
        job: Claimed = held.job
        raise RuntimeError(job.topic)

    monkeypatch.setattr(JobExecutor, "execute", broken)
    job = await fine.enqueue()
    async with working(app):
        await until(lambda: state_is(job, "failed"))
    assert job.error is not None
    assert (job.error.code, job.error.retryable) == ("internal_error", True)
