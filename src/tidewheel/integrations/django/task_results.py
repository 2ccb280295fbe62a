"""A job as Django's interface shows it: a ``TaskResult``."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final

from django.utils import timezone

from tidewheel.core import payload
from tidewheel.core.clock import to_datetime
from tidewheel.core.model import JobError, JobRecord, State
from tidewheel.integrations.django.compat import (
    TASK_MAX_PRIORITY,
    TASK_MIN_PRIORITY,
    TaskError,
    TaskResult,
    TaskResultStatus,
)

MAX_WORKER_IDS: Final = 1000
"""Longest list of workers; a job that is tried more often shows as many attempts."""

_STATUS: Final = {
    State.PENDING: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}
_EXCEPTION_CLASSES: Final = {
    "job_timeout": "builtins.TimeoutError",
    "transaction_timeout": "builtins.TimeoutError",
    "job_canceled": "tidewheel.errors.JobCancelled",
    "expired": "tidewheel.errors.JobCancelled",
}
"""Errors that nobody raised, by what Tidewheel raises to whoever waits for such a job."""

_class_name = re.compile(r"[\w.<>]+")


def make_task_result(record: JobRecord, task: Any, backend: str) -> Any:
    """Everything the store knows of a job, as the result of its task."""
    called = {} if record.payload is None else payload.decode(record.payload)
    first = min((kept.started_at for kept in record.attempts if kept.started_at), default=record.started_at)
    last = max((kept.started_at for kept in record.attempts if kept.started_at), default=None)
    errors = [make_task_error(kept.error) for kept in record.attempts]
    newest = record.newest_error
    if newest is not None and not (record.attempts and record.attempts[-1].error is newest):
        errors.append(make_task_error(newest))
    result = TaskResult(
        task=configure_task(
            task,
            priority=record.priority,
            topic=record.topic,
            # Later it is the time of the next attempt.
            run_at=record.run_at if record.run_at > record.created_at and not record.attempts else None,
        ),
        id=str(record.id),
        status=_STATUS[record.state],
        enqueued_at=to_project_time(record.created_at),
        started_at=to_project_time(first),
        finished_at=to_project_time(record.finished_at),
        last_attempted_at=to_project_time(record.started_at or last),
        args=called.get("args", []),
        kwargs=called.get("kwargs", {}),
        backend=backend,
        errors=errors,
        worker_ids=_workers(record),
    )
    if record.state is State.COMPLETED and record.result is not None:
        object.__setattr__(result, "_return_value", payload.decode(record.result))
    return result


def configure_task(task: Any, *, priority: int, topic: str, run_at: int | None = None) -> Any:
    """The task with the priority, queue and time of a job."""
    changes: dict[str, Any] = {"priority": min(max(priority, TASK_MIN_PRIORITY), TASK_MAX_PRIORITY)}
    queues = task.get_backend().queues
    if not queues or topic in queues:  # else an operator has moved it, and a task cannot say so
        changes["queue_name"] = topic
    if run_at is not None:
        changes["run_after"] = to_project_time(run_at)
    same = all(getattr(task, name) == value for name, value in changes.items())
    return task if same else task.using(**changes)  # which checks everything again


def make_task_error(error: JobError) -> Any:
    """An error with its class as far as it is known, and its traceback, or what there is to say instead."""
    said = error.message.partition(":")[0]
    told = error.traceback or ""
    path = _EXCEPTION_CLASSES.get(error.code, "tidewheel.errors.TaskError")
    # Python begins the last line of a traceback with the class; the message does so, too, if it was raised.
    # Lines about a group of errors begin with a bar.
    if _class_name.fullmatch(said) and (f"\n{said}" in f"\n{told}" or f"\n  | {said}" in told):
        path = said if "." in said else f"builtins.{said}"
    return TaskError(exception_class_path=path, traceback=told or f"{error.code}: {error.message}")


def to_project_time(microseconds: int | None) -> datetime | None:
    """A time of the store as the project wants its times: aware, or local with ``USE_TZ = False``."""
    return None if microseconds is None else in_project_zone(to_datetime(microseconds))


def in_project_zone(time: datetime) -> datetime:
    """The same for an aware time."""
    return time if timezone.is_aware(timezone.now()) else timezone.make_naive(time)


def _workers(record: JobRecord) -> list[str]:
    """Who ran each attempt. Of many only the first and the last are kept; for the others the last stands."""
    known = {kept.attempt: kept.worker for kept in record.attempts}
    last = record.worker or ""
    return [known.get(number) or last for number in range(1, min(record.attempt, MAX_WORKER_IDS) + 1)]
