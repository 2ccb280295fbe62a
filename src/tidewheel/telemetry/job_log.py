"""A log line for each step in a job's life: queued, claimed, reclaimed, and how each attempt ended.

For those who ask for them, by the setting ``log_jobs``: a busy worker would log more than it works. No field
comes from a payload, a result or an error's message, where secrets may be.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from tidewheel.core.model import (
    Cancelled,
    Claimed,
    Completed,
    Enqueued,
    Failed,
    NewJob,
    Released,
    RescuedJob,
    Retried,
    Settlement,
    State,
)

_log = logging.getLogger("tidewheel.lifecycle")


def log_enqueued(jobs: Iterable[tuple[NewJob, Enqueued]]) -> None:
    """These were written; not those that found their key taken."""
    for job, answer in jobs:
        if not answer.duplicate:
            fields = _fields("queued", job, State.PENDING)
            _log.info("queued", extra={**fields, "job_id": str(answer.job_id)})


def log_claimed(job: Claimed, worker: str) -> None:
    _log.info("claimed", extra=_log_attempt("claimed", job, worker, State.RUNNING))


def log_rescued(jobs: Iterable[RescuedJob]) -> None:
    """A worker did not come back, or a job was not started in time: what became of each of these."""
    for job in jobs:
        event = "reclaimed" if job.state is State.PENDING else job.state.value
        more: dict[str, Any] = {"job_id": str(job.job_id), "error_code": job.code}
        if job.worker is not None:
            more.update(attempt=job.attempt, worker=job.worker)
        _log.info(event, extra={**_fields(event, job, job.state), **more})


def log_settled(job: Claimed, settlement: Settlement, worker: str) -> None:
    """The store has taken how this attempt ended."""
    outcome = settlement.outcome
    more: dict[str, Any] = {"run_seconds": settlement.run_seconds}
    match outcome:
        case Completed():
            event, state = "completed", State.COMPLETED
        case Retried(delay=delay, error=error):
            event, state = "retried", State.PENDING
            more.update(error_code=error.code, delay_seconds=delay)
        case Failed(error=error):
            event, state = "failed", State.FAILED
            more.update(error_code=error.code)
        case Cancelled(error=error):
            event, state = "cancelled", State.CANCELLED
            more.update(error_code=error.code)
        case Released(delay=delay):
            event, state = "released", State.PENDING
            more.update(delay_seconds=delay)
    _log.info(event, extra={**_log_attempt(event, job, worker, state), **more})


def _log_attempt(event: str, job: Claimed, worker: str, state: State) -> dict[str, Any]:
    return {
        **_fields(event, job, state),
        "job_id": str(job.lease.job_id),
        "attempt": job.attempt,
        "worker": worker,
    }


def _fields(event: str, job: NewJob | Claimed | RescuedJob, state: State) -> dict[str, Any]:
    return {
        "event": event,
        "task": job.task or job.topic,
        "topic": job.topic,
        "tenant": job.tenant,
        "correlation_id": job.correlation_id,
        "state": state.value,
    }
