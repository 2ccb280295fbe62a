"""A job's timeline as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from msgspec import UNSET, Struct, UnsetType

from tidewheel.timeline import Happening, TimelineEntry

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
