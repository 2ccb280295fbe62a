"""Jobs and their timelines as JSON over HTTP.

Minor versions add fields; only a major version removes one. Beside our own names, a job has the names of the
designs that Tidewheel grew from: ``status``, ``retries``, ``max_retries``, ``locked_until``, ``last_error``,
``created``, ``updated``. Values that reveal other tenants (numbers, fences) are left out. ``worker`` is for
superusers only.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, Literal, TypeVar, cast
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType

from tidewheel.access.caller import Caller
from tidewheel.client.job_handle import Job
from tidewheel.core import headers, payload
from tidewheel.core.clock import to_datetime
from tidewheel.core.model import (
    AttemptRecord,
    BodyFormat,
    Dependents,
    JobError,
    JobRecord,
    Relative,
    StepRecord,
)
from tidewheel.core.timeline import Happening, TimelineEntry
from tidewheel.server.field_types import DerivedStateName, StateName
from tidewheel.server.redaction import Redaction

T = TypeVar("T")


class BriefError(Struct, frozen=True):
    """Why an attempt errored or a job ended; the rest of it is with the job's attempts."""

    code: str
    message: str


class BriefProgress(Struct, frozen=True, omit_defaults=True):
    """How far a handler says it is."""

    percent: float
    message: str | UnsetType = UNSET
    stage: str | UnsetType = UNSET


