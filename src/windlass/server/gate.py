"""Who may come in: from a request's headers to its caller, and from a route's permission to a context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from windlass.access.caller import ANONYMOUS, Caller, CallerKind
from windlass.app import Windlass
from windlass.errors import NotPermitted
from windlass.security import SecurityContext
from windlass.server.problems import CSRF_FAILED, NOT_AUTHENTICATED, NOT_PERMITTED, Problem
from windlass.server.route import Permission

if TYPE_CHECKING:
    from windlass.access.access import Access
    from windlass.server.request import Request

COOKIE: Final = "windlass_session"
CSRF_HEADER: Final = b"x-csrf-token"


class Gate:
    """Asks ``app.access`` for everything it decides."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._access: Access | None = None

    @property
    def access(self) -> Access:
        if self._access is None:
            self._access = self._app.access
        return self._access

    async def caller(self, headers: Mapping[bytes, bytes], *, changing: bool) -> Caller:
        """Who asks. Showing nothing is allowed, showing something wrong is not."""
        authorization = headers.get(b"authorization")
        cookie = None if authorization is not None else session_cookie(headers)
        if authorization is None and cookie is None:
            return ANONYMOUS
        bearer = None
        if authorization is not None:
            scheme, _, given = authorization.decode("latin-1").partition(" ")
            bearer = given.strip()
            if scheme.lower() != "bearer" or not bearer:
                raise Problem(
                    NOT_AUTHENTICATED, "the Authorization header is no bearer token; send Bearer and a key"
                )
        caller = await self.access.authenticate(bearer=bearer, cookie=cookie)
        if caller.kind is CallerKind.SESSION and changing:
            self._refuse_forged(caller, headers)
        return caller

    def context(self, caller: Caller, permission: Permission, method: str) -> SecurityContext | None:
        """On whose behalf the request acts, when it may; ``Problem`` otherwise."""
        try:
            match permission:
                case Permission.READ:
                    return self.access.visible(caller, changing=False, method=method)
                case Permission.MANAGE:
                    return self.access.visible(caller, changing=True, method=method)
                case Permission.PUBLIC | Permission.ENQUEUE | Permission.SESSION:
                    return caller.context()
                case Permission.SUPERUSER:
                    if caller.superuser:
                        return None
                    raise NotPermitted(f"this is for superusers, and {caller.name} is none")
            assert_never(permission)
        except NotPermitted as error:
            raise refusal(caller, error) from None

    def prepare(self) -> None:
        """Read the rules: one that makes no sense is told at the start, and not to the first who asks."""
        _ = self.access

    async def record(
        self,
        request: Request[Any, Any],
        action: str,
        *,
        target: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a line of the audit log: who did what."""
        await self.access.record(
            request.caller, action, target=target, details=details, address=request.address
        )

    def _refuse_forged(self, caller: Caller, headers: Mapping[bytes, bytes]) -> None:
        """A browser sends cookies along with what other sites make it send."""
        token = headers.get(CSRF_HEADER, b"").decode("latin-1")
        if not self.access.csrf_token_fits(caller, token) or not same_origin(headers):
            raise Problem(
                CSRF_FAILED,
                "a session's request that changes something needs the header X-CSRF-Token, as given by "
                "GET /api/jobs/session, and has to come from a page of this server",
            )


def session_cookie(headers: Mapping[bytes, bytes]) -> str | None:
    """The value of our cookie."""
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return None


def same_origin(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser says that a page of this server asks; programs say nothing."""
    if headers.get(b"sec-fetch-site", b"same-origin") not in {b"same-origin", b"none"}:
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return True
    _, _, host = origin.decode("latin-1").partition("://")
    return host == headers.get(b"host", b"").decode("latin-1")


def refusal(caller: Caller, error: NotPermitted) -> Problem:
    """Who showed nothing may show something; who did may not."""
    if caller.kind is CallerKind.ANONYMOUS:
        return Problem(
            NOT_AUTHENTICATED, "this needs a key, a token or a session; send Authorization: Bearer"
        )
    return Problem(NOT_PERMITTED, str(error))
