"""One route: what is asked where, by whom, with what, and what it answers.

Everything else comes from that: input is checked by it, the OpenAPI document is made from it, and the
security tests walk it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from tidewheel.server.problems import Headers, ProblemType

if TYPE_CHECKING:
    from tidewheel.server.request import Request

API_ROOT: Final = "/api/jobs"


class Permission(StrEnum):
    """Who may ask for it."""

    PUBLIC = "public"
    """anybody"""
    ENQUEUE = "enqueue"
    """whom the enqueue rule and the scopes allow it; the route itself asks, when it knows the job"""
    READ = "read"
    """whom the manage rule and the scope allow it, for the jobs the rule lets them see"""
    MANAGE = "manage"
    """the same, to change them"""
    SUPERUSER = "superuser"
    """superusers"""
    WORK = "work"
    """superusers whose key has the scope for it: workers"""
    SESSION = "session"
    """whoever logs in, or has"""


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Response:
    """What a handler answers: a status, what becomes JSON, and headers of its own."""

    __slots__ = ("body", "headers", "media_type", "status")

    def __init__(
        self,
        body: Any = None,
        status: int = 200,
        headers: Headers = (),
        media_type: bytes = b"application/json",
    ) -> None:
        self.body = body
        self.status = status
        self.headers = headers
        self.media_type = media_type


Handler = Callable[["Request[Any, Any]"], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One line of the table."""

    method: str
    path: str  # with {id:uuid} and the like
    name: str  # its operationId
    summary: str
    permission: Permission
    handler: Handler
    responses: Mapping[int, type | None]  # None: not JSON, or nothing
    query: type[Struct] = NoQuery
    body: type[Struct] | None = None
    body_required: bool = True
    problems: tuple[ProblemType, ...] = ()  # besides those that every route of its kind may answer
    aliases: tuple[str, ...] = ()  # other paths that mean the same
    parameters: Mapping[str, str] = field(default_factory=dict)  # headers it reads, and what they are for
    tag: str = "jobs"
    media_type: str = "application/json"
    extra_seconds: Callable[[Any], float] | None = None  # how much longer it may take, by its query
    allow_lone_surrogates: bool = (
        False  # of characters in its body are its handler's affair, see ``decode_body``
    )
    idempotent: bool = False  # done once for each Tidewheel-Request-Id, see ``repeats``
    streams: bool = False  # answers by itself, and lifts its deadline when it has begun
    served_without_api: bool = False  # served also when the API is off
    for_browsers: bool = (
        False  # for browsers: with the headers of pages, and a query that is the page's own affair
    )

    @property
    def decoder(self) -> msgspec.json.Decoder[Any] | None:
        """Made once for each route, by whoever serves it."""
        return None if self.body is None else msgspec.json.Decoder(self.body)

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, *self.aliases)

    @property
    def needs_caller(self) -> bool:
        """Whether it matters who asks: not for what is public, nor for a login, whatever is shown there."""
        if self.permission is Permission.SESSION:
            return self.method != "POST"
        return self.permission is not Permission.PUBLIC

    @property
    def is_mutation(self) -> bool:
        """Whether it changes anything: GET never does."""
        return self.method != "GET"
