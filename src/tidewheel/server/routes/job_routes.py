"""Jobs over HTTP: list, show, result, states, and the operator's actions on a job.

A single job has its errors and steps. ``states`` returns the states of up to 1,000 jobs, and
``time`` the server's clock: remote programs that wait for jobs poll both.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from tidewheel.access.audit_log import AuditEntry
from tidewheel.client.job_handle import Job
from tidewheel.core.clock import to_datetime
from tidewheel.core.model import DEFAULT_PAGE, MAX_OFFSET, State
from tidewheel.errors import JobCancelled, JobFailed, ResultTimeout
from tidewheel.server.field_types import StateName
from tidewheel.server.idempotent_requests import REQUEST_ID_PARAMETER
from tidewheel.server.job_json import ErrorShape, JobDetail, JobSerializer, JobSummary
from tidewheel.server.problems import JOB_NOT_FOUND, WRONG_STATE
from tidewheel.server.request import Request
from tidewheel.server.request_cancellation import cancel_on_disconnect_or_shutdown
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.server.routes.filter_routes import JobsFilter

MAX_DEPENDENTS: Final = 50
"""Jobs that run after one which are told one by one."""
MAX_WAIT_SECONDS: Final = 60.0
"""Most seconds a request waits for a result."""


class JobsQuery(JobsFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_OFFSET, description="At most 200 are given.")] = DEFAULT_PAGE
    offset: Annotated[int, Meta(ge=0, le=MAX_OFFSET)] = 0
    cursor: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


class JobList(Struct, frozen=True, kw_only=True):
    """Some jobs, newest first. ``cursor`` is where the next page begins; null means there is none."""

    items: tuple[JobSummary, ...]
    total: int
    total_exact: bool
    limit: int
    offset: int
    cursor: str | None
    partial: bool
    searched_back_to: datetime | None


class ResultQuery(Struct, frozen=True, forbid_unknown_fields=True):
    wait: Annotated[
        float, Meta(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for the job to finish.")
    ] = 0.0


class JobResult(Struct, frozen=True, kw_only=True):
    """What came of a job: ``result`` when it completed, ``error`` when it did not."""

    id: UUID
    state: StateName
    status: StateName
    finished: bool
    finished_at: datetime | None
    result: Any | UnsetType = UNSET
    error: ErrorShape | None = None


class Changed(Struct, frozen=True, kw_only=True):
    """What became of it. ``requested``: its worker has been asked to stop."""

    id: UUID
    action: str
    requested: bool = False


async def list_jobs(request: Request[JobsQuery, None]) -> Response:
    query = request.query
    cursors = await request.api.cursors()
    page = await request.app.jobs(
        limit=query.limit,
        offset=query.offset,
        cursor=None if query.cursor is None else cursors.open(query.cursor, request.cursor_holder),
        **query.filters(request),
    )
    view = job_serializer(request)
    return Response(
        JobList(
            items=tuple(view.summary(job) for job in page.items),
            total=page.total,
            total_exact=page.total_exact,
            limit=page.limit,
            offset=page.offset,
            cursor=None if page.cursor is None else cursors.seal(page.cursor, request.cursor_holder),
            partial=page.partial,
            searched_back_to=page.searched_back_to,
        )
    )


async def get_job(request: Request[NoQuery, None]) -> Response:
    job: Job[Any] = await request.app.get(request.path["id"])
    return Response(job_serializer(request).detail(job, await job.dependents(MAX_DEPENDENTS)))


async def get_result(request: Request[ResultQuery, None]) -> Response:
    app, job_id = request.app, request.path["id"]
    if request.query.wait:
        try:
            await cancel_on_disconnect_or_shutdown(request, app.result(job_id, timeout=request.query.wait))
        except (JobFailed, JobCancelled, ResultTimeout):
            pass  # told below, with what else there is
    job: Job[Any] = await app.get(job_id)
    view = job_serializer(request)
    error = job.error if job.state in {State.FAILED, State.CANCELLED} else None
    finished = job.state.final
    answer = JobResult(
        id=job.id,
        state=str(job.state),
        status=str(job.state),
        finished=finished,
        finished_at=job.finished_at,
        result=view.redacted_body(job.record.result) if job.state is State.COMPLETED else UNSET,
        error=None if error is None else view.error(error),
    )
    return Response(answer) if finished else Response(answer, 202, ((b"retry-after", b"1"),))


async def requeue(request: Request[NoQuery, None]) -> Response:
    async with _record_action(request, "requeue"):
        await request.app.requeue(request.path["id"])
    return _changed(request, "requeue")


async def cancel(request: Request[NoQuery, None]) -> Response:
    async with _record_action(request, "cancel"):
        ended = await request.app.cancel(request.path["id"])
    return _changed(request, "cancel", requested=not ended)


async def take_back(request: Request[NoQuery, None]) -> Response:
    async with _record_action(request, "take-back"):
        await request.app.take_back(request.path["id"])
    return _changed(request, "take-back")


async def delete(request: Request[NoQuery, None]) -> Response:
    async with _record_action(request, "delete"):
        await request.app.delete(request.path["id"])
    return _changed(request, "delete")


def _record_action(request: Request[Any, Any], action: str) -> AbstractAsyncContextManager[AuditEntry]:
    return request.api.authenticator.record_action(request, f"job.{action}", target=str(request.path["id"]))


def _changed(request: Request[Any, Any], action: str, *, requested: bool = False) -> Response:
    job_id = request.path["id"]
    return Response(Changed(id=job_id, action=action, requested=requested), 202 if requested else 200)


def job_serializer(request: Request[Any, Any]) -> JobSerializer:
    """What this caller may see of a job."""
    return JobSerializer(
        request.api.redaction,
        request.app.clock.now(),
        request.caller,
    )


def _action_routes(name: str, summary: str, handler: Any, method: str = "POST") -> Route:
    return Route(
        method=method,
        path=f"{API_ROOT}/{{id:uuid}}" if method == "DELETE" else f"{API_ROOT}/{{id:uuid}}/{name}",
        # As a function of a client, too: delete is a word of many languages.
        name=f"{name.replace('-', '_')}_job",
        summary=summary,
        permission=Permission.MANAGE,
        handler=handler,
        responses={200: Changed, 202: Changed} if name == "cancel" else {200: Changed},
        problems=(JOB_NOT_FOUND, WRONG_STATE),
        parameters=REQUEST_ID_PARAMETER,
        idempotent=True,
    )


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/{{id:uuid}}",
        name="get_job",
        summary="One job with its errors and steps",
        permission=Permission.READ,
        handler=get_job,
        responses={200: JobDetail},
        problems=(JOB_NOT_FOUND,),
        aliases=("/jobs/{id:uuid}",),
    ),
    Route(
        method="GET",
        path=API_ROOT,
        name="list_jobs",
        summary="Jobs that match, newest first",
        permission=Permission.READ,
        handler=list_jobs,
        query=JobsQuery,
        responses={200: JobList},
        aliases=(f"{API_ROOT}/", "/jobs"),
    ),
    Route(
        method="GET",
        path=f"{API_ROOT}/{{id:uuid}}/result",
        name="get_result",
        summary="What came of a job, waiting for it when told to",
        permission=Permission.READ,
        handler=get_result,
        query=ResultQuery,
        responses={200: JobResult, 202: JobResult},
        problems=(JOB_NOT_FOUND,),
        aliases=("/jobs/{id:uuid}/result",),
        extra_seconds=lambda query: query.wait,
    ),
    _action_routes("requeue", "Run a failed or cancelled job again", requeue),
    _action_routes("cancel", "Cancel a job, or ask its worker to stop", cancel),
    _action_routes(
        "take-back", "Take a running job from its holder: it is pending again, and not counted", take_back
    ),
    _action_routes("delete", "Remove a job that is not running", delete, "DELETE"),
)


MAX_JOBS: Final = 1000
"""Most jobs that one request may ask about."""


class StatesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    wait: Annotated[
        float, Meta(ge=0, le=MAX_WAIT_SECONDS, description="Seconds to wait for one of them to finish.")
    ] = 0.0


class StatesBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Some jobs."""

    ids: Annotated[list[UUID], Meta(min_length=1, max_length=MAX_JOBS)]


