"""Who may come in: from a request's headers to its caller, and from a route's permission to a context."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, assert_never

from tidewheel.access import audit_log
from tidewheel.access.caller import ANONYMOUS, Caller
from tidewheel.app import Tidewheel
from tidewheel.core.security_context import SecurityContext
from tidewheel.server.problems import CSRF_FAILED, NOT_AUTHENTICATED, Problem
from tidewheel.server.route import Permission

if TYPE_CHECKING:
    from tidewheel.access.access_control import Access
    from tidewheel.access.audit_log import AuditEntry
    from tidewheel.server.request import Request

SESSION_COOKIE: Final = "tidewheel_session"
CSRF_HEADER: Final = b"x-csrf-token"


class Authenticator:
    """Asks ``app.access`` for everything it decides."""

    def __init__(self, app: Tidewheel) -> None:
        self._app = app

    @functools.cached_property
    def access(self) -> Access:
        return self._app.access

    async def authenticate(self, headers: Mapping[bytes, bytes], *, changing: bool) -> Caller:
        """Who asks. Showing nothing is allowed, showing something wrong is not."""
        authorization = headers.get(b"authorization")
        if authorization is not None:
            scheme, _, bearer = authorization.decode("latin-1").partition(" ")
            if scheme.lower() != "bearer":
                raise Problem(
                    NOT_AUTHENTICATED, "the Authorization header is no bearer token; send Bearer and a key"
                )
            return await self.access.authenticate(bearer=bearer.strip())
        cookie = session_cookie(headers) if b"cookie" in headers else None
        if cookie is None:
            return ANONYMOUS
        caller = await self.access.authenticate(cookie=cookie)
        if changing:
            await self._check_csrf(cookie, headers)
        return caller

    def context(self, caller: Caller, permission: Permission, method: str) -> SecurityContext | None:
        """On whose behalf the request acts; ``NotAuthenticated`` or ``NotPermitted`` when it may not.

        A rule sees ``GET`` for every request that only looks, also for HEAD and for a POST that asks.
        """
        access = self.access
        match permission:
            case Permission.READ:
                return access.visible(caller, changing=False)
            case Permission.MANAGE:
                return access.visible(caller, changing=True, method=method)
            case Permission.SUPERUSER:
                access.check_superuser(caller, "do this", changing=method not in {"GET", "HEAD"})
                return None
            case Permission.WORK:
                access.check_worker(caller)
                return None
            case Permission.PUBLIC | Permission.SESSION:
                return None  # about no job
            case Permission.ENQUEUE:
                return access.enqueue_context(caller)
        assert_never(permission)

    def deletion(self, caller: Caller) -> SecurityContext | None:
        """On whose behalf the caller deletes jobs by a request other than DELETE; raises as ``context``."""
        return self.context(caller, Permission.MANAGE, "DELETE")

    def check_rules(self) -> None:
        """Read the rules, so that a wrong one is reported at the start, and warn about risky ones."""
        self.access.warn_about_rules()

    def record_action(
        self,
        request: Request[Any, Any],
        action: str,
        *,
        target: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> AbstractAsyncContextManager[AuditEntry]:
        """Record in the audit log that the caller does this: before it is done, and how it ended."""
        line = audit_log.make_audit_line(
            request.caller, action, target, details=details, address=request.address
        )
        return audit_log.record_action(self.access.audit, line)

    async def record_event(
        self, request: Request[Any, Any], action: str, *, target: str, details: Mapping[str, Any]
    ) -> None:
        """Record an event that no request asked for, such as the end of a bulk operation."""
        line = audit_log.make_audit_line(
            request.caller, action, target, details=details, address=request.address
        )
        await self.access.audit.record(line)

    async def _check_csrf(self, cookie: str, headers: Mapping[bytes, bytes]) -> None:
        """A browser sends cookies along with what other sites make it send."""
        token = headers.get(CSRF_HEADER)
        known = token is not None and await self.access.is_csrf(cookie, token.decode("latin-1"))
        if not known or not is_same_origin(headers):
            raise Problem(
                CSRF_FAILED,
                "a session's request that changes something needs the header X-CSRF-Token, as "
                "GET /api/jobs/session tells it, and has to come from a page of this server",
            )


def session_cookie(headers: Mapping[bytes, bytes]) -> str | None:
    """The value of our cookie."""
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if name == SESSION_COOKIE:
            return value
    return None


def is_same_origin(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser says that a page of this server asks; programs say nothing."""
    if headers.get(b"sec-fetch-site", b"same-origin") not in {b"same-origin", b"none"}:
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return True
    _, _, host = origin.decode("latin-1").partition("://")
    return host == headers.get(b"host", b"").decode("latin-1")
