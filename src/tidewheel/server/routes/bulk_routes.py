"""Verbs on everything a filter matches: a preview first, then an operation in the background."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from tidewheel.admin.bulk_actions import explain_skipped
from tidewheel.admin.bulk_operations import STATES, BulkOperation
from tidewheel.admin.filters import explain_times
from tidewheel.core.security_context import acting_as
from tidewheel.server.field_types import PageQuery
from tidewheel.server.problems import BACKPRESSURE, BULK_NOT_FOUND, Problem
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.server.routes.filter_routes import JobsFilter


class BulkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do, to which jobs. A filter is needed, unless ``lost`` says which jobs are meant.

    ``lost``: with ``take-back``, only jobs whose holder is gone; for superusers.
    """

    action: Literal["requeue", "cancel", "take-back", "delete"]
    filter: JobsFilter = JobsFilter()
    lost: bool = False
    preview: bool = False


class TimeTerm(Struct, frozen=True):
    """A comparison of a time in a filter, and the moment it means in words."""

    term: str
    meaning: str


class BulkPreview(Struct, frozen=True):
    """How many jobs it would be; ``exact`` is false when there are at least this many.

    ``times`` spells out every comparison of a time in the filter. ``left_alone``: matching jobs in states
    that the action cannot act on, by state; ``reason`` says why.
    """

    action: str
    matched: int
    exact: bool
    times: tuple[TimeTerm, ...]
    left_alone: dict[str, int]
    reason: str | None


class BulkShape(Struct, frozen=True, kw_only=True):
    """An operation: ``running``, ``done``, ``stopped``, ``failed``, or ``interrupted`` with its server."""

    id: str
    action: str
    filter: dict[str, str]
    actor: str
    state: Annotated[str, Meta(extra_json_schema={"enum": list(STATES)})]
    matched: int
    matched_exact: bool
    done: int
    skipped: int
    left_alone: dict[str, int]
    reason: str | None
    stop_requested: bool
    error: str | None
    started_at: datetime
    updated_at: datetime


class BulkList(Struct, frozen=True):
    """The caller's operations of the last week, newest first; ``cursor`` is where the next page begins.

    Superusers are shown those of everybody, and callers without an id none: their operations are found by
    the id that the start returned.
    """

    items: tuple[BulkShape, ...]
    cursor: str | None


async def start_bulk(request: Request[NoQuery, BulkBody]) -> Response:
    if request.body.action == "delete":
        with acting_as(request.api.authenticator.deletion(request.caller)):
            return await _act(request)
    return await _act(request)


async def _act(request: Request[NoQuery, BulkBody]) -> Response:
    body, bulk = request.body, request.app.bulk
    filters = body.filter.filters(request, "#/filter")
    if body.preview:
        matched = await bulk.matching(body.action, filters, lost=body.lost)
        now, uuids = request.app.clock.now(), request.app.settings.tenant_uuids
        times = tuple(TimeTerm(*each) for each in explain_times(filters, now=now, uuids=uuids))
        left_alone = dict(matched.left_alone)
        reason = explain_skipped(body.action, left_alone)
        return Response(BulkPreview(body.action, matched.total, matched.exact, times, left_alone, reason))
    meant = {**filters, "lost": "true"} if body.lost else filters
    intent = {"action": body.action, "filter": {name: str(value) for name, value in meant.items()}}
    async with request.api.authenticator.record_action(request, "bulk.start", details=intent) as entry:
        operation = await bulk.start(
            body.action, filters, lost=body.lost, actor=request.caller.name, on_end=_recorder(request)
        )
        entry.target, entry.details = operation.id, _details(operation)
    location = f"{request.mount_path}{API_ROOT}/bulk/{operation.id}".encode()
    return Response(_shape(operation), 202, ((b"location", location),))


