"""Schedules: listing, making, pausing and running them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias, cast
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from tidewheel.core.cron import (
    MAX_EXPRESSION,
    MAX_MADE_UP_RUNS,
    MAX_SCHEDULES,
    MAX_SECONDS,
    MIN_SECONDS,
    Cron,
    Every,
    Timing,
    zone_of,
)
from tidewheel.errors import InvalidInput, ScheduleNotFound
from tidewheel.schedules.schedule import Schedule
from tidewheel.server.field_types import TenantName
from tidewheel.server.idempotent_requests import REQUEST_ID_PARAMETER
from tidewheel.server.problems import (
    HANDLER_NOT_FOUND,
    LIMIT_EXCEEDED,
    SCHEDULE_NOT_FOUND,
    WRONG_STATE,
    invalid_input_problem,
    problem_at,
)
from tidewheel.server.redaction import CannotRestore
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.server.routes.enqueue_routes import (
    OPTIONS,
    EnqueuedJob,
    JobBody,
    enqueued_fields,
    read_payload,
    read_retry,
    unknown_task_error,
)
from tidewheel.tasks.options import EnqueueOptions

ScheduleName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:@-]{1,200}$")]


class SchedulesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_SCHEDULES)] = 200
    offset: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0


class ScheduleBody(JobBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When (``cron`` and ``zone``, or ``every`` so many seconds) which job is made, for a task or a topic."""

    cron: Annotated[str, Meta(min_length=9, max_length=MAX_EXPRESSION)] | None = None
    zone: Annotated[str, Meta(min_length=1, max_length=100, description="An IANA name.")] = "UTC"
    # A whole number, as others have it: typing takes equal annotations for one, whichever came first.
    every: Annotated[float, Meta(ge=int(MIN_SECONDS), le=MAX_SECONDS, description="Seconds.")] | None = None
    missed: Literal["skip", "one", "all"] = "one"
    most: Annotated[int, Meta(ge=1, le=MAX_MADE_UP_RUNS)] = 100
    tenant: TenantName | UnsetType = UNSET


