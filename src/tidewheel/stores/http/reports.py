"""Counts, times and workers, as servers tell them."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct, structs

from tidewheel.core.clock import to_microseconds
from tidewheel.core.model import FOREVER, Lane, WorkerRecord
from tidewheel.core.reports import Distribution, MinuteStats, Stats, TaskActivity, TaskStats, TopicStats
from tidewheel.stores.http.api_client import ApiClient
from tidewheel.stores.http.response_models import to_microseconds_or_none

MAX_TOPICS_PER_REQUEST: Final = 1000
"""Of one answer."""


class TopicShape(Struct, kw_only=True):
    topic: str
    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int
    paused: bool
    paused_until: datetime | None


class TopicList(Struct):
    items: list[TopicShape]
    total: int


class MinuteShape(Struct):
    minute: datetime
    enqueued: int
    completed: int
    failed: int
    cancelled: int
    retried: int


class StatsShape(Struct, kw_only=True):
    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int
    delayed: int
    oldest_due_at: datetime | None
    window_seconds: float
    run_time: Distribution
    wait_time: Distribution
    topics: list[TopicShape]
    series: list[MinuteShape]


class LaneShape(Struct, kw_only=True):
    topic: str
    task: str
    pending: int
    due: int
    running: int
    completed: int
    failed: int
    cancelled: int
    enqueued_in_window: int | None
    completed_in_window: int | None
    failed_in_window: int | None
    cancelled_in_window: int | None
    retried_in_window: int | None
    average_run_seconds: float | None
    average_wait_seconds: float | None
    series: list[MinuteShape]


class LaneList(Struct):
    items: list[LaneShape]


class WorkerShape(Struct, kw_only=True):
    name: str
    host: str
    pid: int
    version: str
    started_at: datetime
    seen_at: datetime
    topics: list[str]
    tasks: list[str]
    more_lanes: int
    concurrency: int
    running: int
    claimed: int
    stuck: int
    loop_lag_seconds: float
    polling: bool
    ran: int
    completed: int
    failed: int
    lost: int


class WorkerList(Struct):
    items: list[WorkerShape]


async def stats(client: ApiClient, window_seconds: float, tenant: str | None) -> Stats:
    found = await client.get("/stats", StatsShape, {"window": window_seconds, "tenant": tenant})
    fields = structs.asdict(found)
    fields["topics"] = tuple(map(_topic, found.topics))
    fields["series"] = tuple(map(_minute, found.series))
    fields["oldest_due_at"] = to_microseconds_or_none(found.oldest_due_at)
    return Stats(**fields)


async def topics(client: ApiClient, tenant: str | None) -> list[TopicStats]:
    found: list[TopicStats] = []
    while True:
        query = {"tenant": tenant, "limit": MAX_TOPICS_PER_REQUEST, "offset": len(found)}
        page = await client.get("/topics", TopicList, query)
        found += map(_topic, page.items)
        if not page.items or len(found) >= page.total:
            return found


async def lanes(client: ApiClient, window_seconds: float, tenant: str | None) -> list[TaskStats]:
    query = {"window": window_seconds, "tenant": tenant}
    return [_lane(shape) for shape in (await client.get("/lanes", LaneList, query)).items]


async def workers(client: ApiClient) -> list[WorkerRecord]:
    found = await client.get("/workers", WorkerList)
    return [_worker(shape) for shape in found.items]


def _topic(shape: TopicShape) -> TopicStats:
    until = to_microseconds_or_none(shape.paused_until) if shape.paused_until is not None else FOREVER
    return TopicStats(
        shape.topic,
        shape.pending,
        shape.running,
        shape.completed,
        shape.failed,
        shape.cancelled,
        until if shape.paused else None,
    )


def _minute(shape: MinuteShape) -> MinuteStats:
    return MinuteStats(
        to_microseconds(shape.minute),
        shape.enqueued,
        shape.completed,
        shape.failed,
        shape.cancelled,
        shape.retried,
    )


def _lane(shape: LaneShape) -> TaskStats:
    activity = None
    if shape.enqueued_in_window is not None:
        runs, waits = shape.average_run_seconds, shape.average_wait_seconds
        activity = TaskActivity(
            enqueued=shape.enqueued_in_window,
            completed=shape.completed_in_window or 0,
            failed=shape.failed_in_window or 0,
            cancelled=shape.cancelled_in_window or 0,
            retried=shape.retried_in_window or 0,
            # Averages are told, and not of how many: as one they stay what they are.
            runs=0 if runs is None else 1,
            run_seconds=runs or 0.0,
            waits=0 if waits is None else 1,
            wait_seconds=waits or 0.0,
            series=tuple(map(_minute, shape.series)),
        )
    return TaskStats(
        shape.topic,
        shape.task,
        shape.pending,
        shape.due,
        shape.running,
        shape.completed,
        shape.failed,
        shape.cancelled,
        activity,
    )


def _worker(shape: WorkerShape) -> WorkerRecord:
    """Topics and tasks are told apart; which of them belong together is not."""
    lanes = [Lane(topic) for topic in shape.topics]
    lanes += [Lane(topic, task) for topic in shape.topics[:1] for task in shape.tasks]
    fields = structs.asdict(shape)
    for told in ("topics", "tasks"):
        del fields[told]
    fields["started_at"] = to_microseconds(shape.started_at)
    fields["seen_at"] = to_microseconds(shape.seen_at)
    return WorkerRecord(**fields, lanes=tuple(lanes))
