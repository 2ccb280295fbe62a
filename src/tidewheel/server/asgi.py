"""Bodies in, answers out: the few lines that speak ASGI, with every limit on what a client may send."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.types import Receive, Scope, Send

from tidewheel.access.caller import Caller, CallerKind
from tidewheel.server.problems import (
    HEADERS_TOO_LARGE,
    MALFORMED_REQUEST,
    MEDIA_TYPE,
    TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    URI_TOO_LONG,
    Headers,
    Problem,
)

MAX_TARGET_BYTES: Final = 8192
"""Path and query together."""
SINGLE_HEADERS: Final = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"cookie",
        b"host",
        b"idempotency-key",
        b"last-event-id",
        b"origin",
        b"sec-fetch-site",
        b"transfer-encoding",
        b"tidewheel-request-id",
        b"x-correlation-id",
        b"x-csrf-token",
    }
)
"""Headers that decide something. If one came twice, a proxy could go by the first and we by the second."""
SMALL_BODY_BYTES: Final = 32 * 1024
"""Max bytes of a body that are read without a turn."""
PUBLIC_BODY_BYTES: Final = 16 * 1024
"""Max bytes of a body for a route that needs no key: the longest name and password, fully escaped, fit."""
MAX_LARGE_BODIES: Final = 32
"""How many larger bodies of known callers are read at a time."""
MAX_ANONYMOUS_LARGE_BODIES: Final = 3
"""How many larger bodies of callers without a key, token or session are read at a time."""
WRITE_CHUNK_BYTES: Final = 32 * 1024
"""Bytes of an answer that are handed on at once; the rest waits until the client has read some of them."""

SECURITY_HEADERS: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""With every answer of the API, which holds nothing a browser should keep, guess about or show in a frame."""

PAGE_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'self'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types svelte-trusted-html"
)
"""What a page may do: nothing inline ever runs, and nothing comes from another host or goes to one."""

PAGE_HEADERS: Final[Headers] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-cache"),  # kept, and asked about each time: names of files stay as they are
    (b"content-security-policy", PAGE_POLICY),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
"""With every page and file of the UI."""

RESPONSE_STARTED: Final = "tidewheel.begun"
"""In the scope once an answer has begun: then no other can be sent."""

_CLOSE: Final[Headers] = ((b"connection", b"close"),)  # the rest of the body is not waited for


class ClientGone(Exception):
    """The client went away before its request was complete; there is nobody to answer."""