async def list_bulk(request: Request[PageQuery, None]) -> Response:
    if not request.caller.superuser and request.caller.id is None:
        return Response(BulkList((), None))  # one such caller cannot be told from another
    query, cursors, holder = request.query, await request.api.cursors(), request.cursor_holder
    found, further = await request.app.bulk.listed(
        limit=query.limit,
        cursor=None if query.cursor is None else cursors.open_place(query.cursor, holder),
        actor=None if request.caller.superuser else request.caller.name,
    )
    cursor = None if further is None else cursors.seal_place(further, holder)
    return Response(BulkList(tuple(_shape(one) for one in found), cursor))


async def get_bulk(request: Request[NoQuery, None]) -> Response:
    return Response(_shape(await _callers_operation(request)))


async def stop_bulk(request: Request[NoQuery, None]) -> Response:
    operation = await _callers_operation(request)
    details = _details(operation)
    async with request.api.authenticator.record_action(
        request, "bulk.stop", target=operation.id, details=details
    ) as entry:
        stopped = await request.app.bulk.stop(operation.id) or operation
        entry.details = _details(stopped)
    return Response(_shape(stopped), 202)


async def _callers_operation(request: Request[Any, Any]) -> BulkOperation:
    """An operation of the caller's own; superusers see all of them."""
    operation_id = str(request.path["operation"])
    operation = await request.app.bulk.get(operation_id)
    if operation is None or not _is_own(request, operation):
        raise Problem(BULK_NOT_FOUND, f"there is no bulk operation {operation_id}; they are kept for a week")
    return operation


def _is_own(request: Request[Any, Any], operation: BulkOperation) -> bool:
    return request.caller.superuser or operation.actor == request.caller.name


def _recorder(request: Request[Any, Any]) -> Callable[[BulkOperation], Awaitable[None]]:
    async def ended(operation: BulkOperation) -> None:
        with acting_as(None):
            await request.api.authenticator.record_event(
                request, "bulk.end", target=operation.id, details=_details(operation)
            )

    return ended


def _details(operation: BulkOperation) -> dict[str, Any]:
    return {
        "action": operation.action,
        "filter": dict(operation.filter),
        "state": operation.state,
        "matched": operation.matched,
        "done": operation.done,
    }


def _shape(operation: BulkOperation) -> BulkShape:
    fields = {name: getattr(operation, name) for name in BulkShape.__struct_fields__}
    return BulkShape(**{**fields, "filter": dict(operation.filter), "left_alone": dict(operation.left_alone)})


_OPERATION: Final = f"{API_ROOT}/bulk/{{operation:uuid}}"

ROUTES: Final = (
    Route(
        method="POST",
        path=f"{API_ROOT}/bulk",
        name="start_bulk",
        summary="Requeue, cancel, take back or delete everything that matches, or count it first",
        permission=Permission.MANAGE,
        handler=start_bulk,
        body=BulkBody,
        responses={200: BulkPreview, 202: BulkShape},
        problems=(BACKPRESSURE,),
        tag="bulk",
    ),
    Route(
        method="GET",
        path=f"{API_ROOT}/bulk",
        name="list_bulk",
        summary="Bulk operations of the last week, newest first",
        permission=Permission.READ,
        handler=list_bulk,
        query=PageQuery,
        responses={200: BulkList},
        tag="bulk",
    ),
    Route(
        method="GET",
        path=_OPERATION,
        name="get_bulk",
        summary="How far a bulk operation is",
        permission=Permission.READ,
        handler=get_bulk,
        responses={200: BulkShape},
        problems=(BULK_NOT_FOUND,),
        tag="bulk",
    ),
    Route(
        method="POST",
        path=f"{_OPERATION}/stop",
        name="stop_bulk",
        summary="Stop a bulk operation after the batch at hand",
        permission=Permission.MANAGE,
        handler=stop_bulk,
        responses={202: BulkShape},
        problems=(BULK_NOT_FOUND,),
        tag="bulk",
    ),
)
