"""What running handlers want remembered, over HTTP: progress, checkpoints, finished steps."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from tidewheel import payload
from tidewheel.clock import to_datetime
from tidewheel.context import make_progress
from tidewheel.errors import InvalidInput
from tidewheel.model import NewStep, Report, StepRecord
from tidewheel.names import check_step_name
from tidewheel.server.problems import located
from tidewheel.server.repeats import REQUEST_ID
from tidewheel.server.request import Request
from tidewheel.server.route import Answer, Nothing, Permission, Route
from tidewheel.server.work.leases import MAX_LEASES, PATH, TAG, Held, LeaseBody, RunSeconds


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


async def report(request: Request[Nothing, ReportsBody]) -> Answer:
    limit = request.app.settings.max_result_bytes
    reports = [_report(item, limit, f"#/reports/{place}") for place, item in enumerate(request.body.reports)]
    return Answer(Held(tuple(await request.app.remote.report(reports))))


async def steps(request: Request[Nothing, LeaseBody]) -> Answer:
    found = await request.app.remote.steps(request.body.lease)
    return Answer(Steps(found is not None, tuple([_step(step) for step in found or ()])))


def _report(item: ReportBody, limit: int, pointer: str) -> Report:
    checkpoint = None if item.checkpoint is UNSET else _body(item.checkpoint, limit, "checkpoint", pointer)
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
        raise located(error, f"{pointer}/step/name") from None
    return NewStep(name, _body(said.output, limit, "output", f"{pointer}/step"), said.run_seconds)


def _body(value: Any, limit: int, what: str, pointer: str) -> bytes:
    try:
        return payload.encode(value, limit=limit, what=what, limit_name="max_result_bytes")
    except InvalidInput as error:
        raise located(error, f"{pointer}/{what}") from None


def _step(step: StepRecord) -> FinishedStep:
    return FinishedStep(
        name=step.name,
        output=Raw(step.output),
        attempt=step.attempt,
        worker=step.worker,
        started_at=to_datetime(step.started_at),
        finished_at=to_datetime(step.finished_at),
    )


ROUTES: Final = (
    Route(
        method="POST",
        path=f"{PATH}/report",
        name="report_progress",
        summary="Remember progress, checkpoints and finished steps",
        permission=Permission.WORK,
        handler=report,
        body=ReportsBody,
        answers={200: Held},
        parameters=REQUEST_ID,
        repeatable=True,
        tag=TAG,
    ),
    Route(
        method="POST",
        path=f"{PATH}/steps",
        name="finished_steps",
        summary="The steps that a job has finished",
        permission=Permission.WORK,
        handler=steps,
        body=LeaseBody,
        answers={200: Steps},
        tag=TAG,
    ),
)
