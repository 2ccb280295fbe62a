"""One request, as a handler sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from tidewheel.access.caller import Caller, CallerKind
from tidewheel.app import Tidewheel
from tidewheel.core.security_context import SecurityContext
from tidewheel.server.authentication import session_cookie
from tidewheel.server.http_connection import SCOPE_EXTENSION, HttpConnection
from tidewheel.server.idempotent_requests import read_request_id

if TYPE_CHECKING:
    from tidewheel.server.api import Api

_PER_TOKEN_CLAIMS: Final = frozenset({"exp", "iat", "jti", "nbf"})
"""Claims about the token itself, and not about its bearer."""

Q = TypeVar("Q")
B = TypeVar("B")


class Request(Generic[Q, B]):
    """Who asks for what. ``context`` is in force already while the handler runs."""

    __slots__ = ("api", "body", "caller", "context", "headers", "path", "query", "receive", "scope", "send")

    def __init__(
        self,
        api: Api,
        scope: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        caller: Caller,
        context: SecurityContext | None,
        path: Mapping[str, Any],
        query: Q,
        body: B,
        receive: Any,
        send: Any,
    ) -> None:
        self.api = api
        self.scope = scope
        self.headers = headers
        self.caller = caller
        self.context = context
        self.path = path
        self.query = query
        self.body = body
        self.receive = receive
        self.send = send

    @property
    def app(self) -> Tidewheel:
        return self.api.app

    @property
    def mount_path(self) -> str:
        """Where the API is mounted, for addresses in answers and the path of the cookie; empty at the top.

        As browsers write it. A mount may have parameters in its path, and then its visitors choose a part of
        this: two slashes at the start would name another host.
        """
        given = self.scope.get("root_path")
        if not given:
            return ""
        path = quote(given.strip("/"))
        return f"/{path}" if path else ""

    @property
    def address(self) -> str | None:
        """Where the request came from, for the audit log."""
        client = self.scope.get("client")
        return None if client is None else str(client[0])

    @property
    def connection(self) -> HttpConnection | None:
        """What it came over, where the server is ours."""
        found = (self.scope.get("extensions") or {}).get(SCOPE_EXTENSION)
        return found if isinstance(found, HttpConnection) else None

    @property
    def is_client_gone(self) -> bool:
        """Whether the connection is known to be over."""
        connection = self.connection
        return connection is not None and connection.is_client_gone

    @property
    def credential(self) -> tuple[str, bytes]:
        """What tells callers apart without keeping their secrets; who showed nothing is an address."""
        shown = self.headers.get(b"authorization") or (session_cookie(self.headers) or "").encode("latin-1")
        if shown:
            return str(self.caller.kind), hashlib.sha256(shown).digest()
        return str(self.caller.kind), (self.address or "").encode()

    @property
    def request_key(self) -> Hashable | None:
        """What tells it from every other request, of any caller, but not from its repeats; None: nothing."""
        given = read_request_id(self.headers)
        if given is None:
            return None
        return (*self.caller_identity, self.scope["method"], self.scope["path"], given)

    @property
    def caller_identity(self) -> tuple[str, bytes]:
        """As ``credential``, but for tokens: one that was renewed is the same caller if it says the same."""
        caller = self.caller
        if caller.kind is not CallerKind.TOKEN or not caller.id:
            return self.credential
        said = {claim: value for claim, value in caller.auth.items() if claim not in _PER_TOKEN_CLAIMS}
        return str(caller.kind), hashlib.sha256(msgspec.json.encode(said, order="sorted")).digest()

    @property
    def cursor_holder(self) -> str:
        """Whom the cursors in its answer are for; a renewed token is the same caller."""
        caller = self.caller
        return f"{caller.tenant} {caller.kind} {caller.id or ''}"

    def header(self, name: bytes) -> str | None:
        """A header's text; None where there is none, or nothing in it."""
        value = self.headers.get(name)
        return value.decode("latin-1").strip() or None if value is not None else None
