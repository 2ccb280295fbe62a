"""Events as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct, UnsetType

from windlass.clock import to_datetime
from windlass.job import Job
from windlass.model import Progress, TopicStats
from windlass.timeline import Happening, TimelineEntry

T = TypeVar("T")


class TopicEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counts of a topic, after they changed."""

    topic: str
    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int
    paused_until: datetime | UnsetType = UNSET


class ErrorShown(Struct, frozen=True):
    """Why an attempt errored or a job ended; what is longer is at ``GET /api/jobs/{id}``."""

    code: str
    message: str


class ProgressShown(Struct, frozen=True, omit_defaults=True):
    """How far a handler says it is."""

    percent: float
    message: str | UnsetType = UNSET
    stage: str | UnsetType = UNSET


class EntryShown(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to a job. ``id`` is the same whenever it is told."""

    id: str
    what: Happening
    at: datetime | UnsetType = UNSET
    until: datetime | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    worker: str | UnsetType = UNSET
    seconds: float | UnsetType = UNSET
    error: ErrorShown | UnsetType = UNSET
    step: str | UnsetType = UNSET
    progress: ProgressShown | UnsetType = UNSET


class JobEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to a job since the event before."""

    id: UUID
    topic: str
    state: str
    attempt: int
    entries: list[EntryShown]
    task: str | UnsetType = UNSET
    tenant: str | UnsetType = UNSET


class GoneEvent(Struct, frozen=True):
    """A job that was deleted or pruned, or is not the listener's to see any more."""

    id: UUID


class Notice(Struct, frozen=True):
    """What a listener should know about its stream: ``reset``, ``trouble``, ``recovered``, ``end``."""

    detail: str


encode: Final = msgspec.json.Encoder().encode


def topic_event(topic: TopicStats) -> bytes:
    return encode(
        TopicEvent(
            topic=topic.topic,
            pending=topic.pending,
            running=topic.running,
            completed=topic.completed,
            failed=topic.failed,
            cancelled=topic.cancelled,
            paused_until=UNSET if topic.paused_until is None else to_datetime(topic.paused_until),
        )
    )


def job_event(job: Job[object], entries: list[TimelineEntry], *, inside: bool) -> bytes:
    """``inside``: for superusers, who see whose it is and which worker has it."""
    return encode(
        JobEvent(
            id=job.id,
            topic=job.topic,
            state=job.shown_state,
            attempt=job.attempt,
            entries=[entry_shown(entry, inside=inside) for entry in entries],
            task=job.task or UNSET,
            tenant=job.tenant if inside else UNSET,
        )
    )


def entry_shown(entry: TimelineEntry, *, inside: bool) -> EntryShown:
    error, progress = entry.error, entry.progress
    return EntryShown(
        id=entry.id,
        what=entry.what,
        at=_given(entry.at),
        until=_given(entry.until),
        attempt=_given(entry.attempt),
        worker=_given(entry.worker) if inside else UNSET,
        seconds=_given(entry.seconds),
        error=UNSET if error is None else ErrorShown(error.code, error.message),
        step=_given(entry.step),
        progress=UNSET if progress is None else _progress_shown(progress),
    )


def _progress_shown(progress: Progress) -> ProgressShown:
    return ProgressShown(progress.percent, _given(progress.message), _given(progress.stage))


def _given(value: T | None) -> T | UnsetType:
    return UNSET if value is None else value
