"""Topics: their counts, pausing them, and another chance for their failed jobs."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from windlass.errors import JobNotFound, WrongState
from windlass.server.names import TenantName
from windlass.server.request import Request
from windlass.server.route import ROOT, Answer, Nothing, Permission, Route
from windlass.server.statistics import TopicShape, chosen_tenant, topic_shape
from windlass.settings import LONGEST

MAX_KICKED: Final = 1000
"""Most jobs of one kick; a bulk action takes any number."""


class TopicsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenant: TenantName | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200
    offset: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0


class TopicList(Struct, frozen=True, kw_only=True):
    """Topics by name."""

    items: tuple[TopicShape, ...]
    total: int
    limit: int
    offset: int


class PauseBody(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long; without an end when it does not say."""

    seconds: Annotated[float, Meta(ge=0.001, le=LONGEST)] | None = None


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


async def list_topics(request: Request[TopicsQuery, None]) -> Answer:
    query = request.query
    found = await request.app.topics(tenant=chosen_tenant(request, query.tenant))
    chosen = found[query.offset : query.offset + query.limit]
    return Answer(
        TopicList(
            items=tuple(topic_shape(topic) for topic in chosen),
            total=len(found),
            limit=query.limit,
            offset=query.offset,
        )
    )


async def pause(request: Request[Nothing, PauseBody]) -> Answer:
    topic, seconds = request.path["topic"], request.body.seconds
    await request.app.pause(topic, seconds)
    await request.api.gate.record(request, "topic.pause", target=topic, details={"seconds": seconds})
    return Answer(TopicChanged(topic, "pause"))


async def resume(request: Request[Nothing, None]) -> Answer:
    topic = request.path["topic"]
    await request.app.resume(topic)
    await request.api.gate.record(request, "topic.resume", target=topic)
    return Answer(TopicChanged(topic, "resume"))


async def kick(request: Request[Nothing, KickBody]) -> Answer:
    app, topic, wanted = request.app, request.path["topic"], request.body.count
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
    await request.api.gate.record(request, "topic.kick", target=topic, details={"kicked": kicked})
    return Answer(Kicked(topic, kicked))


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{ROOT}/topics",
        name="list_topics",
        summary="Every topic that has jobs or is paused",
        permission=Permission.READ,
        handler=list_topics,
        query=TopicsQuery,
        answers={200: TopicList},
        tag="topics",
    ),
    Route(
        method="POST",
        path=f"{ROOT}/topics/{{topic}}/pause",
        name="pause_topic",
        summary="Let no worker take jobs of a topic, for some time or until it is resumed",
        permission=Permission.SUPERUSER,
        handler=pause,
        body=PauseBody,
        body_required=False,
        answers={200: TopicChanged},
        tag="topics",
    ),
    Route(
        method="POST",
        path=f"{ROOT}/topics/{{topic}}/resume",
        name="resume_topic",
        summary="Let workers take jobs of a topic again",
        permission=Permission.SUPERUSER,
        handler=resume,
        answers={200: TopicChanged},
        tag="topics",
    ),
    Route(
        method="POST",
        path=f"{ROOT}/topics/{{topic}}/kick",
        name="kick_topic",
        summary="Run a topic's failed jobs again, newest first",
        permission=Permission.MANAGE,
        handler=kick,
        body=KickBody,
        body_required=False,
        answers={200: Kicked},
        tag="topics",
    ),
)
