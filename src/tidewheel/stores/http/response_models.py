"""What servers tell of jobs, as our records. Fields that are not read here are not named here.

Not told are numbers and fences of jobs (they would tell of other tenants), what is counted about them, and
what the server's setting ``redact`` hides; those have their defaults here.
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from tidewheel.core.clock import to_microseconds
from tidewheel.core.model import (
    AttemptRecord,
    BodyFormat,
    Count,
    Dependents,
    DerivedState,
    JobError,
    JobRecord,
    Progress,
    Relative,
    State,
    StepRecord,
)
from tidewheel.errors import StoreError


class ProgressShape(Struct):
    percent: float
    message: str | None = None
    stage: str | None = None


class JobSummary(Struct, kw_only=True):
    id: UUID
    topic: str
    task: str
    tenant: str
    state: State
    shown_state: str
    priority: int
    attempt: int
    max_attempts: int | None
    timeout: float | None
    key: str | None
    correlation_id: str | None
    user_id: str | None
    service_id: str | None
    limit_key: str | None = None
    worker: str | None
    cancel_requested: bool
    created_at: datetime
    updated: datetime
    run_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    locked_until: datetime | None
    progress: ProgressShape | None
    last_error: str | None


class ErrorShape(Struct):
    code: str
    message: str
    retryable: bool = True
    details: dict[str, Any] | None = None
    traceback: str | None = None


class AttemptShape(Struct):
    attempt: int
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    error: ErrorShape


class StepShape(Struct):
    name: str
    attempt: int
    worker: str | None
    started_at: datetime
    finished_at: datetime
    output: Raw | UnsetType = UNSET


class RelativeShape(Struct):
    id: UUID
    state: State | None
    waits: bool


class DependentsShape(Struct):
    items: list[RelativeShape]
    total: int
    total_exact: bool


class JobDetail(JobSummary, kw_only=True):
    format: BodyFormat
    attempts: list[AttemptShape]
    steps: list[StepShape]
    after: list[RelativeShape]
    after_any: bool
    dependents: DependentsShape
    payload: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    checkpoint: Raw | UnsetType = UNSET


class JobList(Struct, kw_only=True):
    items: list[JobSummary]
    total: int
    total_exact: bool
    cursor: str | None
    partial: bool
    searched_back_to: datetime | None


class JobResult(Struct, kw_only=True):
    state: State
    result: Raw | UnsetType = UNSET


def to_record(shape: JobSummary) -> JobRecord:
    """A job of a list."""
    return JobRecord(**_common(shape), blocked=int(shape.shown_state == DerivedState.BLOCKED))


def to_full_record(shape: JobDetail, result: bytes | None) -> JobRecord:
    """A job with its bodies and history. ``result``: as it was told apart, where it had to be."""
    payload = decode_body(shape.payload)
    if payload is not None and shape.format is BodyFormat.BYTES:
        payload = decode_base64(payload)
    told = _none_if_null(decode_body(shape.result)) if shape.state is State.COMPLETED else None
    return JobRecord(
        **_common(shape),
        blocked=sum(parent.waits for parent in shape.after),
        format=shape.format,
        payload=payload,
        result=result if told is None else told,
        checkpoint=_none_if_null(decode_body(shape.checkpoint)),
        attempts=tuple(_attempt(kept) for kept in shape.attempts),
        steps=tuple(to_step(kept) for kept in shape.steps),
        after=tuple(_relative(parent) for parent in shape.after),
        after_any=shape.after_any,
    )


def to_dependents(shape: DependentsShape, limit: int) -> Dependents:
    jobs = tuple(_relative(child) for child in shape.items[:limit])
    return Dependents(jobs, Count(shape.total, shape.total_exact))


def to_step(shape: StepShape) -> StepRecord:
    return StepRecord(
        shape.name,
        decode_body(shape.output) or b"null",  # not told to those who do not manage jobs
        shape.attempt,
        shape.worker,
        to_microseconds(shape.started_at),
        to_microseconds(shape.finished_at),
    )


def decode_body(raw: Raw | UnsetType) -> bytes | None:
    """A body as it came; None when it was not told."""
    return None if raw is UNSET else bytes(raw)


def decode_base64(body: bytes) -> bytes:
    """Bytes, which travel as text in base64."""
    try:
        return base64.b64decode(msgspec.json.decode(body, type=str), validate=True)
    except (msgspec.MsgspecError, ValueError, binascii.Error):
        raise StoreError("the server told a payload of bytes that is no text in base64") from None


def to_microseconds_or_none(told: datetime | None) -> int | None:
    return None if told is None else to_microseconds(told)


def _none_if_null(body: bytes | None) -> bytes | None:
    """The server writes null for what is not there."""
    return None if body == b"null" else body


def _common(shape: JobSummary) -> dict[str, Any]:
    progress = shape.progress
    return {
        "id": shape.id,
        "number": 0,
        "tenant": shape.tenant,
        "topic": shape.topic,
        "task": shape.task,
        "state": shape.state,
        "priority": shape.priority,
        "attempt": shape.attempt,
        "max_attempts": shape.max_attempts,
        "created_at": to_microseconds(shape.created_at),
        "run_at": to_microseconds(shape.run_at),
        "claimed_at": to_microseconds_or_none(shape.claimed_at),
        "started_at": to_microseconds_or_none(shape.started_at),
        "finished_at": to_microseconds_or_none(shape.finished_at),
        "leased_until": to_microseconds_or_none(shape.locked_until),
        "worker": shape.worker,
        "timeout": shape.timeout,
        "key": shape.key,
        "correlation_id": shape.correlation_id,
        "user_id": shape.user_id,
        "service_id": shape.service_id,
        "cancel_requested": shape.cancel_requested,
        "error_summary": shape.last_error,
        "progress": None
        if progress is None
        else Progress(progress.percent, progress.message, progress.stage, to_microseconds(shape.updated)),
        "limit_key": shape.limit_key,
    }


def _attempt(kept: AttemptShape) -> AttemptRecord:
    error = kept.error
    return AttemptRecord(
        kept.attempt,
        kept.worker,
        to_microseconds_or_none(kept.started_at),
        to_microseconds(kept.ended_at),
        JobError(error.code, error.message, error.retryable, error.details, error.traceback),
    )


def _relative(shape: RelativeShape) -> Relative:
    return Relative(shape.id, shape.state, shape.waits)
