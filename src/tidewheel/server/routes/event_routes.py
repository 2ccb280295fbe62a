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
from tidewheel.core.names import check_any_topic
from tidewheel.core.security_context import SecurityContext
from tidewheel.errors import Backpressure, InvalidInput, NotAuthenticated, NotPermitted
from tidewheel.server.asgi import SECURITY_HEADERS
from tidewheel.server.events.broadcaster import (
    HEARTBEAT_SECONDS,
    EventBroadcaster,
    Listener,
    ListenerCredential,
)
from tidewheel.server.events.subscription import JobScope, Subscription
from tidewheel.server.http_connection import HttpConnection
from tidewheel.server.problems import (
    JOB_NOT_FOUND,
    NOT_PERMITTED,
    TOO_MANY_STREAMS,
    Problem,
    invalid_input_problem,
)
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, Permission, Response, Route
from tidewheel.server.routes.report_routes import requested_tenant

WRITE_TIMEOUT_SECONDS: Final = 10.0
"""How long a client may take to make room for what is sent to it."""
MAX_REQUEST_BYTES: Final = 64 * 1024
"""A body means nothing here. One larger than this ends the stream."""

EVENT_STREAM_HEADERS: Final = (
    *SECURITY_HEADERS,
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # proxies that collect answers before they pass them on
)

logger = logging.getLogger(__name__)


class ClientStalled(Exception):
    """The client takes nothing any more."""


class EventStream:
    """Sends a listener what it is to hear."""

    def __init__(self, listener: Listener, send: Send, connection: HttpConnection | None) -> None:
        self._listener = listener
        self._send = send
        self._connection = connection
        if connection is not None:
            connection.shrink_send_buffer()
            listener.reset_connection = connection.reset_connection

    async def run(self, broadcaster: EventBroadcaster, receive: Receive, last_event_id: str | None) -> None:
        """Until the client goes, everything is told, or the server ends."""
        gone = asyncio.create_task(
            _watch_for_disconnect(receive, self._listener), name="tidewheel-events-stream"
        )
        try:
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM_HEADERS]}
            )
            await self._follow(last_event_id)
            if not gone.done():
                await self._write(b"", last=True)
            elif self._connection is not None:
                self._connection.reset_connection()
        except ClientStalled:
            logger.info("an event stream was ended: its client took nothing for %g s", WRITE_TIMEOUT_SECONDS)
            if self._connection is not None:
                self._connection.reset_connection()
                await asyncio.wait((gone,), timeout=1.0)  # so that the server has seen it, too
        finally:
            gone.cancel()
            await broadcaster.leave(self._listener)

    async def _follow(self, last_event_id: str | None) -> None:
        listener = self._listener
        now = asyncio.get_running_loop().time
        text = listener.first_events(last_event_id)
        while True:
            if text:
                await self._write(text)
                listener.last_sent_at = now()
            text = listener.next_events()
            if text:
                continue
            if listener.is_finished:
                await self._write(listener.end_event())
                return
            if listener.end_reason is not None or (
                self._connection is not None and self._connection.is_client_gone
            ):
                await self._write(b": %s\n\n" % (listener.end_reason or "").encode())
                return
            if now() - listener.last_sent_at >= HEARTBEAT_SECONDS:
                text = listener.heartbeat()
                continue
            await listener.wait()

    async def _write(self, body: bytes, *, last: bool = False) -> None:
        message: dict[str, Any] = {"type": "http.response.body", "body": body, "more_body": not last}
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_SECONDS) as limit:
                await self._send(message)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ClientStalled from None


async def _watch_for_disconnect(receive: Receive, listener: Listener) -> None:
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


async def stream_events(request: Request[EventsQuery, None]) -> Response:
    """Answers by itself, for as long as there is something to tell."""
    api, query = request.api, request.query
    wish = _read_subscription(request)
    if request.scope["method"] == "HEAD":
        await request.send({"type": "http.response.start", "status": 200, "headers": [*EVENT_STREAM_HEADERS]})
        await request.send({"type": "http.response.body", "body": b""})
        return Response()
    credential = ListenerCredential(request.credential, lambda: _is_still_permitted(request, wish.scope))
    try:
        listener = await api.event_broadcaster.join(wish, credential, limited=not request.caller.superuser)
    except Backpressure as error:
        raise Problem(TOO_MANY_STREAMS, str(error)) from None
    api.deadlines.remove()
    stream = EventStream(listener, request.send, request.connection)
    last = request.header(b"last-event-id") or query.last_event_id
    await stream.run(api.event_broadcaster, request.receive, last)
    return Response()


def _read_subscription(request: Request[EventsQuery, None]) -> Subscription:
    query = request.query
    view = _job_scope(request.caller, request.context, requested_tenant(request, query.tenant))
    if query.job is not None:
        if query.topic is not None:
            raise invalid_input_problem(
                "a stream is about jobs or about topics; leave one of them out", parameter="topic"
            )
        return Subscription(view, job_ids=_job_ids(query.job))
    if not view.sees_whole_topics:
        raise Problem(
            NOT_PERMITTED,
            "the rule lets this caller see some jobs of a topic and not others, so it cannot be told the "
            "counts of topics; name jobs with ?job=",
        )
    return Subscription(view, topics=None if query.topic is None else _topics(query.topic))


def _job_scope(caller: Caller, context: SecurityContext | None, tenant: str | None) -> JobScope:
    if context is None:
        return JobScope(tenant, superuser=caller.superuser)
    return JobScope(context.tenant, context.only, superuser=caller.superuser)


def _topics(given: str) -> frozenset[str]:
    names = given.split(",")
    if len(names) > MAX_TOPICS:
        raise invalid_input_problem(
            f"{len(names)} topics are named; the limit is {MAX_TOPICS}", parameter="topic"
        )
    try:
        return frozenset(check_any_topic(name) for name in names)
    except InvalidInput as error:
        raise invalid_input_problem(str(error), parameter="topic") from None


def _job_ids(given: str) -> tuple[UUID, ...]:
    names = given.split(",")
    if len(names) > MAX_JOBS:
        raise invalid_input_problem(f"{len(names)} jobs are named; the limit is {MAX_JOBS}", parameter="job")
    try:
        return tuple(dict.fromkeys(UUID(name) for name in names))
    except ValueError:
        raise invalid_input_problem(
            "job holds something that is no job id; give UUIDs with commas between them", parameter="job"
        ) from None


async def _is_still_permitted(request: Request[EventsQuery, None], view: JobScope) -> bool:
    """Whether the caller would be let in again, and be shown the same."""
    gate = request.api.authenticator
    try:
        caller = await gate.authenticate(request.headers, changing=False)
        context = gate.context(caller, Permission.READ, "GET")
    except (NotAuthenticated, NotPermitted, Problem):
        return False
    return _job_scope(caller, context, request.query.tenant) == view


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/events",
        name="events",
        summary="What happens, as it happens: server-sent events",
        permission=Permission.READ,
        handler=stream_events,
        query=EventsQuery,
        responses={200: None},
        problems=(JOB_NOT_FOUND, TOO_MANY_STREAMS),
        parameters={"Last-Event-ID": "The id of the last event that arrived: go on after it"},
        media_type="text/event-stream",
        streams=True,
        tag="events",
    ),
)
