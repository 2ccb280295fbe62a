"""Workers over HTTP: list all workers, and take the heartbeats of remote ones.

The list shows each worker as its last heartbeat described it. A worker that reaches only this server sends
its heartbeats here, and deregisters here when it stops.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from tidewheel.admin.worker_info import WorkerInfo
from tidewheel.core.clock import to_microseconds
from tidewheel.core.model import WorkerRecord
from tidewheel.core.names import check_worker_name
from tidewheel.errors import InvalidInput
from tidewheel.server.problems import invalid_input_problem
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.server.routes.lease_routes import WORK_PATH, WORK_TAG
from tidewheel.server.routes.reserve_routes import LaneBody, WorkerName, read_lanes
from tidewheel.settings import MAX_COUNT

MAX_REPORTED_LANES: Final = 200
"""Most lanes a worker tells about; of the others it tells the number."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]


class WorkerBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker tells about itself, every five seconds; who tells nothing for twenty is missing.

    ``started_at`` by the server's clock (``GET /api/jobs/time``): with the name it tells a worker from its
    predecessor.
    """

    name: WorkerName
    started_at: Moment
    host: Annotated[str, Meta(max_length=200)] = ""
    pid: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    version: Annotated[str, Meta(max_length=100)] = ""
    lanes: Annotated[list[LaneBody], Meta(max_length=MAX_REPORTED_LANES)] = []
    more_lanes: Count = 0
    concurrency: Count = 0
    running: Count = 0
    claimed: Count = 0
    stuck: Count = 0
    loop_lag_seconds: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    polling: bool = False
    ran: Count = 0
    completed: Count = 0
    failed: Count = 0
    lost: Count = 0


class LeaveBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Who leaves."""

    name: WorkerName
    started_at: Moment


_COPIED_FIELDS: Final = tuple(
    name
    for name in WorkerBody.__struct_fields__
    if name not in {"name", "started_at", "host", "version", "lanes"}
)


async def heartbeat(request: Request[NoQuery, WorkerBody]) -> Response:
    body = request.body
    await request.app.remote.heartbeat(
        WorkerRecord(
            name=_check_one_line(body.name, "name"),
            host=_check_one_line(body.host or "elsewhere", "host"),
            version=_check_one_line(f"{body.version or '?'}, over HTTP", "version"),
            started_at=_moment(body.started_at),
            lanes=tuple(read_lanes(body.lanes)),
            **{name: getattr(body, name) for name in _COPIED_FIELDS},
        )
    )
    return Response(None, 204)


async def deregister_worker(request: Request[NoQuery, LeaveBody]) -> Response:
    body = request.body
    await request.app.remote.deregister_worker(_check_one_line(body.name, "name"), _moment(body.started_at))
    return Response(None, 204)


def _moment(value: datetime) -> int:
    try:
        return to_microseconds(value.astimezone(UTC))
    except OverflowError:
        raise invalid_input_problem(
            f"started_at is {value}, which is no time in UTC", pointer="#/started_at"
        ) from None


def _check_one_line(value: str, what: str) -> str:
    """It is shown to operators, in lists and on terminals."""
    try:
        return check_worker_name(value)
    except InvalidInput as error:
        raise invalid_input_problem(str(error), pointer=f"#/{what}") from None


HEARTBEAT_ROUTES: Final = (
    Route(
        method="POST",
        path=f"{WORK_PATH}/beat",
        name="worker_beat",
        summary="Tell that a worker is alive, to be on the list of workers",
        permission=Permission.WORK,
        handler=heartbeat,
        body=WorkerBody,
        responses={204: None},
        tag=WORK_TAG,
    ),
    Route(
        method="POST",
        path=f"{WORK_PATH}/leave",
        name="worker_leave",
        summary="Take a worker off the list",
        permission=Permission.WORK,
        handler=deregister_worker,
        body=LeaveBody,
        responses={204: None},
        tag=WORK_TAG,
    ),
)


class WorkerShape(Struct, frozen=True, kw_only=True):
    """One worker. ``missing``: not heard of for a while; ``degraded``: some of its slots are stuck;
    ``polling``: no wake-ups come through to it.
    """

    name: str
    host: str
    pid: int
    version: str
    started_at: datetime
    seen_at: datetime
    seconds_since_seen: float
    missing: bool
    degraded: bool
    topics: tuple[str, ...]
    tasks: tuple[str, ...]
    more_lanes: int
    concurrency: int
    running: int
    claimed: int
    stuck: int
    loop_lag_seconds: float
    polling: bool
    ran: int
    completed: int
    failed: int
    lost: int


class WorkerList(Struct, frozen=True):
    """The workers by name, at most 1,000."""

    items: tuple[WorkerShape, ...]
    total: int


async def list_workers(request: Request[NoQuery, None]) -> Response:
    found = await request.app.workers()
    return Response(WorkerList(tuple(_worker_shape(worker) for worker in found), len(found)))


def _worker_shape(worker: WorkerInfo) -> WorkerShape:
    return WorkerShape(**{name: getattr(worker, name) for name in WorkerShape.__struct_fields__})


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/workers",
        name="list_workers",
        summary="Who runs jobs, and how they are doing",
        permission=Permission.SUPERUSER,
        handler=list_workers,
        responses={200: WorkerList},
        tag="workers",
    ),
)
