"""Settle jobs of a ``JobTable`` under their lease, and end or release a job."""

from __future__ import annotations

from typing import assert_never

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import (
    Cancelled,
    Completed,
    Failed,
    FailureOrigin,
    JobError,
    Released,
    Retried,
    Settlement,
    State,
)
from tidewheel.stores.memory.job_rows import (
    JobRow,
)
from tidewheel.stores.memory.job_table import JobTable
from tidewheel.stores.terminal_errors import (
    CANCELLED_ON_REQUEST,
    summarise_error,
)


def settle(table: JobTable, settlement: Settlement, now: int) -> bool:
    job = table.job_under_lease(settlement.lease, now)
    if job is None:
        return False
    outcome = settlement.outcome
    _measure(table, job, settlement, now)
    match outcome:
        case Completed():
            job.result = outcome.result
            table.finish(job, State.COMPLETED, now)
        case Retried():
            job.keep_attempt(outcome.error, now)
            job.suspect = False  # its worker lived to tell
            if not job.cancel_requested and job.max_attempts is not None and job.attempt >= job.max_attempts:
                table.finish(job, State.FAILED, now)
                return True
            if not job.cancel_requested:
                tally = table.metrics.minute_at(now)
                tally.retried += 1
                tally.lane(job.topic, job.task).retried += 1
            _retry_or_cancel(table, job, outcome.delay, now)
        case Failed():
            job.origin = outcome.origin
            job.buries += outcome.origin is FailureOrigin.BURIED
            if outcome.priority is not None:
                job.priority = outcome.priority
            job.keep_attempt(outcome.error, now)
            table.finish(job, State.FAILED, now)
        case Released():
            release_job(table, job, outcome, now)
        case Cancelled():
            job.keep_attempt(outcome.error, now)
            table.finish(job, State.CANCELLED, now)
        case _:
            assert_never(outcome)
    return True


def cancel_job(table: JobTable, job: JobRow, error: JobError, now: int) -> None:
    """End a job without an attempt that could carry the reason: the summary does."""
    job.error_summary = summarise_error(error)
    table.finish(job, State.CANCELLED, now)


def release_job(table: JobTable, job: JobRow, released: Released, now: int) -> None:
    """Give a running job back. It stays suspect if it was: given back unstarted, it has proved nothing."""
    job.attempt -= 1
    if not job.cancel_requested:
        job.releases += released.counted
        job.reserves -= not released.taken
        if released.priority is not None:
            job.priority = released.priority
    _retry_or_cancel(table, job, released.delay, now)


def _retry_or_cancel(table: JobTable, job: JobRow, delay: float, now: int) -> None:
    if job.cancel_requested:
        cancel_job(table, job, CANCELLED_ON_REQUEST, now)
    elif delay > 0:
        table.return_to_pending(job, now + seconds_to_microseconds(delay), now)
    else:
        # It has been due all along; its wait is measured from there.
        table.return_to_pending(job, job.run_at, now)


def _measure(table: JobTable, job: JobRow, settlement: Settlement, now: int) -> None:
    """How long the handler ran, and how long the job had been due before."""
    if settlement.run_seconds is None:
        return
    run_time = max(0, seconds_to_microseconds(settlement.run_seconds))
    started_at = job.record_start(now - run_time)
    tally = table.metrics.minute_at(now)
    lane = tally.lane(job.topic, job.task)
    wait_time = max(0, started_at - job.run_at)
    tally.wait_time.add(wait_time)
    lane.waits += 1
    lane.wait_us += wait_time
    if isinstance(settlement.outcome, Completed | Retried | Failed):
        tally.run_time.add(run_time)
        lane.runs += 1
        lane.run_us += run_time
