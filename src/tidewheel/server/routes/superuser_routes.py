"""Superusers: who may log in and do everything."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from tidewheel.access.passwords import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from tidewheel.access.superusers import MAX_SUPERUSER_NAME_LENGTH, Superuser
from tidewheel.server.field_types import PageQuery
from tidewheel.server.problems import SUPERUSER_NOT_FOUND, WRONG_STATE, Problem
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route

Password = Annotated[str, Meta(min_length=MIN_PASSWORD_LENGTH, max_length=MAX_PASSWORD_LENGTH)]


class SuperuserShape(Struct, frozen=True, kw_only=True):
    """Somebody who may log in. The one of the setting ``superuser`` is ``configured``, and has no times."""

    name: str
    configured: bool
    created_at: datetime | None
    changed_at: datetime | None


class SuperuserList(Struct, frozen=True):
    """Superusers, the configured one first, then newest first; ``cursor`` is where the next page begins."""

    items: tuple[SuperuserShape, ...]
    cursor: str | None


class SuperuserBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A superuser to make."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_SUPERUSER_NAME_LENGTH)]
    password: Password


class PasswordBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    password: Password


class SuperuserChanged(Struct, frozen=True):
    """What became of it."""

    name: str
    action: str


async def list_superusers(request: Request[PageQuery, None]) -> Response:
    access, query = request.api.authenticator.access, request.query
    found, cursor = await access.superusers(limit=query.limit, cursor=query.cursor)
    items = [_shape(superuser) for superuser in found]
    if query.cursor is None and (name := access.configured_superuser) is not None:
        items.insert(0, SuperuserShape(name=name, configured=True, created_at=None, changed_at=None))
    return Response(SuperuserList(tuple(items), cursor))


async def create_superuser(request: Request[NoQuery, SuperuserBody]) -> Response:
    body = request.body
    await request.api.authenticator.access.create_superuser(
        body.name, body.password, new=True, by=request.caller, address=request.address
    )
    return Response(SuperuserChanged(body.name, "create"), 201)


async def change_password(request: Request[NoQuery, PasswordBody]) -> Response:
    name = await _known(request)
    await request.api.authenticator.access.change_password(
        name, request.body.password, by=request.caller, address=request.address
    )
    return Response(SuperuserChanged(name, "password"))


async def remove_superuser(request: Request[NoQuery, None]) -> Response:
    name = await _known(request)
    await request.api.authenticator.access.remove_superuser(
        name, keep_last=True, by=request.caller, address=request.address
    )
    return Response(SuperuserChanged(name, "remove"))


async def _known(request: Request[Any, Any]) -> str:
    name = str(request.path["superuser"])
    if not await request.api.authenticator.access.has_superuser(name):
        raise Problem(
            SUPERUSER_NOT_FOUND, f"there is no superuser {name[:50]}; GET {API_ROOT}/superusers lists them"
        )
    return name


def _shape(superuser: Superuser) -> SuperuserShape:
    return SuperuserShape(
        name=superuser.name,
        configured=False,
        created_at=superuser.created_at,
        changed_at=superuser.changed_at,
    )


_SUPERUSER_PATH: Final = f"{API_ROOT}/superusers/{{superuser}}"

ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/superusers",
        name="list_superusers",
        summary="Who may log in and do everything",
        permission=Permission.SUPERUSER,
        handler=list_superusers,
        query=PageQuery,
        responses={200: SuperuserList},
        tag="access",
    ),
    Route(
        method="POST",
        path=f"{API_ROOT}/superusers",
        name="create_superuser",
        summary="Make a superuser",
        permission=Permission.SUPERUSER,
        handler=create_superuser,
        body=SuperuserBody,
        responses={201: SuperuserChanged},
        problems=(WRONG_STATE,),
        tag="access",
    ),
    Route(
        method="POST",
        path=f"{_SUPERUSER_PATH}/password",
        name="change_password",
        summary="Give a superuser another password, which ends its sessions",
        permission=Permission.SUPERUSER,
        handler=change_password,
        body=PasswordBody,
        responses={200: SuperuserChanged},
        problems=(SUPERUSER_NOT_FOUND, WRONG_STATE),
        tag="access",
    ),
    Route(
        method="DELETE",
        path=_SUPERUSER_PATH,
        name="remove_superuser",
        summary="Remove a superuser, unless nobody else could log in",
        permission=Permission.SUPERUSER,
        handler=remove_superuser,
        responses={200: SuperuserChanged},
        problems=(SUPERUSER_NOT_FOUND, WRONG_STATE),
        tag="access",
    ),
)
