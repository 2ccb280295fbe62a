"""``POST /api/jobs/work/reserve``: jobs for a worker, waiting for them when told to."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from tidewheel.core import headers
from tidewheel.core.clock import DAY, to_datetime
from tidewheel.core.model import BodyFormat, Claimed, ClaimRequest, Lane
from tidewheel.core.names import check_task_name, check_worker_name
from tidewheel.errors import InvalidInput
from tidewheel.remote.dispatcher import EMPTY_GRANT, Grant
from tidewheel.server.idempotent_requests import REQUEST_ID_PARAMETER
from tidewheel.server.problems import BACKPRESSURE, invalid_input_problem
from tidewheel.server.request import Request
from tidewheel.server.request_cancellation import cancel_on_disconnect, cancel_on_disconnect_or_shutdown
from tidewheel.server.route import Permission, Response, Route
from tidewheel.server.routes.lease_routes import MAX_LEASES, WORK_PATH, WORK_TAG

MAX_WAIT_SECONDS: Final = 60.0
"""Most seconds a request waits for jobs."""
RECHECK_AFTER_SECONDS: Final = 1.0
"""Who has waited for longer than this is asked again who it is, before it is given anything."""
MAX_LANES: Final = 1000
"""Most topics, or topics and tasks, that one worker may wait for."""

WireTopic: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_+/;.$()-]{1,200}$(?!\n)")]
"""Also of a job that came by another door. In Python a line feed may follow the end: hence the last part."""
WorkerName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]


class LaneBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs of one task in one topic. Without a task: of all; with an empty one: of those without any."""

    topic: WireTopic
    task: Annotated[str, Meta(max_length=200)] | None = None


class ReserveBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker wants. ``free``: how many of ``limit`` could start at once, which matters for topics with
    strict limits. ``reports_starts``: the worker calls ``start`` for the jobs that it starts, and the others
    never lose an attempt with it. Without it the only job of an answer counts as started.
    """

    topics: Annotated[list[WireTopic], Meta(min_length=1, max_length=MAX_LANES)] | None = None
    lanes: Annotated[list[LaneBody], Meta(min_length=1, max_length=MAX_LANES)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LEASES)] = 1
    lease: Annotated[float, Meta(ge=2, le=DAY, description="Seconds each job is yours for.")] | None = None
    worker: WorkerName | None = None
    free: Annotated[int, Meta(ge=0, le=MAX_LEASES)] | None = None
    reports_starts: bool = False
    topic_limits: Annotated[
        dict[WireTopic, Annotated[int, Meta(ge=0, le=MAX_LEASES)]], Meta(max_length=MAX_LANES)
    ] = {}


class ReserveQuery(Struct, frozen=True, forbid_unknown_fields=True):
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for a job.")] = 0.0


class ReservedJob(Struct, frozen=True, kw_only=True):
    """A job in the hands of a worker. ``id`` and ``fence`` are its lease, of which ``lease_left`` seconds
    were left when this was answered. ``checkpoint`` is there when an earlier attempt left one. ``losses``:
    how many workers were lost with this job; above 0 it may have killed them, and is granted alone.
    """

    id: UUID
    fence: int
    topic: str
    task: str
    tenant: str
    priority: int
    attempt: int
    max_attempts: int | None
    timeout: float | None
    retry: dict[str, Any] | None
    lease_seconds: float
    lease_left: float
    payload: Any
    format: Literal["json", "bytes"]
    checkpoint: Any | UnsetType = UNSET
    number: int
    created_at: datetime
    run_at: datetime
    key: str | None
    correlation_id: str | None
    user_id: str | None
    service_id: str | None
    headers: dict[str, str]
    losses: int


class Reservation(Struct, frozen=True, kw_only=True):
    """Jobs, the best first; none when none was due in time. ``next_due_in``: seconds until one is, where that
    is known. ``repeated``: the answer of an earlier request with this id, its leases made to last again.
    """

    jobs: tuple[ReservedJob, ...]
    next_due_in: float | None
    kept_back: bool
    repeated: bool


async def reserve(request: Request[ReserveQuery, ReserveBody]) -> Response:
    remote, clock, wish = request.app.remote, request.app.clock, _claim_request(request)
    began = clock.monotonic()

    async def check() -> None:
        if clock.monotonic() - began > RECHECK_AFTER_SECONDS:
            await _recheck_caller(request)

    work = remote.reserve(wish, request.query.wait, request.request_key, check)
    # Who has gone must not be given a job. Who was granted some is told again, also by a server that stops.
    if remote.has_granted(request.request_key):
        grant, repeated = await cancel_on_disconnect(request, work)
    else:
        grant, repeated = await cancel_on_disconnect_or_shutdown(request, work, (EMPTY_GRANT, False))
    if (
        grant.jobs and request.is_client_gone
    ):  # in the very moment of the grant; nothing is waited for from here on
        remote.report_undelivered(request.request_key, grant)
        grant = EMPTY_GRANT
    return Response(_shape(grant, clock.monotonic(), repeated=repeated))


async def _recheck_caller(request: Request[ReserveQuery, ReserveBody]) -> None:
    """Whose key was revoked while it waited gets no job."""
    gate = request.api.authenticator
    gate.context(await gate.authenticate(request.headers, changing=False), Permission.WORK, "POST")


def _claim_request(request: Request[ReserveQuery, ReserveBody]) -> ClaimRequest:
    body = request.body
    if (body.topics is None) == (body.lanes is None):
        raise invalid_input_problem("give either topics or lanes", pointer="#/topics")
    if body.topics is not None:
        lanes = [Lane(topic) for topic in body.topics]
    else:
        lanes = read_lanes(body.lanes or ())
    try:
        worker = check_worker_name(body.worker or f"http:{request.caller.name}"[:200].strip())
    except InvalidInput as error:
        raise invalid_input_problem(str(error), pointer="#/worker") from None
    return ClaimRequest(
        worker=worker,
        lanes=tuple(dict.fromkeys(lanes)),
        limit=body.limit,
        lease_seconds=body.lease or request.app.settings.lease,
        topic_limits=body.topic_limits,
        free_slots=body.free,
        reports_starts=body.reports_starts,
    )


def read_lanes(given: Sequence[LaneBody]) -> list[Lane]:
    """The same as lanes. A task by a name that no task can have would be an error of some stores only."""
    for place, lane in enumerate(given):
        try:
            if lane.task:
                check_task_name(lane.task)
        except InvalidInput as error:
            raise invalid_input_problem(str(error), pointer=f"#/lanes/{place}/task") from None
    return [Lane(lane.topic, lane.task) for lane in given]


def _shape(grant: Grant, now: float, *, repeated: bool) -> Reservation:
    passed = now - grant.granted_at
    return Reservation(
        jobs=tuple([_job(job, passed) for job in grant.jobs]),
        next_due_in=grant.next_due_in,
        kept_back=grant.kept_back,
        repeated=repeated,
    )


def _job(job: Claimed, passed: float) -> ReservedJob:
    as_bytes = job.format is BodyFormat.BYTES
    return ReservedJob(
        id=job.lease.job_id,
        fence=job.lease.fence,
        topic=job.topic,
        task=job.task,
        tenant=job.tenant,
        priority=job.priority,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        retry=None if job.retry is None else _raw(job.retry.encode()),
        lease_seconds=job.lease_seconds,
        lease_left=max(0.0, job.lease_seconds - passed),
        payload=base64.b64encode(job.payload).decode("ascii") if as_bytes else _raw(job.payload),
        format="bytes" if as_bytes else "json",
        checkpoint=UNSET if job.checkpoint is None else _raw(job.checkpoint),
        number=job.number,
        created_at=to_datetime(job.created_at),
        run_at=to_datetime(job.run_at),
        key=job.key,
        correlation_id=job.correlation_id,
        user_id=job.user_id,
        service_id=job.service_id,
        headers=headers.read_headers(job.headers),
        losses=job.losses,
    )


def _raw(stored: bytes) -> Any:
    """JSON as it is stored, which needs no second writing."""
    return Raw(stored)


ROUTES: Final = (
    Route(
        method="POST",
        path=f"{WORK_PATH}/reserve",
        name="reserve_jobs",
        summary="Take jobs to run them, waiting for some when told to",
        permission=Permission.WORK,
        handler=reserve,
        query=ReserveQuery,
        body=ReserveBody,
        responses={200: Reservation},
        problems=(BACKPRESSURE,),
        parameters=REQUEST_ID_PARAMETER,
        extra_seconds=lambda query: query.wait,
        tag=WORK_TAG,
    ),
)