class NewScheduleBody(ScheduleBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, and what it is called."""

    name: ScheduleName


class ScheduleOptions(Struct, frozen=True, kw_only=True):
    """What its jobs are like."""

    tenant: str
    priority: int
    max_attempts: int | None
    timeout: float | None
    key: str | None
    until: str | None
    on_duplicate: str | None
    expires: float | None
    retention: float | None
    retention_failed: float | None
    correlation_id: str | None
    user_id: str | None
    service_id: str | None
    limit_key: str | None


class ScheduleShape(Struct, frozen=True, kw_only=True):
    """A schedule. ``next_runs`` are the next five firings, none while it is paused.

    ``origin`` is ``declared`` (by code; then ``undeclared`` says that no worker has had that code for half
    an hour) or ``created``. ``trouble`` says why its newest firing made no job. ``overdue_since``: a firing
    waits since then, and no worker has made its job. ``missed_count`` are firings that made none.
    """

    name: str
    task: str | None
    topic: str
    payload: Any
    format: Literal["json", "bytes"]
    cron: str | None
    zone: str | None
    every: float | None
    missed: str | None
    most: int | None
    options: ScheduleOptions
    origin: Literal["declared", "created"]
    paused: bool
    created_at: datetime
    updated_at: datetime
    next_runs: tuple[datetime, ...]
    last_fire_time: datetime | None
    last_fired_at: datetime | None
    last_job_id: UUID | None
    fired_count: int
    missed_count: int
    trouble: str | None
    trouble_at: datetime | None
    overdue_since: datetime | None
    undeclared: bool


class ScheduleList(Struct, frozen=True, kw_only=True):
    """Schedules by name."""

    items: tuple[ScheduleShape, ...]
    total: int
    limit: int
    offset: int


async def list_schedules(request: Request[SchedulesQuery, None]) -> Response:
    query = request.query
    found = await request.app.schedules.all()
    chosen = found[query.offset : query.offset + query.limit]
    items = tuple(_shape(request, schedule) for schedule in chosen)
    return Response(ScheduleList(items=items, total=len(found), limit=query.limit, offset=query.offset))


async def get_schedule(request: Request[NoQuery, None]) -> Response:
    return Response(_shape(request, await request.app.schedules.get(request.path["schedule"])))


async def create_schedule(request: Request[NoQuery, NewScheduleBody]) -> Response:
    made = await _create(request, request.body.name, replace=False)
    location = f"{request.mount_path}{API_ROOT}/schedules/{made.name}".encode()
    return Response(made, 201, ((b"location", location),))


async def replace_schedule(request: Request[NoQuery, ScheduleBody]) -> Response:
    return Response(await _create(request, request.path["schedule"], replace=True))


async def _create(request: Request[Any, Any], name: str, *, replace: bool) -> ScheduleShape:
    body: ScheduleBody = request.body
    when = _when(body)
    options: dict[str, Any] = {
        option: getattr(body, option) for option in (*OPTIONS, "tenant") if getattr(body, option) is not UNSET
    }
    if options.get("retry") is not None:
        options["retry"] = read_retry(options["retry"])
    target = _target(request, body, options)
    payload = read_payload(body.payload, body.format, "#")
    if replace:
        payload = await _restored(request, name, payload)
    action = "schedule.replace" if replace else "schedule.create"
    details = {"when": str(when), "for": target}
    async with request.api.authenticator.record_action(request, action, target=name, details=details):
        made = await request.app.schedules.create(
            name,
            target,
            when,
            payload,
            replace=replace,
            **cast("EnqueueOptions", options),  # the app checks every value
        )
    return _shape(request, made)


async def _restored(request: Request[Any, Any], name: str, payload: Any) -> Any:
    """The payload with the values that ``redact`` hides where it still has the marks for them.

    Who edits what a page has shown would overwrite secrets with their marks otherwise.
    """
    try:
        before = (await request.app.schedules.get(name)).payload
    except ScheduleNotFound:
        return payload
    try:
        return request.api.redaction.restore(payload, before)
    except CannotRestore as error:
        place = ".".join(map(str, error.path))
        raise invalid_input_problem(
            f"{place} has the mark of a hidden value, but {error.reason}; give the value itself",
            pointer="#/payload",
        ) from None


def _when(body: ScheduleBody) -> Timing:
    if (body.cron is None) == (body.every is None):
        raise invalid_input_problem("give cron or every, and not both", pointer="#/cron")
    if body.cron is not None:
        with _located("#/zone"):
            zone_of(body.zone)
        with _located("#/cron"):
            return Cron(body.cron, zone=body.zone, missed=body.missed, most=body.most)
    return Every(body.every or 0.0, missed=body.missed, most=body.most)


@contextmanager
def _located(pointer: str) -> Iterator[None]:
    """What is refused meanwhile is about this field."""
    try:
        yield
    except InvalidInput as error:
        raise problem_at(error, pointer) from None


def _target(request: Request[Any, Any], body: ScheduleBody, options: dict[str, Any]) -> str:
    """The task or topic by name, as for an enqueue."""
    registry = request.app.registry
    if body.task is not UNSET:
        if registry.find(body.task) is None:
            raise unknown_task_error(registry, body.task)
        if body.topic is not UNSET:
            options["topic"] = body.topic
        return body.task
    if body.topic is UNSET:
        raise invalid_input_problem("task and topic are both missing; give one of them", pointer="#/topic")
    return body.topic


async def pause_schedule(request: Request[NoQuery, None]) -> Response:
    name = request.path["schedule"]
    async with request.api.authenticator.record_action(request, "schedule.pause", target=name):
        paused = await request.app.schedules.pause(name)
    return Response(_shape(request, paused))


async def resume_schedule(request: Request[NoQuery, None]) -> Response:
    name = request.path["schedule"]
    async with request.api.authenticator.record_action(request, "schedule.resume", target=name):
        resumed = await request.app.schedules.resume(name)
    return Response(_shape(request, resumed))


async def run_schedule(request: Request[NoQuery, None]) -> Response:
    name = request.path["schedule"]
    async with request.api.authenticator.record_action(request, "schedule.run", target=name) as entry:
        job = await request.app.schedules.run(name)
        entry.details["job"] = str(job.id)
    location = f"{request.mount_path}{API_ROOT}/{job.id}".encode()
    return Response(EnqueuedJob(**enqueued_fields(job)), 201, ((b"location", location),))


async def delete_schedule(request: Request[NoQuery, None]) -> Response:
    name = request.path["schedule"]
    async with request.api.authenticator.record_action(request, "schedule.delete", target=name):
        await request.app.schedules.delete(name)
    return Response(ScheduleChanged(name, "delete"))


class ScheduleChanged(Struct, frozen=True):
    schedule: str
    action: str


def _shape(request: Request[Any, Any], schedule: Schedule) -> ScheduleShape:
    when, options = schedule.when, schedule.options
    is_bytes = isinstance(schedule.payload, bytes)
    return ScheduleShape(
        name=schedule.name,
        task=schedule.task,
        topic=schedule.topic,
        payload=base64.b64encode(schedule.payload).decode()
        if is_bytes
        else request.api.redaction.apply(schedule.payload),
        format="bytes" if is_bytes else "json",
        cron=when.expression if isinstance(when, Cron) else None,
        zone=when.zone if isinstance(when, Cron) else None,
        every=cast("float", when.seconds) if isinstance(when, Every) else None,
        missed=None if when is None else when.missed,
        most=None if when is None else when.most,
        options=_options(options),
        origin=schedule.origin.value,
        paused=schedule.paused,
        created_at=schedule.created_at,
        updated_at=schedule.updated_at,
        next_runs=schedule.next_runs,
        last_fire_time=schedule.last_fire_time,
        last_fired_at=schedule.last_fired_at,
        last_job_id=schedule.last_job_id,
        fired_count=schedule.fired,
        missed_count=schedule.missed,
        trouble=schedule.trouble,
        trouble_at=schedule.trouble_at,
        overdue_since=schedule.overdue_since,
        undeclared=schedule.undeclared,
    )


def _options(given: Mapping[str, Any]) -> ScheduleOptions:
    fields: dict[str, Any] = {name: given.get(name) for name in ScheduleOptions.__struct_fields__}
    return ScheduleOptions(**fields)


_SCHEDULE_PATH: Final = f"{API_ROOT}/schedules/{{schedule}}"
_CREATE_PROBLEMS: Final = (WRONG_STATE, HANDLER_NOT_FOUND, LIMIT_EXCEEDED)

ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/schedules",
        name="list_schedules",
        summary="The schedules by name, with their next runs and their last one",
        permission=Permission.SUPERUSER,
        handler=list_schedules,
        query=SchedulesQuery,
        responses={200: ScheduleList},
        tag="schedules",
    ),
    Route(
        method="POST",
        path=f"{API_ROOT}/schedules",
        name="create_schedule",
        summary="Make a schedule",
        permission=Permission.SUPERUSER,
        handler=create_schedule,
        body=NewScheduleBody,
        responses={201: ScheduleShape},
        problems=_CREATE_PROBLEMS,
        tag="schedules",
    ),
    Route(
        method="GET",
        path=_SCHEDULE_PATH,
        name="get_schedule",
        summary="One schedule",
        permission=Permission.SUPERUSER,
        handler=get_schedule,
        responses={200: ScheduleShape},
        problems=(SCHEDULE_NOT_FOUND,),
        tag="schedules",
    ),
    Route(
        method="PUT",
        path=_SCHEDULE_PATH,
        name="replace_schedule",
        summary="Make a schedule, or put it in the place of the one of that name",
        permission=Permission.SUPERUSER,
        handler=replace_schedule,
        body=ScheduleBody,
        responses={200: ScheduleShape},
        problems=_CREATE_PROBLEMS,
        tag="schedules",
    ),
    Route(
        method="DELETE",
        path=_SCHEDULE_PATH,
        name="delete_schedule",
        summary="Forget a schedule; its jobs stay",
        permission=Permission.SUPERUSER,
        handler=delete_schedule,
        responses={200: ScheduleChanged},
        problems=(SCHEDULE_NOT_FOUND,),
        tag="schedules",
    ),
    Route(
        method="POST",
        path=f"{_SCHEDULE_PATH}/pause",
        name="pause_schedule",
        summary="Let a schedule make no jobs until it is resumed",
        permission=Permission.SUPERUSER,
        handler=pause_schedule,
        responses={200: ScheduleShape},
        problems=(SCHEDULE_NOT_FOUND,),
        tag="schedules",
    ),
    Route(
        method="POST",
        path=f"{_SCHEDULE_PATH}/resume",
        name="resume_schedule",
        summary="Let a schedule make jobs again, from now on",
        permission=Permission.SUPERUSER,
        handler=resume_schedule,
        responses={200: ScheduleShape},
        problems=(SCHEDULE_NOT_FOUND,),
        tag="schedules",
    ),
    Route(
        method="POST",
        path=f"{_SCHEDULE_PATH}/run",
        name="run_schedule",
        summary="Make a job of a schedule now, whatever its times are",
        permission=Permission.SUPERUSER,
        handler=run_schedule,
        responses={201: EnqueuedJob},
        problems=(SCHEDULE_NOT_FOUND, LIMIT_EXCEEDED),
        parameters=REQUEST_ID_PARAMETER,
        idempotent=True,
        tag="schedules",
    ),
)
