"""Bodies in, answers out: the few lines that speak ASGI, with every limit on what a client may send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.types import Receive, Scope, Send

from windlass.server.problems import (
    HEADERS_TOO_LARGE,
    MEDIA_TYPE,
    TOO_LARGE,
    UNSUPPORTED_MEDIA_TYPE,
    URI_TOO_LONG,
    Headers,
    Problem,
)

MAX_TARGET_BYTES: Final = 8192
"""Path and query together."""
MAX_HEADER_BYTES: Final = 32_768
"""Names and values of all headers together."""

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

BEGUN: Final = "windlass.begun"
"""In the scope once an answer has begun: then no other can be sent."""

_CLOSE: Final[Headers] = ((b"connection", b"close"),)  # the rest of the body is not waited for


class ClientGone(Exception):
    """The client went away before its request was complete; there is nobody to answer."""


def check_target(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """The limits on what comes before a body."""
    size = len(scope["path"]) + len(scope["query_string"])
    if size > MAX_TARGET_BYTES:
        raise Problem(URI_TOO_LONG, f"path and query are {size:,} bytes; the limit is {MAX_TARGET_BYTES:,}")
    total = sum(map(len, headers)) + sum(map(len, headers.values()))
    if total > MAX_HEADER_BYTES:
        raise Problem(
            HEADERS_TOO_LARGE, f"the headers are {total:,} bytes; the limit is {MAX_HEADER_BYTES:,}"
        )


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], limit: int) -> bytes:
    """The whole body, as long as it is not larger than it may be, whatever its header says."""
    said = headers.get(b"content-length", b"")
    if said.isdigit() and int(said) > limit:
        raise _too_large(f"is {int(said):,} bytes", limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body", False) and len(body) <= limit:
        return body
    parts, size = [], 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(f"is more than {limit:,} bytes", limit)
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)
        message = await receive()


def check_media_type(headers: Mapping[bytes, bytes]) -> None:
    """A body has to say that it is JSON. That also keeps forms of other sites out."""
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
    scope[BEGUN] = True
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def respond_problem(scope: Scope, send: Send, problem: Problem) -> None:
    """Send a problem document."""
    document = problem.document(scope["path"])
    await respond(scope, send, problem.kind.status, document, MEDIA_TYPE, problem.headers)


def _too_large(how: str, limit: int) -> Problem:
    return Problem(
        TOO_LARGE,
        f"the body {how}; the limit is {limit:,} (max_request_bytes)",
        headers=_CLOSE,
    )


def closing(problem: Problem) -> Problem:
    """The same problem, and the end of the connection: what else comes in on it is not waited for."""
    problem.headers += _CLOSE
    return problem