def read_headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers by name. Values of a repeated header are joined, unless it may come only once."""
    given = scope["headers"]
    headers: dict[bytes, bytes] = dict(given)
    if len(headers) < len(given):
        headers = {}
        for name, value in given:
            if name in headers and name in SINGLE_HEADERS:
                detail = f"the header {name.decode('ascii')} is given more than once; give it once"
                raise with_connection_close(Problem(MALFORMED_REQUEST, detail))
            headers[name] = headers[name] + b", " + value if name in headers else value
    coding = headers.get(b"transfer-encoding")
    if coding is not None and coding.strip().lower() != b"chunked":
        raise with_connection_close(
            Problem(MALFORMED_REQUEST, "Transfer-Encoding is not chunked; no other is understood")
        )
    return headers


def check_target(scope: Scope, headers: Mapping[bytes, bytes], max_header_bytes: int) -> None:
    """Check the limits on the target and the headers."""
    size = len(scope["path"]) + len(scope["query_string"])
    if size > MAX_TARGET_BYTES:
        raise Problem(URI_TOO_LONG, f"path and query are {size:,} bytes; the limit is {MAX_TARGET_BYTES:,}")
    total = sum(map(len, headers)) + sum(map(len, headers.values()))
    if total > max_header_bytes:
        raise Problem(
            HEADERS_TOO_LARGE,
            f"the headers are {total:,} bytes; the limit is {max_header_bytes:,} (max_header_bytes)",
        )


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """Max bytes of a body, and the setting that says so."""

    bytes: int
    setting: str = ""

    def too_large(self, how: str) -> Problem:
        setting = f" ({self.setting})" if self.setting else ""
        return Problem(TOO_LARGE, f"the body {how}; the limit is {self.bytes:,}{setting}", headers=_CLOSE)


class BodyReadSlots:
    """Turns at reading large bodies, so that many clients who send slowly cannot fill the memory.

    The small start of a body needs no turn. Callers who are not known have turns of their own, and cannot
    keep known ones waiting.
    """

    def __init__(self) -> None:
        self._known = asyncio.Semaphore(MAX_LARGE_BODIES)
        self._unknown = asyncio.Semaphore(MAX_ANONYMOUS_LARGE_BODIES)

    def for_caller(self, caller: Caller) -> asyncio.Semaphore:
        return self._unknown if caller.kind is CallerKind.ANONYMOUS else self._known


async def read_body(
    receive: Receive, headers: Mapping[bytes, bytes], limit: BodyLimit, slots: asyncio.Semaphore
) -> bytes:
    """Return the whole body, as long as it is not larger than it may be, whatever its header says."""
    said = headers.get(b"content-length", b"")
    if said.isdigit() and int(said) > limit.bytes:
        raise limit.too_large(f"is {int(said):,} bytes")
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False) and len(body) <= limit.bytes:
        return body
    parts: list[bytes] = []
    size, has_turn = 0, False
    try:
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > limit.bytes:
                raise limit.too_large(f"is more than {limit.bytes:,} bytes")
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)
            if size > SMALL_BODY_BYTES and not has_turn:
                has_turn = await slots.acquire()
            message = await receive()
    finally:
        if has_turn:
            slots.release()


def check_media_type(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body that does not say that it is plain JSON. That also keeps forms of other sites out."""
    coding = headers.get(b"content-encoding", b"identity").strip().lower()
    if coding not in {b"identity", b""}:
        raise Problem(
            UNSUPPORTED_MEDIA_TYPE,
            f"the body's Content-Encoding is {coding.decode('latin-1')[:100]!r}; send it without one",
        )
    given = headers.get(b"content-type", b"")
    if given == b"application/json":
        return
    kind, _, parameters = given.decode("latin-1").lower().partition(";")
    charset = parameters.strip().removeprefix("charset=").strip('"')
    if kind.strip() != "application/json" or charset not in {"", "utf-8", "utf8"}:
        raise Problem(
            UNSUPPORTED_MEDIA_TYPE,
            f"the body's Content-Type is {given.decode('latin-1')[:100]!r}; send application/json in UTF-8",
        )


async def respond(
    scope: Scope,
    send: Send,
    status: int,
    body: bytes,
    media_type: bytes,
    headers: Headers = (),
    common: Headers = SECURITY_HEADERS,
) -> None:
    """Send an answer that is complete. HEAD gets the headers of GET alone."""
    start: list[tuple[bytes, bytes]] = [*common, *headers]
    if status not in {204, 304}:
        start += ((b"content-type", media_type), (b"content-length", str(len(body)).encode()))
    scope[RESPONSE_STARTED] = True
    await send({"type": "http.response.start", "status": status, "headers": start})
    if scope["method"] == "HEAD":
        body = b""
    if len(body) > WRITE_CHUNK_BYTES:
        last = (len(body) - 1) // WRITE_CHUNK_BYTES * WRITE_CHUNK_BYTES
        for start_of_part in range(
            0, last, WRITE_CHUNK_BYTES
        ):  # sending waits for a client that does not read
            part = body[start_of_part : start_of_part + WRITE_CHUNK_BYTES]
            await send({"type": "http.response.body", "body": part, "more_body": True})
        body = body[last:]
    await send({"type": "http.response.body", "body": body})


async def respond_problem(scope: Scope, send: Send, problem: Problem) -> None:
    """Send a problem document."""
    document = problem.document(scope["path"])
    await respond(scope, send, problem.kind.status, document, MEDIA_TYPE, problem.headers)


def with_connection_close(problem: Problem) -> Problem:
    """The same problem, and the end of the connection: what else comes in on it is not waited for."""
    problem.headers += _CLOSE
    return problem
