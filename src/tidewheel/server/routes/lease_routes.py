"""Leases over HTTP: start, extend and report, for workers that reach only this server.

Such workers claim and settle jobs over HTTP instead of opening the store. Every write of a worker carries a
lease: a job and a fence. Reports store progress, checkpoints and finished steps of running handlers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from tidewheel.core import payload
from tidewheel.core.clock import DAY, MAX_SECONDS, to_datetime
from tidewheel.core.model import Lease, NewStep, Report, StepRecord
from tidewheel.core.names import check_step_name
from tidewheel.errors import InvalidInput
from tidewheel.server.idempotent_requests import REQUEST_ID_PARAMETER
from tidewheel.server.problems import invalid_input_problem, problem_at
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.tasks.context import make_progress

WORK_PATH: Final = f"{API_ROOT}/work"
WORK_TAG: Final = "work"
MAX_LEASES: Final = 1000
"""Most leases of one request."""

Fence: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
RunSeconds: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_SECONDS, description="Seconds the handler ran.")]
LeaseSeconds: TypeAlias = Annotated[float, Meta(ge=1, le=DAY, description="Seconds.")]


class LeaseBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The right to end one job, as ``reserve`` gave it."""

    id: UUID
    fence: Fence

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.fence)


LeaseList: TypeAlias = Annotated[list[LeaseBody], Meta(min_length=1, max_length=MAX_LEASES)]


class LeasesBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some leases."""

    leases: LeaseList


class StartBody(LeasesBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leases whose handlers have begun, and how long ago each did: now unless told. ``alone``: nothing else
    runs in the worker, so its death counts as an attempt. In company it never does, because any of the jobs
    may have caused it.
    """

    run_seconds: Annotated[list[RunSeconds], Meta(max_length=MAX_LEASES)] = []
    alone: bool = True