class EntryShape(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a job. ``id`` is the same whenever it is told."""

    id: str
    what: Happening
    at: datetime | UnsetType = UNSET
    until: datetime | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    worker: str | UnsetType = UNSET
    seconds: float | UnsetType = UNSET
    error: BriefError | UnsetType = UNSET
    step: str | UnsetType = UNSET
    progress: BriefProgress | UnsetType = UNSET


def entry_shape(entry: TimelineEntry, *, superuser: bool) -> EntryShape:
    """What there is to say of it; workers are named to superusers."""
    error, progress = entry.error, entry.progress
    return EntryShape(
        id=entry.id,
        what=entry.what,
        at=_given(entry.at),
        until=_given(entry.until),
        attempt=_given(entry.attempt),
        worker=_given(entry.worker) if superuser else UNSET,
        seconds=_given(entry.seconds),
        error=UNSET if error is None else BriefError(error.code, error.message),
        step=_given(entry.step),
        progress=UNSET
        if progress is None
        else BriefProgress(progress.percent, _given(progress.message), _given(progress.stage)),
    )


def _given(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value


class ProgressShape(Struct, frozen=True, kw_only=True):
    """How far a running job says it is."""

    percent: float
    message: str | None
    stage: str | None


class JobSummary(Struct, frozen=True, kw_only=True):
    """What a list tells of a job."""

    id: UUID
    topic: str
    task: str
    tenant: str
    state: StateName
    status: StateName
    shown_state: DerivedStateName
    priority: int
    attempt: int
    max_attempts: int | None
    retries: int
    max_retries: int | None
    timeout: float | None
    key: str | None
    correlation_id: str | None
    user_id: str | None
    service_id: str | None
    limit_key: str | None
    worker: str | None
    cancel_requested: bool
    created: datetime
    created_at: datetime
    updated: datetime
    run_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    locked_until: datetime | None
    progress: ProgressShape | None
    last_error: str | None


class ErrorShape(Struct, frozen=True, kw_only=True):
    """Why an attempt errored. The traceback needs the scope ``tracebacks``, or a superuser."""

    code: str
    message: str
    retryable: bool
    details: Any = None
    traceback: str | None = None


class AttemptShape(Struct, frozen=True, kw_only=True):
    """One attempt that did not complete."""

    attempt: int
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    error: ErrorShape


class StepShape(Struct, frozen=True, kw_only=True):
    """One finished step; its output is for those who manage jobs."""

    name: str
    attempt: int
    worker: str | None
    started_at: datetime
    finished_at: datetime
    seconds: float
    output: Any | UnsetType = UNSET


class RelativeShape(Struct, frozen=True, kw_only=True):
    """A job that another one runs after, or the other way round. ``state`` is null when it was deleted."""

    id: UUID
    state: StateName | None
    waits: bool


class DependentsShape(Struct, frozen=True, kw_only=True):
    """The first of the jobs that run after one, and how many there are."""

    items: tuple[RelativeShape, ...]
    total: int
    total_exact: bool


class JobDetail(JobSummary, frozen=True, kw_only=True):
    """A job with its errors and steps; bodies are for those who manage jobs, and redacted.

    ``schedule`` made it, if one did, for the moment ``scheduled_for``.
    """

    format: Literal["json", "bytes"]
    error: ErrorShape | None
    attempts: tuple[AttemptShape, ...]
    steps: tuple[StepShape, ...]
    timeline: tuple[EntryShape, ...]
    after: tuple[RelativeShape, ...]
    after_any: bool
    dependents: DependentsShape
    schedule: str | None
    scheduled_for: datetime | None
    payload: Any | UnsetType = UNSET
    result: Any | UnsetType = UNSET
    checkpoint: Any | UnsetType = UNSET


class JobSerializer:
    """Turns jobs into what one caller may see of them."""

    def __init__(self, redaction: Redaction, now: int, caller: Caller) -> None:
        self._redaction = redaction
        self._now = now
        self._show_payloads = caller.sees_payloads
        self._show_tracebacks = caller.sees_tracebacks
        self._superuser = caller.superuser

    def summary(self, job: Job[Any]) -> JobSummary:
        return JobSummary(**self._common(job.record))

    def detail(self, job: Job[Any], dependents: Dependents) -> JobDetail:
        record = job.record
        error = record.newest_error
        entries = headers.read_headers(record.headers)
        bodies: dict[str, Any] = {}
        if self._show_payloads:
            bodies = {
                "payload": self.payload(record),
                "result": self.redacted_body(record.result),
                "checkpoint": self.redacted_body(record.checkpoint),
            }
        return JobDetail(
            **self._common(record),
            format=cast("Literal['json', 'bytes']", str(record.format)),
            error=None if error is None else self.error(error),
            attempts=tuple(self._attempt(kept) for kept in record.attempts),
            steps=tuple(self._step(kept) for kept in record.steps),
            timeline=tuple(entry_shape(entry, superuser=self._superuser) for entry in job.timeline),
            after=tuple(_relative(parent) for parent in record.after),
            after_any=record.after_any,
            dependents=DependentsShape(
                items=tuple(_relative(child) for child in dependents.jobs),
                total=dependents.total.total,
                total_exact=dependents.total.exact,
            ),
            schedule=entries.get(headers.SCHEDULE_HEADER),
            scheduled_for=headers.fire_time(entries),
            **bodies,
        )

    def payload(self, record: JobRecord) -> Any:
        """JSON as it is, bytes as base64; None for a job of the lane, whose payload is no JSON."""
        if record.payload is not None and record.format is BodyFormat.BYTES:
            return base64.b64encode(record.payload).decode("ascii")
        return self.redacted_body(record.payload)

    def redacted_body(self, stored: bytes | None) -> Any:
        """A stored body without what is hidden. Objects of the lane are in no form to show."""
        if stored is None or type(stored) is not bytes:
            return None
        return self._redaction.apply(payload.decode(stored))

    def error(self, error: JobError) -> ErrorShape:
        return ErrorShape(
            code=error.code,
            message=error.message,
            retryable=error.retryable,
            details=None if error.details is None else self._redaction.apply(dict(error.details)),
            traceback=error.traceback if self._show_tracebacks else None,
        )

    def _common(self, record: JobRecord) -> dict[str, Any]:
        progress = record.progress
        state = str(record.state)
        created = to_datetime(record.created_at)
        return {
            "id": record.id,
            "topic": record.topic,
            "task": record.task,
            "tenant": record.tenant,
            "state": state,
            "status": state,
            "shown_state": str(record.shown_state(self._now)),
            "priority": record.priority,
            "attempt": record.attempt,
            "max_attempts": record.max_attempts,
            "retries": max(record.attempt - 1, 0),
            "max_retries": None if record.max_attempts is None else record.max_attempts - 1,
            "timeout": record.timeout,
            "key": record.key,
            "correlation_id": record.correlation_id,
            "user_id": record.user_id,
            "service_id": record.service_id,
            "limit_key": record.limit_key,
            "worker": self._worker(record.worker),
            "cancel_requested": record.cancel_requested,
            "created": created,
            "created_at": created,
            "updated": to_datetime(_updated(record)),
            "run_at": to_datetime(record.run_at),
            "claimed_at": _moment(record.claimed_at),
            "started_at": _moment(record.started_at),
            "finished_at": _moment(record.finished_at),
            "locked_until": _moment(record.leased_until),
            "progress": None
            if progress is None
            else ProgressShape(percent=progress.percent, message=progress.message, stage=progress.stage),
            "last_error": record.error_summary,
        }

    def _worker(self, name: str | None) -> str | None:
        return name if self._superuser else None

    def _attempt(self, kept: AttemptRecord) -> AttemptShape:
        return AttemptShape(
            attempt=kept.attempt,
            worker=self._worker(kept.worker),
            started_at=_moment(kept.started_at),
            ended_at=to_datetime(kept.ended_at),
            error=self.error(kept.error),
        )

    def _step(self, kept: StepRecord) -> StepShape:
        return StepShape(
            name=kept.name,
            attempt=kept.attempt,
            worker=self._worker(kept.worker),
            started_at=to_datetime(kept.started_at),
            finished_at=to_datetime(kept.finished_at),
            seconds=(kept.finished_at - kept.started_at) / 1_000_000,
            output=self.redacted_body(kept.output) if self._show_payloads else UNSET,
        )


def _relative(relative: Relative) -> RelativeShape:
    state = relative.state
    return RelativeShape(
        id=relative.job_id, state=None if state is None else str(state), waits=relative.waits
    )


def _updated(record: JobRecord) -> int:
    """When anything about it last changed, as far as the record tells."""
    moments = (
        record.created_at,
        record.claimed_at,
        record.started_at,
        record.finished_at,
        record.attempts[-1].ended_at if record.attempts else None,
        record.progress.updated_at if record.progress is not None else None,
    )
    return max(moment for moment in moments if moment is not None)


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else to_datetime(microseconds)
