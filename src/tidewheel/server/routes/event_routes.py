"""``GET /api/jobs/events``: check a subscription, then stream its events to the client.

The route decides which topics and jobs a caller may listen to. The stream copies events from the ring to the
socket until the client leaves, its jobs have finished or the server stops. A client that takes no data for
10 seconds is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any, Final
from uuid import UUID

from msgspec import Meta, Struct
from starlette.types import Receive, Send

from tidewheel.access.caller import Caller
from tidewheel.core.names import check_wire_topic
from tidewheel.core.security_context import SecurityContext
from tidewheel.errors import Backpressure, InvalidInput, NotAuthenticated, NotPermitted
from tidewheel.server.asgi import SECURITY_HEADERS
from tidewheel.server.events.broadcaster import HEARTBEAT_SECONDS, Broadcast, Credential, Listener
from tidewheel.server.events.subscription import View, Wish
from tidewheel.server.http_connection import Connection
from tidewheel.server.problems import (
    JOB_NOT_FOUND,
    NOT_PERMITTED,
    TOO_MANY_STREAMS,
    Problem,
    refused,
)
from tidewheel.server.request import Request
from tidewheel.server.route import ROOT, Answer, Permission, Route
from tidewheel.server.routes.report_routes import chosen_tenant

WRITE_SECONDS: Final = 10.0
"""How long a client may take to make room for what is sent to it."""
MAX_REQUEST_BYTES: Final = 64 * 1024
"""A body means nothing here. One larger than this ends the stream."""

HEADERS: Final = (
    *SECURITY_HEADERS,
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # proxies that collect answers before they pass them on
)

logger = logging.getLogger(__name__)


class Stalled(Exception):
    """The client takes nothing any more."""


class Stream:
    """Sends a listener what it is to hear."""

    def __init__(self, listener: Listener, send: Send, connection: Connection | None) -> None:
        self._listener = listener
        self._send = send
        self._connection = connection
        if connection is not None:
            connection.carry_a_stream()
            listener.cut = connection.cut

    async def run(self, broadcast: Broadcast, receive: Receive, last_event_id: str | None) -> None:
        """Until the client goes, everything is told, or the server ends."""
        gone = asyncio.create_task(_wait_for_the_end(receive, self._listener), name="tidewheel-events-stream")
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
            await self._follow(last_event_id)
            if not gone.done():
                await self._write(b"", last=True)
            elif self._connection is not None:
                self._connection.cut()
        except Stalled:
            logger.info("an event stream was ended: its client took nothing for %g s", WRITE_SECONDS)
            if self._connection is not None:
                self._connection.cut()
                await asyncio.wait((gone,), timeout=1.0)  # so that the server has seen it, too
        finally:
            gone.cancel()
            await broadcast.leave(self._listener)

    async def _follow(self, last_event_id: str | None) -> None:
        listener = self._listener
        now = asyncio.get_running_loop().time
        text = listener.begin(last_event_id)
        while True:
            if text:
                await self._write(text)
                listener.heard_at = now()
            text = listener.read()
            if text:
                continue
            if listener.over:
                await self._write(listener.farewell())
                return
            if listener.ending is not None or (self._connection is not None and self._connection.lost):
                await self._write(b": %s\n\n" % (listener.ending or "").encode())
                return
            if now() - listener.heard_at >= HEARTBEAT_SECONDS:
                text = listener.heartbeat()
                continue
            await listener.wait()

    async def _write(self, body: bytes, *, last: bool = False) -> None:
        message: dict[str, Any] = {"type": "http.response.body", "body": body, "more_body": not last}
        try:
            async with asyncio.timeout(WRITE_SECONDS) as limit:
                await self._send(message)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Stalled from None


async def _wait_for_the_end(receive: Receive, listener: Listener) -> None:
    """A server tells that the client has gone as the next message: without this it would go unnoticed."""
    size = 0
    while size <= MAX_REQUEST_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        size += len(message.get("body", b""))
    listener.end("the client has gone")


MAX_TOPICS: Final = 100
MAX_JOBS: Final = 20


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: (
        Annotated[str, Meta(min_length=1, description="Only these topics, with commas between them")] | None
    ) = None
    job: (
        Annotated[
            str,
            Meta(
                min_length=32,
                max_length=MAX_JOBS * 37,
                description="The ids of up to 20 jobs, with commas between them: everything that happens to "
                "them instead of the counts of topics, until all have finished",
            ),
        ]
        | None
    ) = None
    tenant: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    last_event_id: (
        Annotated[
            str,
            Meta(max_length=100, description="As the header Last-Event-ID, for clients that cannot set one"),
        ]
        | None
    ) = None


async def listen(request: Request[EventsQuery, None]) -> Answer:
    """Answers by itself, for as long as there is something to tell."""
    api, query = request.api, request.query
    wish = _wish(request)
    if request.scope["method"] == "HEAD":
        await request.send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
        await request.send({"type": "http.response.body", "body": b""})
        return Answer()
    credential = Credential(request.credential, lambda: _still_good(request, wish.view))
    try:
        listener = await api.broadcast.join(wish, credential, limited=not request.caller.superuser)
    except Backpressure as error:
        raise Problem(TOO_MANY_STREAMS, str(error)) from None
    api.deadlines.lift()
    stream = Stream(listener, request.send, request.connection)
    last = request.header(b"last-event-id") or query.last_event_id
    await stream.run(api.broadcast, request.receive, last)
    return Answer()


def _wish(request: Request[EventsQuery, None]) -> Wish:
    query = request.query
    view = _view(request.caller, request.context, chosen_tenant(request, query.tenant))
    if query.job is not None:
        if query.topic is not None:
            raise refused("a stream is about jobs or about topics; leave one of them out", parameter="topic")
        return Wish(view, job_ids=_job_ids(query.job))
    if not view.whole_topics:
        raise Problem(
            NOT_PERMITTED,
            "the rule lets this caller see some jobs of a topic and not others, so it cannot be told the "
            "counts of topics; name jobs with ?job=",
        )
    return Wish(view, topics=None if query.topic is None else _topics(query.topic))


def _view(caller: Caller, context: SecurityContext | None, tenant: str | None) -> View:
    if context is None:
        return View(tenant, superuser=caller.superuser)
    return View(context.tenant, context.only, superuser=caller.superuser)


def _topics(given: str) -> frozenset[str]:
    names = given.split(",")
    if len(names) > MAX_TOPICS:
        raise refused(f"{len(names)} topics are named; the limit is {MAX_TOPICS}", parameter="topic")
    try:
        return frozenset(check_wire_topic(name) for name in names)
    except InvalidInput as error:
        raise refused(str(error), parameter="topic") from None


def _job_ids(given: str) -> tuple[UUID, ...]:
    names = given.split(",")
    if len(names) > MAX_JOBS:
        raise refused(f"{len(names)} jobs are named; the limit is {MAX_JOBS}", parameter="job")
    try:
        return tuple(dict.fromkeys(UUID(name) for name in names))
    except ValueError:
        raise refused(
            "job holds something that is no job id; give UUIDs with commas between them", parameter="job"
        ) from None


async def _still_good(request: Request[EventsQuery, None], view: View) -> bool:
    """Whether the caller would be let in again, and be shown the same."""
    gate = request.api.gate
    try:
        caller = await gate.caller(request.headers, changing=False)
        context = gate.context(caller, Permission.READ, "GET")
    except (NotAuthenticated, NotPermitted, Problem):
        return False
    return _view(caller, context, request.query.tenant) == view


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{ROOT}/events",
        name="events",
        summary="What happens, as it happens: server-sent events",
        permission=Permission.READ,
        handler=listen,
        query=EventsQuery,
        answers={200: None},
        problems=(JOB_NOT_FOUND, TOO_MANY_STREAMS),
        parameters={"Last-Event-ID": "The id of the last event that arrived: go on after it"},
        media_type="text/event-stream",
        stream=True,
        tag="events",
    ),
)
