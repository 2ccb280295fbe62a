"""Reports for operators: statistics, attention, the six questions, failures, lanes.

Statistics are counts, times and throughput of the queue and its topics. Failures are grouped by error,
throughput by topic and task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from tidewheel.admin.reports.answers import (
    Attention,
    Duplicates,
    FailedJobs,
    JobDurations,
    LastHour,
    Outstanding,
    StuckJobs,
)
from tidewheel.admin.reports.questions import QUESTION_TEXTS, Questions
from tidewheel.core.clock import DAY, to_datetime
from tidewheel.core.model import FOREVER
from tidewheel.core.reports import Distribution, MinuteStats, TaskStats, TopicStats
from tidewheel.server.field_types import TenantName
from tidewheel.server.problems import invalid_input_problem
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.server.routes.filter_routes import JobsFilter

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


async def stats(request: Request[StatsQuery, None]) -> Response:
    query = request.query
    found = await request.app.stats(query.window, tenant=requested_tenant(request, query.tenant))
    average = found.run_time.average
    return Response(
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


def requested_tenant(request: Request[Any, Any], given: str | None) -> str | None:
    """The tenant a superuser asks about; others have theirs."""
    if given is not None and request.context is not None:
        raise invalid_input_problem(
            "tenant can be chosen by superusers only; leave it out", parameter="tenant"
        )
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
        path=f"{API_ROOT}/stats",
        name="stats",
        summary="Counts, times and throughput",
        permission=Permission.READ,
        handler=stats,
        query=StatsQuery,
        responses={200: StatsShape},
        tag="queue",
    ),
)


MAX_LANES: Final = 1000
"""Most lanes of one answer; more_lanes counts the others."""

Window = Annotated[float, Meta(ge=1, le=366 * DAY, description="Seconds.")]


class QuestionQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenant: TenantName | None = None


class FailuresQuery(JobsFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    window: Window = 3600.0
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class LanesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    window: Window = 3600.0
    tenant: TenantName | None = None


class LaneShape(Struct, frozen=True, kw_only=True):
    """The jobs of one task in one topic: how many there are, and what happened in the window.

    What happened is null when a tenant asks: minutes are kept of all tenants together.
    """

    topic: str
    task: str
    pending: int
    due: int
    running: int
    processing: int
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
    series: tuple[MinuteShape, ...]


class LaneList(Struct, frozen=True):
    """Lanes by topic and task."""

    items: tuple[LaneShape, ...]
    more_lanes: int
    window_seconds: float


class HourOfLane(Struct, frozen=True, kw_only=True):
    """What one task did in one topic."""

    topic: str
    task: str
    enqueued: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    average_run_seconds: float | None
    series: tuple[MinuteShape, ...]


class Hour(Struct, frozen=True, kw_only=True):
    """What ran in the last hour."""

    answer: str
    enqueued: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    exact: bool
    series: tuple[MinuteShape, ...]
    lanes: tuple[HourOfLane, ...]


class QuestionShape(Struct, frozen=True):
    """A question and where its answer is."""

    name: str
    question: str
    path: str


class QuestionList(Struct, frozen=True):
    items: tuple[QuestionShape, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One of the six."""

    name: str
    answer_type: type
    ask: Callable[[Questions, str | None], Awaitable[Any]]

    @property
    def question(self) -> str:
        return QUESTION_TEXTS[self.name]


QUESTIONS: Final = (
    Question("outstanding", Outstanding, lambda asked, tenant: asked.outstanding(tenant=tenant)),
    Question("failed", FailedJobs, lambda asked, tenant: asked.failed(tenant=tenant)),
    Question("stuck", StuckJobs, lambda asked, tenant: asked.stuck(tenant=tenant)),
    Question("durations", JobDurations, lambda asked, tenant: asked.durations(tenant=tenant)),
    Question("duplicates", Duplicates, lambda asked, tenant: asked.duplicates(tenant=tenant)),
    Question("last_hour", Hour, lambda asked, tenant: asked.last_hour(tenant=tenant)),
)


async def list_questions(request: Request[NoQuery, None]) -> Response:
    places = (
        QuestionShape(asked.name, asked.question, f"{request.mount_path}{API_ROOT}/questions/{asked.name}")
        for asked in QUESTIONS
    )
    return Response(QuestionList(tuple(places)))


