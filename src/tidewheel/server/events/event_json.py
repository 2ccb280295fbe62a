"""Events as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct, UnsetType

from tidewheel.client.job_handle import Job
from tidewheel.core.clock import to_datetime
from tidewheel.core.reports import TopicStats
from tidewheel.core.timeline import TimelineEntry
from tidewheel.server.job_json import EntryShape, entry_shape


class TopicEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counts of a topic, after they changed."""

    topic: str
    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int
    paused_until: datetime | UnsetType = UNSET


class JobEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to a job since the event before."""

    id: UUID
    topic: str
    state: str
    attempt: int
    entries: list[EntryShape]
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


def job_event(job: Job[Any], entries: list[TimelineEntry], *, superuser: bool) -> bytes:
    """Superusers see whose it is, and which worker has it."""
    return encode(
        JobEvent(
            id=job.id,
            topic=job.topic,
            state=job.shown_state,
            attempt=job.attempt,
            entries=[entry_shape(entry, superuser=superuser) for entry in entries],
            task=job.task or UNSET,
            tenant=job.tenant if superuser else UNSET,
        )
    )
