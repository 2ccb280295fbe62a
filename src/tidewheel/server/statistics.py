"""Counts, times and throughput of the queue."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from tidewheel.clock import to_datetime
from tidewheel.model import FOREVER, Distribution, MinuteStats, TopicStats
from tidewheel.server.names import TenantName
from tidewheel.server.problems import refused
from tidewheel.server.request import Request
from tidewheel.server.route import ROOT, Answer, Permission, Route
from tidewheel.settings import DAY

MAX_TOPICS: Final = 1000
"""Most topics of one answer; more_topics counts the others."""


class StatsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    window: Annotated[
        float, Meta(ge=1, le=366 * DAY, description="Seconds that times and series are about.")
    ] = 3600.0
    tenant: TenantName | None = None


class DistributionShape(Struct, frozen=True):
    """A duration in seconds, summed up; null where nothing was measured."""

    count: int
    average: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class TopicShape(Struct, frozen=True, kw_only=True):
    """One topic's counts. A pause without an end has ``paused`` and no ``paused_until``."""

    topic: str
    pending: int
    running: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    paused: bool
    paused_until: datetime | None


class MinuteShape(Struct, frozen=True):
    """What happened in the minute that begins then."""

    minute: datetime
    enqueued: int
    completed: int
    failed: int
    cancelled: int
    retried: int


class StatsShape(Struct, frozen=True, kw_only=True):
    """The queue as it is now; times and series are over the last ``window_seconds``."""

    pending: int
    running: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    delayed: int
    success_rate: (
        Annotated[float, Meta(description="Completed among completed and failed, in the window.")] | None
    )
    avg_execution_time: Annotated[int, Meta(description="Whole milliseconds, in the window.")] | None
    oldest_due_at: datetime | None
    window_seconds: float
    run_time: DistributionShape
    wait_time: DistributionShape
    topics: tuple[TopicShape, ...]
    more_topics: int
    series: tuple[MinuteShape, ...]


async def stats(request: Request[StatsQuery, None]) -> Answer:
    query = request.query
    found = await request.app.stats(query.window, tenant=chosen_tenant(request, query.tenant))
    average = found.run_time.average
    return Answer(
        StatsShape(
            pending=found.pending,
            running=found.running,
            processing=found.running,
            completed=found.completed,
            failed=found.failed,
            cancelled=found.cancelled,
            delayed=found.delayed,
            success_rate=found.success_rate,
            avg_execution_time=None if average is None else round(average * 1000),
            oldest_due_at=None if found.oldest_due_at is None else to_datetime(found.oldest_due_at),
            window_seconds=found.window_seconds,
            run_time=_distribution(found.run_time),
            wait_time=_distribution(found.wait_time),
            topics=tuple(topic_shape(topic) for topic in found.topics[:MAX_TOPICS]),
            more_topics=max(0, len(found.topics) - MAX_TOPICS),
            series=tuple(minute_shape(minute) for minute in found.series),
        )
    )


def chosen_tenant(request: Request[Any, Any], given: str | None) -> str | None:
    """The tenant a superuser asks about; others have theirs."""
    if given is not None and request.context is not None:
        raise refused("tenant can be chosen by superusers only; leave it out", parameter="tenant")
    return given


def topic_shape(topic: TopicStats) -> TopicShape:
    until = topic.paused_until
    return TopicShape(
        topic=topic.topic,
        pending=topic.pending,
        running=topic.running,
        processing=topic.running,
        completed=topic.completed,
        failed=topic.failed,
        cancelled=topic.cancelled,
        paused=until is not None,
        paused_until=None if until is None or until == FOREVER else to_datetime(until),
    )


def _distribution(found: Distribution) -> DistributionShape:
    return DistributionShape(found.count, found.average, found.p50, found.p95, found.p99)


def minute_shape(found: MinuteStats) -> MinuteShape:
    return MinuteShape(
        to_datetime(found.minute),
        found.enqueued,
        found.completed,
        found.failed,
        found.cancelled,
        found.retried,
    )


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{ROOT}/stats",
        name="stats",
        summary="Counts, times and throughput",
        permission=Permission.READ,
        handler=stats,
        query=StatsQuery,
        answers={200: StatsShape},
        tag="queue",
    ),
)