def _make_handler(asked: Question) -> Callable[[Request[QuestionQuery, None]], Awaitable[Response]]:
    async def answer(request: Request[QuestionQuery, None]) -> Response:
        tenant = requested_tenant(request, request.query.tenant)
        found = await asked.ask(request.app.questions, tenant)
        return Response(_last_hour_shape(found) if isinstance(found, LastHour) else found)

    return answer


async def attention(request: Request[QuestionQuery, None]) -> Response:
    tenant = requested_tenant(request, request.query.tenant)
    return Response(await request.app.questions.attention(tenant=tenant))


async def failures(request: Request[FailuresQuery, None]) -> Response:
    query = request.query
    found = await request.app.questions.failed(
        window=query.window, limit=query.limit, **query.filters(request)
    )
    return Response(found)


async def lanes(request: Request[LanesQuery, None]) -> Response:
    query = request.query
    found = await request.app.task_stats(query.window, tenant=requested_tenant(request, query.tenant))
    shown = tuple(_lane_shape(lane) for lane in found[:MAX_LANES])
    return Response(LaneList(shown, max(0, len(found) - MAX_LANES), query.window))


def _lane_shape(lane: TaskStats) -> LaneShape:
    activity = lane.activity
    return LaneShape(
        topic=lane.topic,
        task=lane.task,
        pending=lane.pending,
        due=lane.due,
        running=lane.running,
        processing=lane.running,
        completed=lane.completed,
        failed=lane.failed,
        cancelled=lane.cancelled,
        enqueued_in_window=None if activity is None else activity.enqueued,
        completed_in_window=None if activity is None else activity.completed,
        failed_in_window=None if activity is None else activity.failed,
        cancelled_in_window=None if activity is None else activity.cancelled,
        retried_in_window=None if activity is None else activity.retried,
        average_run_seconds=None if activity is None else activity.average_run_seconds,
        average_wait_seconds=None if activity is None else activity.average_wait_seconds,
        series=() if activity is None else tuple(minute_shape(minute) for minute in activity.series),
    )


def _last_hour_shape(found: LastHour) -> Hour:
    fields = {name: getattr(found, name) for name in Hour.__struct_fields__}
    fields["series"] = tuple(minute_shape(minute) for minute in found.series)
    fields["lanes"] = tuple(
        HourOfLane(
            **{
                **{name: getattr(lane, name) for name in HourOfLane.__struct_fields__},
                "series": tuple(minute_shape(minute) for minute in lane.series),
            }
        )
        for lane in found.lanes
    )
    return Hour(**fields)


QUESTION_ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/attention",
        name="attention",
        summary="What needs attention, the worst first, and what to do about it; what is about workers and "
        "the store is for superusers",
        permission=Permission.READ,
        handler=attention,
        query=QuestionQuery,
        responses={200: Attention},
        tag="queue",
    ),
    Route(
        method="GET",
        path=f"{API_ROOT}/failures",
        name="failures",
        summary="Failed jobs that match, grouped by error, with the filter that selects each group",
        permission=Permission.READ,
        handler=failures,
        query=FailuresQuery,
        responses={200: FailedJobs},
        tag="queue",
    ),
    Route(
        method="GET",
        path=f"{API_ROOT}/lanes",
        name="lanes",
        summary="Counts and throughput by topic and task",
        permission=Permission.READ,
        handler=lanes,
        query=LanesQuery,
        responses={200: LaneList},
        tag="queue",
    ),
    Route(
        method="GET",
        path=f"{API_ROOT}/questions",
        name="list_questions",
        summary="The six questions, and where they are answered",
        permission=Permission.READ,
        handler=list_questions,
        responses={200: QuestionList},
        tag="questions",
    ),
    *(
        Route(
            method="GET",
            path=f"{API_ROOT}/questions/{asked.name}",
            name=f"question_{asked.name}",
            summary=asked.question.rstrip("?"),
            permission=Permission.READ,
            handler=_make_handler(asked),
            query=QuestionQuery,
            responses={200: asked.answer_type},
            tag="questions",
        )
        for asked in QUESTIONS
    ),
)
