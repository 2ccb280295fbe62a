"""Enqueue one job over HTTP, or up to 1,000 in one request.

An enqueue rule sees the request in canonical form: one name and one form for every option. Clients may spell
the same option differently: ``runAt``, ``run_at`` or ``delay``; ``maxRetries`` or ``max_attempts``;
``Idempotency-Key`` or ``key``; ``"5000"`` or ``5000`` where the task wants a number. A rule that saw the raw
request could be bypassed by another spelling.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from tidewheel.client.enqueue import enqueue_job, enqueue_jobs
from tidewheel.client.job_handle import Job
from tidewheel.core import headers as job_headers
from tidewheel.core import payload
from tidewheel.core.clock import (
    MAX_SECONDS,
    MICROSECONDS,
    seconds_to_microseconds,
    to_datetime,
    to_microseconds,
)
from tidewheel.core.model import BodyFormat, JobRecord, NewJob, OnDuplicate
from tidewheel.core.names import shorten, suggest
from tidewheel.core.retry import Retry
from tidewheel.errors import HandlerNotFound, InvalidInput, InvalidPayload
from tidewheel.pull.queue import MIN_TTR_SECONDS
from tidewheel.server.field_types import StateName, TenantName, TopicName
from tidewheel.server.idempotent_requests import REQUEST_ID_PARAMETER
from tidewheel.server.problems import (
    BACKPRESSURE,
    HANDLER_NOT_FOUND,
    KEY_IN_USE,
    LIMIT_EXCEEDED,
    Problem,
    invalid_input_problem,
    problem_at,
)
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.settings import MAX_COUNT
from tidewheel.tasks.job_factory import job_maker, with_job_index
from tidewheel.tasks.options import MAX_AFTER, MAX_LIMIT_KEY_LENGTH, MAX_PRIORITY, EnqueueOptions
from tidewheel.tasks.registry import Registry
from tidewheel.tasks.signature import Signature
from tidewheel.tasks.task import Task

_UNLIMITED: Final = frozenset({"max_attempts", "timeout", "retention", "retention_failed"})
"""Options whose null means without a limit: more than any number, and not the same as nothing said."""


def canonical_body(
    options: Mapping[str, Any], *, topic: str, task: str, body: Any, body_format: str, now: int
) -> dict[str, Any]:
    """Return ``@request.body``: the options under their names in Python, and where the job goes with what.

    ``said`` has the options that were given, aliases and headers merged. ``run_at``, a text in UTC, and
    ``delay`` are both there if one of them was given. ``now``: microseconds, to tell one from the other.
    """
    known: dict[str, Any] = {}
    for name, value in options.items():
        if value is not None:
            known[name] = msgspec.to_builtins(value) if name in {"retry", "after"} else value
        elif name in _UNLIMITED:
            known[name] = math.inf
    due = None
    if "run_at" in known:
        due = to_microseconds(known["run_at"])
    elif "delay" in known:
        due = now + seconds_to_microseconds(known["delay"])
    if due is not None:
        text = to_datetime(due).isoformat(timespec="microseconds")
        known |= {"run_at": text.replace("+00:00", "Z"), "delay": max(0, due - now) / MICROSECONDS}
    return {**known, "topic": topic, "task": task, "payload": body, "format": body_format}


def validated_body(job: NewJob, task: Task[..., Any] | None) -> tuple[Any, str]:
    """Return the payload with what its task makes of the values, and its format."""
    if job.format is BodyFormat.BYTES:
        return base64.b64encode(job.payload).decode("ascii"), "bytes"
    if task is not None and isinstance(task.signature, Signature):
        return task.signature.normalize(job.payload), "json"
    return payload.decode(job.payload), "json"


def rule_fields(job: NewJob | JobRecord) -> dict[str, Any]:
    """Return what a rule can ask of the new job beside its owner, task and topic."""
    return {"priority": job.priority, "key": job.key, "correlation_id": job.correlation_id}


MAX_JOBS_PER_REQUEST: Final = 1000
"""Most jobs of one request."""
TRACE_HEADERS: Final = frozenset({"traceparent", "tracestate"})
"""Headers of a job that anybody may give: they change nothing but what traces show."""

TaskName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_SECONDS, description="Seconds.")]
PositiveSeconds: TypeAlias = Annotated[float, Meta(ge=0.001, le=MAX_SECONDS, description="Seconds.")]
AttemptCount: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
RetryCount: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_COUNT - 1)]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
Ttr: TypeAlias = Annotated[float, Meta(ge=int(MIN_TTR_SECONDS), le=MAX_SECONDS, description="Seconds.")]
LimitKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_LIMIT_KEY_LENGTH)]


class ExponentialRetry(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="exponential"):
    """Wait ``initial`` seconds, then ``factor`` times longer each time."""

    initial: Seconds = 1.0
    factor: Annotated[float, Meta(ge=1, le=1000)] = 2.0
    maximum: Seconds = 30.0
    jitter: bool = True


class QuadraticRetry(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="quadratic"):
    """Wait n² times ``unit`` seconds after attempt n."""

    unit: Seconds = 60.0
    maximum: Seconds = 86_400.0
    jitter: bool = True


class FixedRetry(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="fixed"):
    """Wait the same every time."""

    delay: Seconds
    jitter: bool = True


class SequenceRetry(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="sequence"):
    """Wait these times in turn; the last one repeats."""

    delays: Annotated[list[Seconds], Meta(min_length=1, max_length=100)]
    jitter: bool = True


RetryBody: TypeAlias = ExponentialRetry | QuadraticRetry | FixedRetry | SequenceRetry


class JobBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said of a job, whoever makes it and when."""

    topic: TopicName | UnsetType = UNSET
    task: TaskName | UnsetType = UNSET
    payload: Any = None
    format: Literal["json", "bytes"] = "json"
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | UnsetType = UNSET
    max_attempts: AttemptCount | UnsetType | None = UNSET
    key: Text | UnsetType | None = UNSET
    until: Literal["pruned", "finished"] | UnsetType = UNSET
    on_duplicate: Literal["keep", "replace"] | UnsetType = UNSET
    correlation_id: Text | UnsetType | None = UNSET
    timeout: PositiveSeconds | UnsetType | None = UNSET
    retry: RetryBody | UnsetType | None = UNSET
    expires: PositiveSeconds | UnsetType | None = UNSET
    limit_key: LimitKey | UnsetType | None = UNSET