class ExtendBody(LeasesBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Leases, and how long each is to last from now: as long as the server's ``lease`` unless told."""

    lease: LeaseSeconds | None = None


class Held(Struct, frozen=True):
    """Whether each lease is held, in the order they were given. Where one is not, nothing was changed."""

    held: tuple[bool, ...]


class Extended(Struct, frozen=True):
    """The same, and whether somebody wants the job to stop."""

    held: tuple[bool, ...]
    cancel_requested: tuple[bool, ...]


class Cancellations(Struct, frozen=True):
    """Whether somebody wants each of these jobs to stop."""

    cancel_requested: tuple[bool, ...]


async def start(request: Request[NoQuery, StartBody]) -> Response:
    body = request.body
    if body.run_seconds and len(body.run_seconds) != len(body.leases):
        raise invalid_input_problem(
            f"run_seconds has {len(body.run_seconds):,} items for {len(body.leases):,} leases; "
            "give one for each, or leave it out",
            pointer="#/run_seconds",
        )
    held = await request.app.remote.start(_leases(body), body.run_seconds, alone=body.alone)
    return Response(Held(tuple(held)))


async def extend(request: Request[NoQuery, ExtendBody]) -> Response:
    remote, leases = request.app.remote, _leases(request.body)
    held = await remote.extend(leases, request.body.lease or request.app.settings.lease)
    return Response(Extended(tuple(held), tuple(await remote.cancel_requests(leases))))


async def cancellations(request: Request[NoQuery, LeasesBody]) -> Response:
    return Response(Cancellations(tuple(await request.app.remote.cancel_requests(_leases(request.body)))))


def _leases(body: LeasesBody) -> list[Lease]:
    return [item.lease for item in body.leases]


ROUTES: Final = (
    Route(
        method="POST",
        path=f"{WORK_PATH}/extend",
        name="extend_leases",
        summary="Make leases last longer",
        permission=Permission.WORK,
        handler=extend,
        body=ExtendBody,
        responses={200: Extended},
        tag=WORK_TAG,
    ),
    Route(
        method="POST",
        path=f"{WORK_PATH}/cancellations",
        name="cancel_requests",
        summary="Which of these jobs somebody wants to stop",
        permission=Permission.WORK,
        handler=cancellations,
        body=LeasesBody,
        responses={200: Cancellations},
        tag=WORK_TAG,
    ),
    Route(
        method="POST",
        path=f"{WORK_PATH}/start",
        name="start_jobs",
        summary="Record that handlers have begun, so that a crash counts as an attempt",
        permission=Permission.WORK,
        handler=start,
        body=StartBody,
        responses={200: Held},
        tag=WORK_TAG,
    ),
)


class ProgressBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Progress of a job: a percentage, clamped to 0 to 100, and texts, cut to 1,000 characters."""

    percent: float
    message: str | None = None
    stage: str | None = None


class StepBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step that is finished. Of two with one name the first stands."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    output: Any
    run_seconds: RunSeconds = 0.0


class ReportBody(LeaseBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to remember of one job. A report says that the job has begun, ``run_seconds`` ago."""

    run_seconds: RunSeconds = 0.0
    progress: ProgressBody | None = None
    checkpoint: Any | UnsetType = UNSET
    step: StepBody | None = None


class ReportsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """What to remember of some jobs."""

    reports: Annotated[list[ReportBody], Meta(min_length=1, max_length=MAX_LEASES)]


class FinishedStep(Struct, frozen=True, kw_only=True):
    """A step that need not run again."""

    name: str
    output: Any
    attempt: int
    worker: str | None
    started_at: datetime
    finished_at: datetime


class Steps(Struct, frozen=True):
    """The finished steps of a job, in their order; none when its lease is not held any more."""

    held: bool
    steps: tuple[FinishedStep, ...]


async def report(request: Request[NoQuery, ReportsBody]) -> Response:
    limit = request.app.settings.max_result_bytes
    reports = [_report(item, limit, f"#/reports/{place}") for place, item in enumerate(request.body.reports)]
    return Response(Held(tuple(await request.app.remote.report(reports))))


async def steps(request: Request[NoQuery, LeaseBody]) -> Response:
    found = await request.app.remote.steps(request.body.lease)
    return Response(Steps(found is not None, tuple([_step(step) for step in found or ()])))


def _report(item: ReportBody, limit: int, pointer: str) -> Report:
    checkpoint = (
        None if item.checkpoint is UNSET else _encode_body(item.checkpoint, limit, "checkpoint", pointer)
    )
    said = item.progress
    progress = None if said is None else make_progress(said.percent, said.message, said.stage)
    return Report(item.lease, progress, checkpoint, _new_step(item, limit, pointer), item.run_seconds)


def _new_step(item: ReportBody, limit: int, pointer: str) -> NewStep | None:
    said = item.step
    if said is None:
        return None
    try:
        name = check_step_name(said.name)
    except InvalidInput as error:
        raise problem_at(error, f"{pointer}/step/name") from None
    return NewStep(name, _encode_body(said.output, limit, "output", f"{pointer}/step"), said.run_seconds)


def _encode_body(value: Any, limit: int, what: str, pointer: str) -> bytes:
    try:
        return payload.encode(value, limit=limit, what=what, limit_name="max_result_bytes")
    except InvalidInput as error:
        raise problem_at(error, f"{pointer}/{what}") from None


def _step(step: StepRecord) -> FinishedStep:
    return FinishedStep(
        name=step.name,
        output=Raw(step.output),
        attempt=step.attempt,
        worker=step.worker,
        started_at=to_datetime(step.started_at),
        finished_at=to_datetime(step.finished_at),
    )


REPORTING_ROUTES: Final = (
    Route(
        method="POST",
        path=f"{WORK_PATH}/report",
        name="report_progress",
        summary="Remember progress, checkpoints and finished steps",
        permission=Permission.WORK,
        handler=report,
        body=ReportsBody,
        responses={200: Held},
        parameters=REQUEST_ID_PARAMETER,
        idempotent=True,
        tag=WORK_TAG,
    ),
    Route(
        method="POST",
        path=f"{WORK_PATH}/steps",
        name="finished_steps",
        summary="The steps that a job has finished",
        permission=Permission.WORK,
        handler=steps,
        body=LeaseBody,
        responses={200: Steps},
        tag=WORK_TAG,
    ),
)
