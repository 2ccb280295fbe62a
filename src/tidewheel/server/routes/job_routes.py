"""Jobs over HTTP: list, show, result, states, and the operator's actions on a job.

A single job has its errors and steps. ``states`` returns the states of up to 1,000 jobs, and
``time`` the server's clock: remote programs that wait for jobs poll both.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias, cast
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from tidewheel.access.audit_log import AuditEntry
from tidewheel.admin.filters import MAX_SEARCH_LENGTH, JobFilters
from tidewheel.admin.filters.fields import read_state
from tidewheel.app import DEFAULT_PAGE, LARGEST_OFFSET
from tidewheel.client.job_handle import Job
from tidewheel.core.clock import to_datetime
from tidewheel.core.model import State
from tidewheel.errors import InvalidFilter, InvalidInput, JobCancelled, JobFailed, ResultTimeout
from tidewheel.server.field_types import StateName, TenantName
from tidewheel.server.idempotent_requests import REQUEST_ID
from tidewheel.server.job_json import ErrorShape, JobDetail, JobSummary, Viewer
from tidewheel.server.problems import JOB_NOT_FOUND, WRONG_STATE, Problem, located, refused
from tidewheel.server.request import Request
from tidewheel.server.request_cancellation import unless_gone
from tidewheel.server.route import ROOT, Answer, Nothing, Permission, Route
from tidewheel.server.routes.filter_routes import refuse_peeping

MOST_DEPENDENTS: Final = 50
"""Jobs that run after one which are told one by one."""
LONGEST_WAIT: Final = 60.0
"""Most seconds a request waits for a result."""

Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
SearchText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_SEARCH_LENGTH)]


class JobsFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which jobs. ``handler_id`` is another name for ``task``, ``status`` for ``state``."""

    where: SearchText | None = None
    topic: SearchText | None = None
    task: Annotated[str, Meta(max_length=MAX_SEARCH_LENGTH)] | None = None
    handler_id: SearchText | None = None
    state: SearchText | None = None
    status: SearchText | None = None
    tenant: TenantName | None = None
    key: SearchText | None = None
    correlation_id: SearchText | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    text: SearchText | None = None

    def filters(self, request: Request[Any, Any], pointer: str | None = None) -> JobFilters:
        """The same under the names of the Python API, without what was not given.

        ``pointer``: where in the body it is; None is the query.
        """

        def wrong(name: str, detail: str) -> Problem:
            if pointer is None:
                return refused(detail, parameter=name)
            return refused(detail, pointer=f"{pointer}/{name}")

        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("where", "topic", "task", "tenant", "key", "correlation_id", "text")
        }
        given["created_after"], given["created_before"] = self.created_after, self.created_before
        for ours, theirs in (("task", "handler_id"), ("state", "status")):
            value, other = getattr(self, ours), getattr(self, theirs)
            if value is not None and other is not None:
                raise wrong(theirs, f"{ours} and {theirs} are the same; give one of them")
            given[ours] = other if value is None else value
        if given["state"] is not None:
            try:
                given["state"] = str(read_state(given["state"]))
            except InvalidInput as error:
                raise wrong("state" if self.status is None else "status", str(error)) from None
        if given["tenant"] is not None and request.context is not None:
            raise wrong("tenant", "tenant can be chosen by superusers only; leave it out")
        try:
            refuse_peeping(request, self.where, self.text)
        except InvalidFilter as error:
            if pointer is None:
                raise
            raise located(error, f"{pointer}/where") from None
        chosen = {name: value for name, value in given.items() if value is not None}
        return cast("JobFilters", chosen)  # the app checks every value


class JobsQuery(JobsFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=LARGEST_OFFSET, description="At most 200 are given.")] = DEFAULT_PAGE
    offset: Annotated[int, Meta(ge=0, le=LARGEST_OFFSET)] = 0
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
        float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the job to finish.")
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


