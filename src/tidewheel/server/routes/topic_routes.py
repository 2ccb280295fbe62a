"""Topics: their counts, pausing them, and another chance for their failed jobs."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, structs

from tidewheel.app import Tidewheel
from tidewheel.core.clock import DAY, MAX_SECONDS
from tidewheel.core.reports import TaskStats, TopicStats
from tidewheel.errors import JobNotFound, WrongState
from tidewheel.server.field_types import TenantName
from tidewheel.server.idempotent_requests import REQUEST_ID_PARAMETER
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.server.routes.report_routes import TopicShape, requested_tenant, topic_shape

MAX_KICKED: Final = 1000
"""Most jobs of one kick; a bulk action takes any number."""


class TopicsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    window: Annotated[float, Meta(ge=1, le=366 * DAY, description="Seconds that rates are about.")] = 3600.0
    tenant: TenantName | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200
    offset: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0


class TopicDetail(TopicShape, frozen=True, kw_only=True):
    """A topic with what of its pending jobs is due, and what happened in the window.

    ``due`` and ``delayed`` are null beyond the 1,000 lanes that are counted; what happened is null there, and
    when a tenant asks: minutes are kept of all tenants together. ``delayed`` has jobs that wait for others,
    too.
    """

    due: int | None
    delayed: int | None
    enqueued_in_window: int | None
    completed_in_window: int | None
    failed_in_window: int | None
    cancelled_in_window: int | None
    retried_in_window: int | None
    average_run_seconds: float | None
    average_wait_seconds: float | None


class TopicList(Struct, frozen=True, kw_only=True):
    """Topics by name."""

    items: tuple[TopicDetail, ...]
    total: int
    window_seconds: float
    limit: int
    offset: int


class PauseBody(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long; without an end when it does not say."""

    seconds: Annotated[float, Meta(ge=0.001, le=MAX_SECONDS)] | None = None


class KickBody(Struct, frozen=True, forbid_unknown_fields=True):
    """How many failed jobs, newest first."""

    count: Annotated[int, Meta(ge=1, le=MAX_KICKED)] = MAX_KICKED


class TopicChanged(Struct, frozen=True):
    topic: str
    action: str


class Kicked(Struct, frozen=True):
    """How many jobs will run again."""

    topic: str
    kicked: int


async def list_topics(request: Request[TopicsQuery, None]) -> Response:
    app, query = request.app, request.query
    tenant = requested_tenant(request, query.tenant)
    found = await app.topics(tenant=tenant)
    chosen = found[query.offset : query.offset + query.limit]
    lanes: defaultdict[str, list[TaskStats]] = defaultdict(list)
    for lane in await app.task_stats(query.window, tenant=tenant):
        lanes[lane.topic].append(lane)
    return Response(
        TopicList(
            items=tuple(_detail(topic, lanes[topic.topic]) for topic in chosen),
            total=len(found),
            window_seconds=query.window,
            limit=query.limit,
            offset=query.offset,
        )
    )


def _detail(topic: TopicStats, lanes: list[TaskStats]) -> TopicDetail:
    """From the lanes of a topic; not all of them are known where there are very many."""
    whole = sum(lane.pending for lane in lanes) == topic.pending
    due = sum(lane.due for lane in lanes) if whole else None
    happened = [lane.activity for lane in lanes if lane.activity is not None]
    known = whole and len(happened) == len(lanes) and bool(lanes)
    runs, waits = sum(each.runs for each in happened), sum(each.waits for each in happened)
    fields: dict[str, Any] = structs.asdict(topic_shape(topic))
    for name in ("enqueued", "completed", "failed", "cancelled", "retried"):
        fields[f"{name}_in_window"] = sum(getattr(each, name) for each in happened) if known else None
    return TopicDetail(
        **fields,
        due=due,
        delayed=None if due is None else topic.pending - due,
        average_run_seconds=sum(each.run_seconds for each in happened) / runs if known and runs else None,
        average_wait_seconds=sum(each.wait_seconds for each in happened) / waits if known and waits else None,
    )


async def pause(request: Request[NoQuery, PauseBody]) -> Response:
    topic, seconds = request.path["topic"], request.body.seconds
    async with request.api.authenticator.record_action(
        request, "topic.pause", target=topic, details={"seconds": seconds}
    ):
        await request.app.pause(topic, seconds)
    return Response(TopicChanged(topic, "pause"))


async def resume(request: Request[NoQuery, None]) -> Response:
    topic = request.path["topic"]
    async with request.api.authenticator.record_action(request, "topic.resume", target=topic):
        await request.app.resume(topic)
    return Response(TopicChanged(topic, "resume"))


async def kick(request: Request[NoQuery, KickBody]) -> Response:
    topic = request.path["topic"]
    async with request.api.authenticator.record_action(request, "topic.kick", target=topic) as entry:
        kicked = entry.details["kicked"] = await _kick(request.app, topic, request.body.count)
    return Response(Kicked(topic, kicked))


async def _kick(app: Tidewheel, topic: str, wanted: int) -> int:
    """Requeue up to this many failed jobs, newest first; return how many."""
    kicked = 0
    cursor: int | None = None
    while kicked < wanted:
        page = await app.jobs(topic=topic, state="failed", limit=min(200, wanted - kicked), cursor=cursor)
        for job in page.items:
            try:
                await app.requeue(job.id)
                kicked += 1
            except (JobNotFound, WrongState):
                continue  # somebody else was quicker, or another job holds its key
        cursor = page.cursor
        if cursor is None:
            break
    return kicked


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/topics",
        name="list_topics",
        summary="Every topic that has jobs or is paused",
        permission=Permission.READ,
        handler=list_topics,
        query=TopicsQuery,
        responses={200: TopicList},
        tag="topics",
    ),
    Route(
        method="POST",
        path=f"{API_ROOT}/topics/{{topic:path}}/pause",
        name="pause_topic",
        summary="Let no worker take jobs of a topic, for some time or until it is resumed",
        permission=Permission.SUPERUSER,
        handler=pause,
        body=PauseBody,
        body_required=False,
        responses={200: TopicChanged},
        tag="topics",
    ),
    Route(
        method="POST",
        path=f"{API_ROOT}/topics/{{topic:path}}/resume",
        name="resume_topic",
        summary="Let workers take jobs of a topic again",
        permission=Permission.SUPERUSER,
        handler=resume,
        responses={200: TopicChanged},
        tag="topics",
    ),
    Route(
        method="POST",
        path=f"{API_ROOT}/topics/{{topic:path}}/kick",
        name="kick_topic",
        summary="Run a topic's failed jobs again, newest first",
        permission=Permission.MANAGE,
        handler=kick,
        body=KickBody,
        body_required=False,
        responses={200: Kicked},
        parameters=REQUEST_ID_PARAMETER,
        idempotent=True,
        tag="topics",
    ),
)
