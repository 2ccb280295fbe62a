"""The words and records a store writes by itself when a job ends or comes back, the same on every store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from tidewheel.core.clock import to_datetime
from tidewheel.core.model import (
    AttemptRecord,
    FailureOrigin,
    JobError,
    Progress,
    RescuedJob,
    State,
)
from tidewheel.errors import TransactionTimeout
from tidewheel.stores.bounds import KEPT_ERRORS_FIRST, KEPT_ERRORS_LAST, MAX_SUMMARY_LENGTH
from tidewheel.stores.protocol import OnRescued

_log = logging.getLogger("tidewheel.stores")

CANCELLED_ON_REQUEST: Final = JobError("job_canceled", "cancelled on request", retryable=False)
# Without the worker's name: that is beside it in the attempt, and not for every eye that may see the error.
WORKER_LOST: Final = (
    "its worker's lease ended during attempt {attempt}; "
    "the worker was killed, stopped or cut off from the store"
)
EXPIRED: Final = "not started in time (due since {due})"
PARENT_END_PHRASES: Final = {State.FAILED: "failed", State.CANCELLED: "was cancelled", None: "was deleted"}


def worker_lost_error(attempt: int) -> JobError:
    """Why an attempt ended that nobody settled."""
    return JobError("worker_lost", WORKER_LOST.format(attempt=attempt))


def expired_error(run_at: int) -> JobError:
    """Why a job was dropped unstarted."""
    due = to_datetime(run_at).isoformat(timespec="seconds")
    return JobError("expired", EXPIRED.format(due=due), retryable=False)


def notify_rescued(listener: OnRescued | None, jobs: Sequence[RescuedJob]) -> None:
    """Of jobs that were rescued, which is written: whoever listens must not make a verb fail that did not."""
    if listener is None:
        return
    try:
        listener(jobs)
    except Exception:
        _log.exception("who was told of %d rescued jobs failed", len(jobs))


def parent_failed_error(parent: UUID, state: State | None) -> JobError:
    """Why a job was cancelled that was to run after another; None = that was deleted before it had ended."""
    return JobError(
        "parent_failed", f"job {parent}, which it waited for, {PARENT_END_PHRASES[state]}", retryable=False
    )


def transaction_timeout_error(seconds: float) -> TransactionTimeout:
    """Why a handler's transaction was rolled back under its hands."""
    return TransactionTimeout(
        f"the transaction was open for longer than {seconds:g} s (transaction_seconds) and was rolled back; "
        "do what takes long before its first statement, or allow it more time"
    )


def summarise_error(error: JobError) -> str:
    """``error_summary``: enough of an error for a line in a list."""
    return f"{error.code}: {error.message}"[:MAX_SUMMARY_LENGTH]


def displayed_progress(state: State, reported: Progress | None, finished_at: int | None) -> Progress | None:
    """How far a job is, as every store shows it: whatever its handler last reported, done is done.

    Derived on reading, so that completing a job writes nothing for it.
    """
    if state is not State.COMPLETED:
        return reported
    return replace(reported or Progress(0.0, updated_at=finished_at or 0), percent=100.0)


def trim_errors(records: Sequence[AttemptRecord]) -> tuple[AttemptRecord, ...]:
    """The first and the last ten. A job that errs for ever must not grow for ever."""
    if len(records) <= KEPT_ERRORS_FIRST + KEPT_ERRORS_LAST:
        return tuple(records)
    return (*records[:KEPT_ERRORS_FIRST], *records[-KEPT_ERRORS_LAST:])


def retention_seconds(
    state: State, origin: FailureOrigin | None, retention: float | None, retention_failed: float | None
) -> float | None:
    """Seconds to keep a job that ended like this; None = for ever."""
    if state is not State.FAILED:
        return retention
    return None if origin is FailureOrigin.BURIED else retention_failed