async def list_jobs(request: Request[JobsQuery, None]) -> Answer:
    query = request.query
    cursors = await request.api.cursors()
    page = await request.app.jobs(
        limit=query.limit,
        offset=query.offset,
        cursor=None if query.cursor is None else cursors.open(query.cursor, request.cursor_holder),
        **query.filters(request),
    )
    view = viewer(request)
    return Answer(
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


async def get_job(request: Request[Nothing, None]) -> Answer:
    job: Job[Any] = await request.app.get(request.path["id"])
    return Answer(viewer(request).detail(job, await job.dependents(MOST_DEPENDENTS)))


async def get_result(request: Request[ResultQuery, None]) -> Answer:
    app, job_id = request.app, request.path["id"]
    if request.query.wait:
        try:
            await unless_gone(request, app.result(job_id, timeout=request.query.wait))
        except (JobFailed, JobCancelled, ResultTimeout):
            pass  # told below, with what else there is
    job: Job[Any] = await app.get(job_id)
    view = viewer(request)
    error = job.error if job.state in {State.FAILED, State.CANCELLED} else None
    finished = job.state.final
    answer = JobResult(
        id=job.id,
        state=str(job.state),
        status=str(job.state),
        finished=finished,
        finished_at=job.finished_at,
        result=view.body(job.record.result) if job.state is State.COMPLETED else UNSET,
        error=None if error is None else view.error(error),
    )
    return Answer(answer) if finished else Answer(answer, 202, ((b"retry-after", b"1"),))


async def requeue(request: Request[Nothing, None]) -> Answer:
    async with _audited(request, "requeue"):
        await request.app.requeue(request.path["id"])
    return _changed(request, "requeue")


async def cancel(request: Request[Nothing, None]) -> Answer:
    async with _audited(request, "cancel"):
        ended = await request.app.cancel(request.path["id"])
    return _changed(request, "cancel", requested=not ended)


async def take_back(request: Request[Nothing, None]) -> Answer:
    async with _audited(request, "take-back"):
        await request.app.take_back(request.path["id"])
    return _changed(request, "take-back")


async def delete(request: Request[Nothing, None]) -> Answer:
    async with _audited(request, "delete"):
        await request.app.delete(request.path["id"])
    return _changed(request, "delete")


def _audited(request: Request[Any, Any], action: str) -> AbstractAsyncContextManager[AuditEntry]:
    return request.api.gate.audited(request, f"job.{action}", target=str(request.path["id"]))


def _changed(request: Request[Any, Any], action: str, *, requested: bool = False) -> Answer:
    job_id = request.path["id"]
    return Answer(Changed(id=job_id, action=action, requested=requested), 202 if requested else 200)


def viewer(request: Request[Any, Any]) -> Viewer:
    """What this caller may see of a job."""
    return Viewer(
        request.api.redaction,
        request.app.clock.now(),
        request.caller,
    )


def _verb(name: str, summary: str, handler: Any, method: str = "POST") -> Route:
    return Route(
        method=method,
        path=f"{ROOT}/{{id:uuid}}" if method == "DELETE" else f"{ROOT}/{{id:uuid}}/{name}",
        # As a function of a client, too: delete is a word of many languages.
        name=f"{name.replace('-', '_')}_job",
        summary=summary,
        permission=Permission.MANAGE,
        handler=handler,
        answers={200: Changed, 202: Changed} if name == "cancel" else {200: Changed},
        problems=(JOB_NOT_FOUND, WRONG_STATE),
        parameters=REQUEST_ID,
        repeatable=True,
    )


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{ROOT}/{{id:uuid}}",
        name="get_job",
        summary="One job with its errors and steps",
        permission=Permission.READ,
        handler=get_job,
        answers={200: JobDetail},
        problems=(JOB_NOT_FOUND,),
        aliases=("/jobs/{id:uuid}",),
    ),
    Route(
        method="GET",
        path=ROOT,
        name="list_jobs",
        summary="Jobs that match, newest first",
        permission=Permission.READ,
        handler=list_jobs,
        query=JobsQuery,
        answers={200: JobList},
        aliases=(f"{ROOT}/", "/jobs"),
    ),
    Route(
        method="GET",
        path=f"{ROOT}/{{id:uuid}}/result",
        name="get_result",
        summary="What came of a job, waiting for it when told to",
        permission=Permission.READ,
        handler=get_result,
        query=ResultQuery,
        answers={200: JobResult, 202: JobResult},
        problems=(JOB_NOT_FOUND,),
        aliases=("/jobs/{id:uuid}/result",),
        seconds=lambda query: query.wait,
    ),
    _verb("requeue", "Run a failed or cancelled job again", requeue),
    _verb("cancel", "Cancel a job, or ask its worker to stop", cancel),
    _verb("take-back", "Take a running job from its holder: it is pending again, and not counted", take_back),
    _verb("delete", "Remove a job that is not running", delete, "DELETE"),
)


MAX_JOBS: Final = 1000
"""Most jobs that one request may ask about."""


class StatesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    wait: Annotated[
        float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for one of them to finish.")
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


async def states(request: Request[StatesQuery, StatesBody]) -> Answer:
    found = await unless_gone(request, request.app.remote.states(request.body.ids, request.query.wait))
    return Answer(States(tuple([None if state is None else str(state) for state in found])))


async def time(request: Request[Nothing, None]) -> Answer:
    app = request.app
    return Answer(Time(to_datetime(await app.remote.now()), app.settings.max_request_bytes))


STATE_ROUTES: Final = (
    Route(
        method="POST",
        path=f"{ROOT}/states",
        name="job_states",
        summary="The states of up to 1,000 jobs, waiting for one to finish when told to",
        permission=Permission.READ,
        handler=states,
        query=StatesQuery,
        body=StatesBody,
        answers={200: States},
        seconds=lambda query: query.wait,
    ),
    Route(
        method="GET",
        path=f"{ROOT}/time",
        name="time",
        summary="What time it is, and how large a request may be",
        permission=Permission.PUBLIC,
        handler=time,
        answers={200: Time},
        tag="operating",
    ),
)
