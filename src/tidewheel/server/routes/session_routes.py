"""Logging in and out, and who one is."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from tidewheel.access.caller import CallerKind
from tidewheel.errors import NotAuthenticated
from tidewheel.server.authentication import SESSION_COOKIE, is_same_origin, session_cookie
from tidewheel.server.problems import CSRF_FAILED, TOO_MANY_ATTEMPTS, Problem
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route


class LoginBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A superuser's name and password."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    password: Annotated[str, Meta(min_length=1, max_length=1000)]


class LogoutQuery(Struct, frozen=True, forbid_unknown_fields=True):
    everywhere: bool = False


class SessionShape(Struct, frozen=True, kw_only=True):
    """Who asks. ``csrf_token`` goes into the header X-CSRF-Token of a session's requests that change."""

    kind: str
    name: str
    tenant: str | None
    superuser: bool
    scopes: tuple[str, ...]
    csrf_token: str | None = None
    expires_at: datetime | None = None


async def log_in(request: Request[NoQuery, LoginBody]) -> Response:
    if not is_same_origin(request.headers):
        raise Problem(CSRF_FAILED, "a login has to come from a page of this server")
    access = request.api.authenticator.access
    session = await access.log_in(
        request.body.name,
        request.body.password,
        address=request.address,
        cookie=session_cookie(request.headers),
    )
    shape = SessionShape(
        **_session_shape(session.caller), csrf_token=session.csrf, expires_at=session.expires_at
    )
    seconds = int(request.app.settings.session_seconds)
    return Response(shape, 200, (_cookie(request, session.value, seconds),))


async def who_am_i(request: Request[NoQuery, None]) -> Response:
    caller = request.caller
    if caller.kind is CallerKind.ANONYMOUS:
        raise NotAuthenticated("nobody is logged in here, and no key or token was shown")
    csrf = None
    if caller.kind is CallerKind.SESSION and (cookie := session_cookie(request.headers)) is not None:
        csrf = await request.api.authenticator.access.csrf(cookie)
    return Response(SessionShape(**_session_shape(caller), csrf_token=csrf))


async def log_out(request: Request[LogoutQuery, None]) -> Response:
    if request.caller.kind is CallerKind.SESSION:
        await request.api.authenticator.access.log_out(
            request.caller,
            cookie=session_cookie(request.headers),
            everywhere=request.query.everywhere,
            address=request.address,
        )
    return Response(None, 204, (_cookie(request, "", 0),))


def _session_shape(caller: Any) -> dict[str, Any]:
    return {
        "kind": str(caller.kind),
        "name": caller.name,
        "tenant": None if caller.superuser else caller.tenant,
        "superuser": caller.superuser,
        "scopes": tuple(sorted(caller.scopes)),
    }


def _cookie(request: Request[Any, Any], value: str, seconds: int) -> tuple[bytes, bytes]:
    secure = "; Secure" if request.scope.get("scheme") == "https" else ""
    path = request.mount_path or "/"
    text = f"{SESSION_COOKIE}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
    return b"set-cookie", text.encode("latin-1")


ROUTES: Final = (
    Route(
        method="POST",
        path=f"{API_ROOT}/session",
        name="log_in",
        summary="Log in, for a session cookie",
        permission=Permission.SESSION,
        handler=log_in,
        body=LoginBody,
        responses={200: SessionShape},
        problems=(TOO_MANY_ATTEMPTS,),
        tag="access",
    ),
    Route(
        method="GET",
        path=f"{API_ROOT}/session",
        name="who_am_i",
        summary="Who the key, token or session belongs to",
        permission=Permission.SESSION,
        handler=who_am_i,
        responses={200: SessionShape},
        tag="access",
    ),
    Route(
        method="DELETE",
        path=f"{API_ROOT}/session",
        name="log_out",
        summary="Log out, here or everywhere",
        permission=Permission.SESSION,
        handler=log_out,
        query=LogoutQuery,
        responses={204: None},
        tag="access",
    ),
)
