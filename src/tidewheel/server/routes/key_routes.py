"""API keys: listing, making and revoking them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from tidewheel.access.api_keys import ApiKey
from tidewheel.core.clock import MAX_SECONDS
from tidewheel.errors import InvalidInput
from tidewheel.server.field_types import PageQuery, TenantName
from tidewheel.server.problems import KEY_NOT_FOUND, Problem
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route


class KeyShape(Struct, frozen=True, kw_only=True):
    """What is known of a key; a superuser's has no ``tenant``. The key itself was shown when it was made."""

    id: str
    name: str
    tenant: str | None
    superuser: bool
    scopes: tuple[str, ...]
    user_id: str | None
    service_id: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewKeyShape(KeyShape, frozen=True, kw_only=True):
    """A key that was just made. ``key`` is shown this one time."""

    key: str


class KeyList(Struct, frozen=True):
    """Keys, newest first; ``cursor`` is where the next page begins."""

    items: tuple[KeyShape, ...]
    cursor: str | None


class KeyBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to make: for one tenant as far as rules and scopes allow, or for a superuser."""

    name: Annotated[str, Meta(max_length=200)] = ""
    tenant: TenantName | None = None
    superuser: bool = False
    scopes: (
        Annotated[
            list[Literal["read", "enqueue", "manage", "work", "tracebacks"]], Meta(min_length=1, max_length=5)
        ]
        | None
    ) = None
    user_id: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    service_id: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    expires: Annotated[float, Meta(ge=1, le=MAX_SECONDS, description="Seconds.")] | None = None


async def list_keys(request: Request[PageQuery, None]) -> Response:
    found, cursor = await request.api.authenticator.access.keys(
        limit=request.query.limit, cursor=request.query.cursor
    )
    return Response(KeyList(tuple(_shape(key) for key in found), cursor))


async def create_key(request: Request[NoQuery, KeyBody]) -> Response:
    body = request.body
    made = await request.api.authenticator.access.create_key(
        body.name,
        tenant=body.tenant,
        superuser=body.superuser,
        scopes=body.scopes,
        user_id=body.user_id,
        service_id=body.service_id,
        expires=body.expires,
        by=request.caller,
        address=request.address,
    )
    return Response(NewKeyShape(key=made.key, **_fields(made.info)), 201)


async def revoke_key(request: Request[NoQuery, None]) -> Response:
    key_id = request.path["key"]
    try:
        revoked = await request.api.authenticator.access.revoke_key(
            key_id, by=request.caller, address=request.address
        )
    except InvalidInput:
        raise Problem(
            KEY_NOT_FOUND, f"there is no key {key_id[:50]}; GET {API_ROOT}/keys lists them"
        ) from None
    return Response(_shape(revoked))


def _shape(key: ApiKey) -> KeyShape:
    return KeyShape(**_fields(key))


def _fields(key: ApiKey) -> dict[str, Any]:
    fields = {name: getattr(key, name) for name in KeyShape.__struct_fields__}
    return {**fields, "tenant": None if key.superuser else key.tenant, "scopes": tuple(sorted(key.scopes))}


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/keys",
        name="list_keys",
        summary="The API keys, newest first, without their secrets",
        permission=Permission.SUPERUSER,
        handler=list_keys,
        query=PageQuery,
        responses={200: KeyList},
        tag="access",
    ),
    Route(
        method="POST",
        path=f"{API_ROOT}/keys",
        name="create_key",
        summary="Make an API key, which is shown this one time",
        permission=Permission.SUPERUSER,
        handler=create_key,
        body=KeyBody,
        responses={201: NewKeyShape},
        tag="access",
    ),
    Route(
        method="DELETE",
        path=f"{API_ROOT}/keys/{{key}}",
        name="revoke_key",
        summary="Revoke an API key",
        permission=Permission.SUPERUSER,
        handler=revoke_key,
        responses={200: KeyShape},
        problems=(KEY_NOT_FOUND,),
        tag="access",
    ),
)
