"""From what a handler did to what the store is told: pure decisions, nothing is run or written here."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidewheel.core import payload
from tidewheel.core.model import Cancelled, Claimed, Completed, Failed, JobError, Outcome, Released, Retried
from tidewheel.core.retry import DEFAULT_RETRY, MAX_DELAY, Retry
from tidewheel.core.text_format import storable_text
from tidewheel.errors import Cancel, Fail, InvalidPayload, RetryAfter, Snooze, TaskError, TidewheelError
from tidewheel.tasks.context import ReleaseRequested as ReleasedByHandler
from tidewheel.worker.active_jobs import StopReason

if TYPE_CHECKING:
    from tidewheel.tasks.task import Task

_log = logging.getLogger("tidewheel.worker")

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep

MAX_MESSAGE_LENGTH = 2000
MAX_TRACEBACK_LENGTH = 16_000
MAX_CODE_LENGTH = 100
MAX_DETAILS_BYTES = 16_000
"""Bytes of JSON in a ``TaskError``'s details."""

COMPLETED = Completed()
CANCELLED_ERROR = JobError("job_canceled", "cancelled on request", retryable=False)


class OutcomeReached(Exception):
    """On its way out through middleware: a handler elsewhere has ended, and this is its outcome."""

    def __init__(self, outcome: Outcome | None) -> None:
        self.outcome = outcome
        error = getattr(outcome, "error", None)
        super().__init__("the run was stopped" if error is None else error.message)


def after_error(
    job: Claimed, policy: Retry | None, error: BaseException, described: JobError | None = None
) -> Outcome | None:
    """The handler raised. ``described``: the error as it is stored, where somebody has done that before."""
    match error:
        case OutcomeReached():
            return error.outcome
        case ReleasedByHandler():
            return Released(_valid_delay(error.delay))
        case Snooze():
            return Released(_valid_delay(error.delay))
        case Cancel():
            return Cancelled(
                JobError("job_canceled", _storable_text(error.reason, MAX_MESSAGE_LENGTH), retryable=False)
            )
        case Fail():
            return Failed(
                JobError(_code(error.code), _storable_text(error.reason, MAX_MESSAGE_LENGTH), retryable=False)
            )
        case RetryAfter():
            reason = JobError("handler_error", _storable_text(error.reason, MAX_MESSAGE_LENGTH))
            return Failed(reason) if job.last_attempt else Retried(_valid_delay(error.delay), reason)
        case InvalidPayload():
            # What was stored does not fit the handler: trying again cannot help.
            return Failed(
                JobError(
                    "invalid_input",
                    _storable_text(error.message_without_value or error, MAX_MESSAGE_LENGTH),
                    retryable=False,
                )
            )
        case _:
            return after_failure(job, policy, described or describe_exception(error), error)


def after_failure(job: Claimed, policy: Retry | None, error: JobError, cause: BaseException) -> Outcome:
    """An attempt that errored: try again while there are attempts and the error allows it."""
    if job.last_attempt or not error.retryable:
        return Failed(error)
    return Retried(retry_delay(job.retry, policy, job.attempt, cause, f"job {job.lease.job_id}"), error)


def after_timeout(job: Claimed, policy: Retry | None) -> Outcome:
    error = JobError("job_timeout", f"the handler ran longer than its timeout of {job.timeout:g} s")
    return after_failure(job, policy, error, TimeoutError(error.message))


def after_bad_payload(job: Claimed, error: Exception) -> Outcome | None:
    """The stored payload could not be made into the handler's arguments."""
    if isinstance(error, InvalidPayload):
        return after_error(job, None, error)
    # The user's own types are made from it, and may raise anything.
    return Failed(replace(describe_exception(error), code="invalid_input", retryable=False))


def after_return(task: Task[..., Any], value: object, max_result_bytes: int) -> Outcome:
    """The handler returned."""
    if value is None:
        return COMPLETED
    try:
        return Completed(task.encode_result(value, max_result_bytes))
    except Exception as error:  # likewise written by the user's own types
        return Failed(replace(describe_exception(error), code="invalid_result", retryable=False))


