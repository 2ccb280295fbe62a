"""The workers, as they last told about themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from tidewheel.fleet import WorkerInfo
from tidewheel.server.request import Request
from tidewheel.server.route import ROOT, Answer, Nothing, Permission, Route


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
