"""One path and its methods: from a request to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.types import Receive, Scope, Send

from tidewheel.access.caller import ANONYMOUS
from tidewheel.core.security_context import acting_as
from tidewheel.server.asgi import (
    PAGE_HEADERS,
    PUBLIC_BODY_BYTES,
    SECURITY_HEADERS,
    BodyLimit,
    check_media_type,
    read_body,
    respond,
    with_connection_close,
)
from tidewheel.server.idempotent_requests import REQUEST_ID_HEADER
from tidewheel.server.problems import METHOD_NOT_ALLOWED, REQUEST_TIMEOUT, TIMED_OUT, Problem
from tidewheel.server.request import Request
from tidewheel.server.request_decoder import decode_body, decode_query
from tidewheel.server.route import NoQuery, Permission, Route

if TYPE_CHECKING:
    from tidewheel.server.api import Api

encode_json = msgspec.json.Encoder(decimal_format="number").encode
"""What handlers answer, as JSON."""
_NOTHING = NoQuery()


class Endpoint:
    """What is at one path. An ASGI application, for Starlette's router."""

    def __init__(self, api: Api, routes: Mapping[str, Route]) -> None:
        self._operations = {method: Operation(api, route) for method, route in routes.items()}
        if "GET" in self._operations:
            self._operations["HEAD"] = self._operations["GET"]
        self._allow = ", ".join(sorted(self._operations)).encode()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        operation = self._operations.get(scope["method"])
        if operation is None:
            raise Problem(
                METHOD_NOT_ALLOWED,
                f"{scope['method'][:20]} is not possible here; possible are {self._allow.decode()}",
                headers=((b"allow", self._allow),),
            )
        return operation.serve(scope, receive, send)


class Operation:
    """One route, ready to serve: its decoder is made, and what it never needs is known."""

    def __init__(self, api: Api, route: Route) -> None:
        self._api = api
        self._route = route
        self._decoder = route.decoder
        self._plain_query = route.query is NoQuery
        self._any_query = route.for_browsers
        self._headers = PAGE_HEADERS if route.for_browsers else SECURITY_HEADERS
        self._permission = route.permission
        self._needs_caller = route.needs_caller
        self._changes = route.is_mutation
        self._timeout_seconds = api.app.settings.request_seconds
        self._body_limit = BodyLimit(api.app.settings.max_request_bytes, "max_request_bytes")
        if route.permission in {Permission.PUBLIC, Permission.SESSION}:
            self._body_limit = BodyLimit(min(PUBLIC_BODY_BYTES, self._body_limit.bytes))

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, api = self._route, self._api
        headers: dict[bytes, bytes] = scope["tidewheel.headers"]
        seconds = self._timeout_seconds
        reading = False
        body: Any = None
        # From here on: who asks is looked up in the store or with an issuer of tokens, and either may hang.
        task = api.deadlines.start(seconds)
        try:
            caller = (
                await api.authenticator.authenticate(headers, changing=self._changes)
                if self._needs_caller
                else ANONYMOUS
            )
            context = api.authenticator.context(caller, self._permission, scope["method"])
            query_string = scope["query_string"]
            if self._plain_query and (not query_string or self._any_query):
                query: Any = _NOTHING
            else:
                query = decode_query(route.query, query_string)
            if route.extra_seconds is not None:
                seconds += route.extra_seconds(query)
                api.deadlines.start(seconds)
            raw = b""
            if self._decoder is not None:
                reading = True
                raw = await read_body(
                    receive, headers, self._body_limit, api.body_read_slots.for_caller(caller)
                )
                reading = False
                if raw or route.body_required:
                    check_media_type(headers)
                sent = raw or (b"" if route.body_required else b"{}")
                body = decode_body(self._decoder, sent, allow_lone_surrogates=route.allow_lone_surrogates)
            request = Request(
                api, scope, headers, caller, context, scope["path_params"], query, body, receive, send
            )
            with acting_as(context):
                if route.idempotent and REQUEST_ID_HEADER in headers:
                    answer = await api.idempotent_requests.run_once(
                        request.caller_identity, request.request_key, raw, lambda: route.handler(request)
                    )
                else:
                    answer = await route.handler(request)
            if route.streams:
                return
        except asyncio.CancelledError:
            if not api.deadlines.take_expired(task):
                raise
            raise _timeout_problem(seconds, reading=reading) from None
        finally:
            api.deadlines.finish(task)
        content = answer.body
        await respond(
            scope,
            send,
            answer.status,
            content if type(content) is bytes else b"" if content is None else encode_json(content),
            answer.media_type,
            answer.headers,
            self._headers,
        )


def _timeout_problem(seconds: float, *, reading: bool) -> Problem:
    if reading:
        return with_connection_close(
            Problem(REQUEST_TIMEOUT, f"the body did not arrive within {seconds:g} s (request_seconds)")
        )
    return Problem(
        TIMED_OUT,
        f"the request took longer than {seconds:g} s (request_seconds); what it asked for may have been done",
    )