class States(Struct, frozen=True):
    """The states of these jobs, in their order; null where there is no such job for this caller."""

    states: tuple[StateName | None, ...]


class Time(Struct, frozen=True):
    """What time it is, by the clock that decides when jobs are due, and how large a request may be."""

    now: datetime
    max_request_bytes: int


async def states(request: Request[StatesQuery, StatesBody]) -> Response:
    found = await cancel_on_disconnect_or_shutdown(
        request, request.app.remote.states(request.body.ids, request.query.wait)
    )
    return Response(States(tuple([None if state is None else str(state) for state in found])))


async def time(request: Request[NoQuery, None]) -> Response:
    app = request.app
    return Response(Time(to_datetime(await app.remote.now()), app.settings.max_request_bytes))


STATE_ROUTES: Final = (
    Route(
        method="POST",
        path=f"{API_ROOT}/states",
        name="job_states",
        summary="The states of up to 1,000 jobs, waiting for one to finish when told to",
        permission=Permission.READ,
        handler=states,
        query=StatesQuery,
        body=StatesBody,
        responses={200: States},
        extra_seconds=lambda query: query.wait,
    ),
    Route(
        method="GET",
        path=f"{API_ROOT}/time",
        name="time",
        summary="What time it is, and how large a request may be",
        permission=Permission.PUBLIC,
        handler=time,
        responses={200: Time},
        tag="operating",
    ),
)
