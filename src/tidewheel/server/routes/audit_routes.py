"""The audit log: who did what to the queue."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Struct

from tidewheel.access.audit_log import MAX_TEXT_LENGTH, OUTCOMES, AuditLine
from tidewheel.server.field_types import PageQuery
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, Permission, Response, Route

SearchTerm: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT_LENGTH)]


class AuditShape(Struct, frozen=True, kw_only=True):
    """An action, and who did it.

    ``outcome`` is ``started`` from before the action until it has ended. A line that stays ``started`` is one
    of a server that stopped, or of a request that ran out of time, before the outcome was known.
    """

    id: str
    at: datetime | None
    action: str
    actor: str
    kind: str
    target: str
    tenant: str
    details: dict[str, Any]
    address: str | None
    outcome: Annotated[str, Meta(extra_json_schema={"enum": list(OUTCOMES)})]


class AuditList(Struct, frozen=True):
    """Lines, newest first; ``cursor`` is where the next page begins.

    A page of those with one target, actor or action looks at 2,000 lines, and may be short, or empty, and
    still have a cursor.
    """

    items: tuple[AuditShape, ...]
    cursor: str | None


class AuditQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    target: SearchTerm | None = None
    actor: SearchTerm | None = None
    action: SearchTerm | None = None


async def list_audit(request: Request[AuditQuery, None]) -> Response:
    query = request.query
    page = await request.api.authenticator.access.audit.lines(
        limit=query.limit, cursor=query.cursor, target=query.target, actor=query.actor, action=query.action
    )
    return Response(AuditList(tuple(_shape(line) for line in page.lines), page.cursor))


def _shape(line: AuditLine) -> AuditShape:
    fields = {name: getattr(line, name) for name in AuditShape.__struct_fields__}
    return AuditShape(**{**fields, "details": dict(line.details)})


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/audit",
        name="list_audit",
        summary="Who did what, newest first",
        permission=Permission.SUPERUSER,
        handler=list_audit,
        query=AuditQuery,
        responses={200: AuditList},
        tag="access",
    ),
)
