"""A job as JSON for programs. Keys are only ever added; they are the names of the Python API."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

from tidewheel.client.job_handle import Attempt, Job, Step
from tidewheel.core import headers, payload
from tidewheel.core.model import BodyFormat, Dependents, JobError, Relative


def job_summary_json(job: Job[Any]) -> dict[str, Any]:
    """What a list knows of a job."""
    progress = job.progress
    return {
        "id": str(job.id),
        "number": job.number,
        "tenant": job.tenant,
        "topic": job.topic,
        "task": job.task,
        "state": str(job.state),
        "shown_state": job.shown_state,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "timeout": job.timeout,
        "key": job.key,
        "correlation_id": job.correlation_id,
        "user_id": job.user_id,
        "service_id": job.service_id,
        "limit_key": job.limit_key,
        "worker": job.worker,
        "cancel_requested": job.cancel_requested,
        "created_at": _iso(job.created_at),
        "run_at": _iso(job.run_at),
        "claimed_at": _iso(job.claimed_at),
        "started_at": _iso(job.started_at),
        "finished_at": _iso(job.finished_at),
        "leased_until": _iso(job.leased_until),
        "progress": progress
        and {"percent": progress.percent, "message": progress.message, "stage": progress.stage},
        "error_summary": job.error_summary,
    }


def job_detail_json(job: Job[Any]) -> dict[str, Any]:
    """A job with its bodies, errors and steps. A payload of bytes is base64, as ``format`` says."""
    entries = headers.read_headers(job.record.headers)
    return {
        **job_summary_json(job),
        "format": str(job.record.format),
        "payload": payload_json(job),
        "result": result_json(job),
        "checkpoint": job.checkpoint,
        "error": job.error and _error(job.error),
        "attempts": [_attempt(attempt) for attempt in job.attempts],
        "steps": [_step(step) for step in job.steps],
        "after": [_relative(parent) for parent in job.after],
        "after_any": job.after_any,
        "schedule": entries.get(headers.SCHEDULE_HEADER),
        "scheduled_for": _iso(headers.fire_time(entries)),
    }


def dependents_json(found: Dependents) -> dict[str, Any]:
    """The jobs that run after one, the first of them, and how many."""
    return {
        "items": [_relative(child) for child in found.jobs],
        "total": found.total.total,
        "total_exact": found.total.exact,
    }


def _relative(relative: Relative) -> dict[str, Any]:
    state = relative.state
    return {"id": str(relative.job_id), "state": state and str(state), "waits": relative.waits}


def payload_json(job: Job[Any]) -> Any:
    """The payload as JSON can carry it."""
    value = job.payload
    if job.record.format is BodyFormat.BYTES and value is not None:
        return base64.b64encode(value).decode("ascii")
    return value


def result_json(job: Job[Any]) -> Any:
    """The stored result, plain: JSON whatever type the task's signature makes of it."""
    return None if job.record.result is None else payload.decode(job.record.result)


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "worker": attempt.worker,
        "started_at": _iso(attempt.started_at),
        "ended_at": _iso(attempt.ended_at),
        "error": _error(attempt.error),
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "output": step.output,
        "attempt": step.attempt,
        "worker": step.worker,
        "started_at": _iso(step.started_at),
        "finished_at": _iso(step.finished_at),
        "seconds": step.seconds,
    }


def _error(error: JobError) -> dict[str, Any]:
    return {
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
        "details": None if error.details is None else dict(error.details),
        "traceback": error.traceback,
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