def after_stop(job: Claimed, policy: Retry | None, stop: StopReason) -> Outcome | None:
    """The handler was stopped from outside; None when there is nothing left to tell the store."""
    match stop:
        case StopReason.LOST:
            return None
        case StopReason.CANCEL:
            return Cancelled(CANCELLED_ERROR)
        case StopReason.TIMEOUT:
            return after_timeout(job, policy)
        case StopReason.TRANSACTION:
            error = JobError(
                "transaction_timeout",
                "the handler's transaction was open for longer than transaction_seconds and was rolled back",
            )
            return after_failure(job, policy, error, TimeoutError(error.message))
        case StopReason.SHUTDOWN:
            return Released()


def describe_exception(error: BaseException) -> JobError:
    """An exception as it is stored."""
    if isinstance(error, TaskError):
        return make_job_error(
            error.code,
            error.message,
            retryable=error.retryable is not False,
            details=error.details,
            traceback=_traceback(error),
        )
    code = error.code if isinstance(error, TidewheelError) else "handler_error"
    text = _storable_text(error, MAX_MESSAGE_LENGTH)
    name = type(error).__qualname__
    module = type(error).__module__
    name = name if module in ("builtins", "__main__", "__mp_main__") else f"{module}.{name}"
    return JobError(
        code=code,
        message=_storable_text(f"{name}: {text}" if text else name, MAX_MESSAGE_LENGTH),
        retryable=getattr(error, "retryable", True) is not False,
        traceback=_storable_text(_traceback(error)[-MAX_TRACEBACK_LENGTH:], MAX_TRACEBACK_LENGTH),
    )


def make_job_error(
    code: object, message: object, *, retryable: bool, details: Any = None, traceback: str | None = None
) -> JobError:
    """An error that somebody else describes, as it is stored."""
    return JobError(
        code=_code(code),
        message=_storable_text(message, MAX_MESSAGE_LENGTH),
        retryable=retryable,
        details=_details(details),
        traceback=None
        if traceback is None
        else _storable_text(traceback[-MAX_TRACEBACK_LENGTH:], MAX_TRACEBACK_LENGTH),
    )


def _code(said: object) -> str:
    return _storable_text(said, MAX_MESSAGE_LENGTH)[:MAX_CODE_LENGTH] or "handler_error"


def _details(said: Any) -> Mapping[str, Any] | None:
    """What a handler said about its error. What cannot be kept gives way to the reason."""
    if said is None:
        return None
    try:
        plain = payload.decode(
            payload.encode(said, limit=MAX_DETAILS_BYTES, what="details", limit_name="an error's")
        )
    except Exception as error:  # objects of the user's are asked for their JSON
        return {"details_dropped": _storable_text(error, MAX_MESSAGE_LENGTH)}
    return plain if isinstance(plain, dict) else {"value": plain}


def _traceback(error: BaseException) -> str:
    """As Python prints it, from the handler's own code on: how the worker got there interests nobody."""
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        first = first.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, first or error.__traceback__))
    except Exception as broken:  # formatting runs code of the user's exceptions
        return f"(the traceback could not be formatted: {type(broken).__name__})"


def retry_delay(
    stored: str | None, policy: Retry | None, attempt: int, cause: BaseException, owner: str
) -> float:
    """Seconds until the next attempt: by the policy stored with the job, else by its task's."""
    try:
        chosen = Retry.load(stored) if stored is not None else (policy or DEFAULT_RETRY)
        return chosen.delay(attempt, cause)
    except Exception:
        # A broken policy must not cost the job its retry.
        _log.exception("the retry policy of %s failed; the default is used", owner)
        return DEFAULT_RETRY.delay(attempt, cause)


def _valid_delay(delay: Any) -> float:
    """A delay some handler asked for; nonsense (NaN, negative, text) means now."""
    try:
        seconds = float(delay)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(seconds, MAX_DELAY) if seconds > 0 else 0.0


def _storable_text(said: object, limit: int) -> str:
    """Text every store can keep: no NUL, no lone surrogates, not endless; of whatever a handler said."""
    try:
        text = str(said)
    except Exception as error:  # an exception whose own text raises
        text = f"(its text could not be made: {type(error).__name__})"
    return storable_text(text, limit)
