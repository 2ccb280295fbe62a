"""The audit log: who did what to the queue."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from windlass.access.audit import AuditLine
from windlass.server.paging import PageQuery
from windlass.server.request import Request
from windlass.server.route import ROOT, Answer, Permission, Route


class AuditShape(Struct, frozen=True, kw_only=True):
    """Somebody did something."""

    id: str
    at: datetime | None
    action: str
    actor: str
    kind: str
    target: str
    tenant: str
    details: dict[str, Any]
    address: str | None


class AuditList(Struct, frozen=True):
    """Lines, newest first; ``cursor`` is where the next page begins."""

    items: tuple[AuditShape, ...]
    cursor: str | None


async def list_audit(request: Request[PageQuery, None]) -> Answer:
    page = await request.api.gate.access.audit.lines(limit=request.query.limit, cursor=request.query.cursor)
    return Answer(AuditList(tuple(_shape(line) for line in page.lines), page.cursor))


def _shape(line: AuditLine) -> AuditShape:
    fields = {name: getattr(line, name) for name in AuditShape.__struct_fields__}
    return AuditShape(**{**fields, "details": dict(line.details)})


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{ROOT}/audit",
        name="list_audit",
        summary="Who did what, newest first",
        permission=Permission.SUPERUSER,
        handler=list_audit,
        query=PageQuery,
        answers={200: AuditList},
        tag="access",
    ),
)
