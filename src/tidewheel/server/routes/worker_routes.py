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
from tidewheel.server.problems import refused
from tidewheel.server.request import Request
from tidewheel.server.route import ROOT, Answer, Nothing, Permission, Route
from tidewheel.server.routes.lease_routes import PATH, TAG
from tidewheel.server.routes.reserve_routes import LaneBody, WorkerName, lanes_of
from tidewheel.settings import MAX_COUNT

MAX_LANES: Final = 200
"""Most lanes a worker tells about; of the others it tells the number."""

Number: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
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
    lanes: Annotated[list[LaneBody], Meta(max_length=MAX_LANES)] = []
    more_lanes: Number = 0
    concurrency: Number = 0
    running: Number = 0
    claimed: Number = 0
    stuck: Number = 0
    loop_lag_seconds: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    polling: bool = False
    ran: Number = 0
    completed: Number = 0
    failed: Number = 0
    lost: Number = 0


class LeaveBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Who leaves."""

    name: WorkerName
    started_at: Moment


_SAME: Final = tuple(
    name
    for name in WorkerBody.__struct_fields__
    if name not in {"name", "started_at", "host", "version", "lanes"}
)


async def beat(request: Request[Nothing, WorkerBody]) -> Answer:
    body = request.body
    await request.app.remote.beat(
        WorkerRecord(
            name=_line(body.name, "name"),
            host=_line(body.host or "elsewhere", "host"),
            version=_line(f"{body.version or '?'}, over HTTP", "version"),
            started_at=_moment(body.started_at),
            lanes=tuple(lanes_of(body.lanes)),
            **{name: getattr(body, name) for name in _SAME},
        )
    )
    return Answer(None, 204)


async def leave(request: Request[Nothing, LeaveBody]) -> Answer:
    body = request.body
    await request.app.remote.leave(_line(body.name, "name"), _moment(body.started_at))
    return Answer(None, 204)


def _moment(value: datetime) -> int:
    try:
        return to_microseconds(value.astimezone(UTC))
    except OverflowError:
        raise refused(f"started_at is {value}, which is no time in UTC", pointer="#/started_at") from None


def _line(value: str, what: str) -> str:
    """It is shown to operators, in lists and on terminals."""
    try:
        return check_worker_name(value)
    except InvalidInput as error:
        raise refused(str(error), pointer=f"#/{what}") from None


HEARTBEAT_ROUTES: Final = (
    Route(
        method="POST",
        path=f"{PATH}/beat",
        name="worker_beat",
        summary="Tell that a worker is alive, to be on the list of workers",
        permission=Permission.WORK,
        handler=beat,
        body=WorkerBody,
        answers={204: None},
        tag=TAG,
    ),
    Route(
        method="POST",
        path=f"{PATH}/leave",
        name="worker_leave",
        summary="Take a worker off the list",
        permission=Permission.WORK,
        handler=leave,
        body=LeaveBody,
        answers={204: None},
        tag=TAG,
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


async def list_workers(request: Request[Nothing, None]) -> Answer:
    found = await request.app.workers()
    return Answer(WorkerList(tuple(_shape(worker) for worker in found), len(found)))


def _shape(worker: WorkerInfo) -> WorkerShape:
    return WorkerShape(**{name: getattr(worker, name) for name in WorkerShape.__struct_fields__})


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{ROOT}/workers",
        name="list_workers",
        summary="Who runs jobs, and how they are doing",
        permission=Permission.SUPERUSER,
        handler=list_workers,
        answers={200: WorkerList},
        tag="workers",
    ),
)