class EnqueueBody(JobBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to make, for a task or for whoever takes jobs of a topic.

    ``runAt``, ``maxRetries``, ``max_retries`` (attempts after the first), ``maxAttempts``,
    ``correlationId``, ``onDuplicate`` and ``afterAny`` are other names, for programs that use them.
    ``after``: jobs that must have completed before; with ``after_any`` they may end in any way.
    ``headers``: texts that travel with the job, for programs that pass on jobs of others; for superusers, but
    for ``traceparent`` and ``tracestate``.
    ``tenant``, ``user_id``, ``service_id``: for whom the job is, which superusers may choose; everybody
    else's jobs are for whom the key or the token is, and another one is refused.
    ``ttr``: seconds that a reservation of the job lasts, in place of the lease that its worker asks for.
    """

    run_at: Moment | UnsetType | None = UNSET
    delay: Seconds | UnsetType | None = UNSET
    after: Annotated[list[UUID], Meta(max_length=MAX_AFTER)] | UnsetType | None = UNSET
    after_any: bool | UnsetType = UNSET
    retention: Seconds | UnsetType | None = UNSET
    retention_failed: Seconds | UnsetType | None = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    tenant: TenantName | UnsetType = UNSET
    user_id: Text | UnsetType = UNSET
    service_id: Text | UnsetType = UNSET
    ttr: Ttr | UnsetType | None = UNSET
    camel_run_at: Moment | UnsetType | None = field(default=UNSET, name="runAt")
    camel_max_retries: RetryCount | UnsetType = field(default=UNSET, name="maxRetries")
    max_retries: RetryCount | UnsetType = UNSET
    camel_max_attempts: AttemptCount | UnsetType | None = field(default=UNSET, name="maxAttempts")
    camel_correlation_id: Text | UnsetType | None = field(default=UNSET, name="correlationId")
    camel_on_duplicate: Literal["keep", "replace"] | UnsetType = field(default=UNSET, name="onDuplicate")
    camel_after_any: bool | UnsetType = field(default=UNSET, name="afterAny")


_ALIASES: Final = {
    "runAt": "run_at",
    "maxAttempts": "max_attempts",
    "correlationId": "correlation_id",
    "onDuplicate": "on_duplicate",
    "afterAny": "after_any",
    "maxRetries": "max_attempts",
    "max_retries": "max_attempts",
}
_OWNER_FIELDS: Final = ("tenant", "user_id", "service_id")
_FIELD_NAMES: Final = EnqueueBody.__struct_encode_fields__
_COMMON_FIELDS: Final = _FIELD_NAMES[:4]  # topic, task, payload, format
OPTIONS: Final = JobBody.__struct_fields__[4:]
"""The fields of a body that are options of the Python API."""
_NO_OPTIONS: Final = ("headers", "ttr")
"""What is written into the job after it was made: no options of ``enqueue``."""
_EMPTY_BODY: Final[Mapping[str, Any]] = {}
"""The body for a rule that does not look at it."""
_OTHER_FIELDS_UNSET: Final = (UNSET,) * (len(_FIELD_NAMES) - len(_COMMON_FIELDS))


class EnqueuedJob(Struct, frozen=True, kw_only=True):
    """The job that was made, or the one that holds the key."""

    id: UUID
    topic: str
    task: str
    state: StateName
    status: StateName
    run_at: datetime
    created: datetime
    created_at: datetime
    duplicate: bool
    replaced: bool


class EnqueueManyBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to make, all of them or none."""

    jobs: Annotated[list[EnqueueBody], Meta(min_length=1, max_length=MAX_JOBS_PER_REQUEST)]


class EnqueuedJobs(Struct, frozen=True):
    """The jobs that were made, in the order they were given."""

    items: tuple[EnqueuedJob, ...]


async def enqueue(request: Request[NoQuery, EnqueueBody]) -> Response:
    given = given_fields(request.body)
    _check_owner(request, given, "#")
    options = read_options(given, "#")
    _add_headers(request, options)
    job = await enqueue_job(request.app, _new_job(request, given, options, "#"))
    location = f"{request.mount_path}{API_ROOT}/{job.id}".encode()
    return Response(_enqueued(job), 200 if job.duplicate else 201, ((b"location", location),))


async def enqueue_many(request: Request[NoQuery, EnqueueManyBody]) -> Response:
    if b"idempotency-key" in request.headers:
        raise invalid_input_problem(
            "Idempotency-Key is for one job; give each job of enqueue-many a key of its own"
        )
    wanted = []
    for index, body in enumerate(request.body.jobs):
        pointer = f"#/jobs/{index}"
        try:
            given = given_fields(body)
            _check_owner(request, given, pointer)
            wanted.append(_new_job(request, given, read_options(given, pointer), pointer))
        except InvalidPayload as error:
            raise problem_at(with_job_index(error, index), f"{pointer}/payload") from None
        except (InvalidInput, HandlerNotFound) as error:
            raise problem_at(error, pointer) from None
    jobs = await enqueue_jobs(request.app, wanted, atomic=True)
    return Response(EnqueuedJobs(tuple(_enqueued(job) for job in jobs)), 201)


def given_fields(body: EnqueueBody) -> dict[str, Any]:
    """The fields that were given, under the names they were given by."""
    values = structs.astuple(body)
    # Most say where to and with what, and nothing else; then the rest need not be looked at one by one.
    few = values[len(_COMMON_FIELDS) :] == _OTHER_FIELDS_UNSET
    pairs = zip(_COMMON_FIELDS if few else _FIELD_NAMES, values, strict=not few)
    return {name: value for name, value in pairs if value is not UNSET}


def read_options(given: Mapping[str, Any], pointer: str) -> EnqueueOptions:
    """What the body says about the job, under the names of the Python API."""
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name in _COMMON_FIELDS or name in _NO_OPTIONS:
            continue
        meant = _ALIASES.get(name, name)
        if meant in options:
            raise invalid_input_problem(
                f"{name} says the same as another field; give one of them", pointer=f"{pointer}/{name}"
            )
        match name:
            case "maxRetries" | "max_retries":
                options[meant] = value + 1
            case "retry":
                options[meant] = None if value is None else read_retry(value)
            case _:
                options[meant] = value
    return cast("EnqueueOptions", options)  # the app checks every value


def _new_job(
    request: Request[Any, Any], given: Mapping[str, Any], options: EnqueueOptions, pointer: str
) -> NewJob:
    """The job, checked, when this caller may make it."""
    caller, access = request.caller, request.api.authenticator.access
    target = _target(request, given, options, pointer)
    if access.enqueue_rule_reads_job(caller):
        job = _rule_checked_job(request, given, options, target, pointer)
    else:
        task, name, topic = target
        access.check_enqueue(caller, topic=topic, task=None if task is None else task.name, body=_EMPTY_BODY)
        job = job_maker(request.app, name, options)(read_payload(given["payload"], given["format"], pointer))
    if given.get("ttr") is not None:
        job = structs.replace(job, lease_seconds=given["ttr"])
    if job.on_duplicate is OnDuplicate.REPLACE:
        changing = access.enqueue_context(caller, replacing=True)
        job = structs.replace(job, row_filter=None if changing is None else changing.only)
    if "headers" in given:
        job = structs.replace(
            job, headers=job_headers.write_headers(_check_headers(request, given["headers"], pointer))
        )
    return job


def _rule_checked_job(
    request: Request[Any, Any],
    given: Mapping[str, Any],
    options: EnqueueOptions,
    target: tuple[Task[..., Any] | None, str, str],
    pointer: str,
) -> NewJob:
    """The job where the rule has to see it: made first, because the rule is asked about its values."""
    app, (task, name, topic) = request.app, target
    task_name = None if task is None else task.name
    said = {**options, **{name: given.get(name) for name in ("headers", "retry", "ttr")}}

    def check(body: Any, body_format: str, fields: Mapping[str, Any]) -> None:
        canonical = canonical_body(
            said, topic=topic, task=task_name or "", body=body, body_format=body_format, now=app.clock.now()
        )
        request.api.authenticator.access.check_enqueue(
            request.caller, topic=topic, task=task_name, body=canonical, job=fields
        )

    try:
        job = job_maker(app, name, options)(read_payload(given["payload"], given["format"], pointer))
    except (InvalidInput, HandlerNotFound, Problem):
        # A caller who may not enqueue is told that, and not what is wrong with the job.
        check(given["payload"], given["format"], options)
        raise
    check(*validated_body(job, task), rule_fields(job))
    return job


def _target(
    request: Request[Any, Any], given: Mapping[str, Any], options: EnqueueOptions, pointer: str
) -> tuple[Task[..., Any] | None, str, str]:
    """The task, where there is one, the name to enqueue under, and the topic the job goes to."""
    registry = request.app.registry
    wanted, named = given.get("topic"), given.get("task")
    if named is not None:
        task = registry.find(named)
        if task is None:
            # Names of tasks are for those who may enqueue.
            request.api.authenticator.access.check_enqueue_rule(
                request.caller, topic=wanted or named, task=named, body=given, job=options
            )
            raise unknown_task_error(registry, named)
        name, topic = task.name, wanted or task.topic
        if wanted is not None:
            options["topic"] = wanted
    elif wanted is not None:
        name = topic = wanted
        task = registry.resolve(wanted, "")
        if task is not None:
            topic = task.topic
    else:
        raise invalid_input_problem(
            "task and topic are both missing; give one of them", pointer=f"{pointer}/topic"
        )
    if task is not None and not task.durable:
        access = request.api.authenticator.access
        access.check_enqueue_rule(request.caller, topic=topic, task=task.name, body=given, job=options)
        raise invalid_input_problem(
            f"task {task.name!r} is not durable: its jobs run in the process that enqueues them; "
            "enqueue it from the program that is to run it",
            pointer=f"{pointer}/{'topic' if named is None else 'task'}",
        )
    return task, name, topic


def unknown_task_error(registry: Registry, name: str) -> HandlerNotFound:
    known = suggest(name, registry.tasks)
    return HandlerNotFound(f"there is no task {shorten(name)}{known}; GET {API_ROOT}/tasks lists them")


def _check_owner(request: Request[Any, Any], given: Mapping[str, Any], pointer: str) -> None:
    """Superusers act for all, and say for whom a job is. Others may say no more than what they have shown."""
    if (context := request.context) is None:
        return
    for name in _OWNER_FIELDS:
        if name in given and given[name] != getattr(context, name):
            raise invalid_input_problem(
                f"{name} can be chosen by superusers only; leave it out", pointer=f"{pointer}/{name}"
            )


def _check_headers(request: Request[Any, Any], given: dict[str, str], pointer: str) -> dict[str, str]:
    """They become context variables of whoever runs the job: not for everybody to set, traces aside."""
    if not request.caller.superuser and not given.keys() <= TRACE_HEADERS:
        raise invalid_input_problem(
            "headers other than traceparent and tracestate can be given by superusers only; leave them out",
            pointer=f"{pointer}/headers",
        )
    return given


def _add_headers(request: Request[Any, Any], options: EnqueueOptions) -> None:
    if (key := read_idempotency_key(request, options.get("key"))) is not None:
        options["key"] = key
    correlation = request.header(b"x-correlation-id")
    if correlation is not None and options.get("correlation_id") is None:
        options["correlation_id"] = correlation


def read_idempotency_key(request: Request[Any, Any], given: Any) -> str | None:
    """What Idempotency-Key says, beside the key of the body."""
    key = request.header(b"idempotency-key")
    if key is None and b"idempotency-key" in request.headers:
        raise invalid_input_problem("Idempotency-Key is empty; give a key, or leave it out")
    if key is not None and given not in {None, key}:
        raise invalid_input_problem("Idempotency-Key and key differ; give one of them", pointer="#/key")
    return key


def read_payload(payload: Any, body_format: str, pointer: str) -> Any:
    """A payload as the app takes it: JSON, or bytes that came as base64."""
    if body_format == "json":
        return payload
    try:
        return base64.b64decode(payload, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise invalid_input_problem(
            "format is bytes, so payload has to be text in base64", pointer=f"{pointer}/payload"
        ) from None


def read_retry(body: RetryBody) -> Retry:
    """A retry policy as the app takes it."""
    match body:
        case ExponentialRetry():
            return Retry.exponential(
                body.initial, factor=body.factor, maximum=body.maximum, jitter=body.jitter
            )
        case QuadraticRetry():
            return Retry.quadratic(body.unit, maximum=body.maximum, jitter=body.jitter)
        case FixedRetry():
            return Retry.fixed(body.delay, jitter=body.jitter)
        case SequenceRetry():
            return Retry.sequence(body.delays, jitter=body.jitter)


def _enqueued(job: Job[Any]) -> EnqueuedJob:
    return EnqueuedJob(**enqueued_fields(job))


def enqueued_fields(job: Job[Any]) -> dict[str, Any]:
    """What is told of a job that was just made."""
    record = job.record
    state = str(record.state)
    created = to_datetime(record.created_at)
    return {
        "id": record.id,
        "topic": record.topic,
        "task": record.task,
        "state": state,
        "status": state,
        "run_at": to_datetime(record.run_at),
        "created": created,
        "created_at": created,
        "duplicate": job.duplicate,
        "replaced": job.replaced,
    }


ENQUEUE_PROBLEMS: Final = (HANDLER_NOT_FOUND, KEY_IN_USE, LIMIT_EXCEEDED, BACKPRESSURE)

ROUTES: Final = (
    Route(
        method="POST",
        path=f"{API_ROOT}/enqueue",
        name="enqueue",
        summary="Make a job",
        permission=Permission.ENQUEUE,
        handler=enqueue,
        body=EnqueueBody,
        responses={201: EnqueuedJob, 200: EnqueuedJob},
        problems=ENQUEUE_PROBLEMS,
        parameters={
            "Idempotency-Key": "The job's key, for clients that send it as a header.",
            "X-Correlation-ID": "The job's correlation id, unless the body has one.",
            **REQUEST_ID_PARAMETER,
        },
        idempotent=True,
    ),
    Route(
        method="POST",
        path=f"{API_ROOT}/enqueue-many",
        name="enqueue_many",
        summary="Make up to 1,000 jobs, all of them or none",
        permission=Permission.ENQUEUE,
        handler=enqueue_many,
        body=EnqueueManyBody,
        responses={201: EnqueuedJobs},
        problems=ENQUEUE_PROBLEMS,
        parameters=REQUEST_ID_PARAMETER,
        idempotent=True,
    ),
)
