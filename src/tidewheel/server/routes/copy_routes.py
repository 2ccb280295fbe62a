"""A new job like an existing one: run again, or edited and run again."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Final, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from tidewheel.admin.job_copy import CopyOptions, copied_payload, make_copy
from tidewheel.client.enqueue import enqueue_job
from tidewheel.core.model import BodyFormat, JobRecord, NewJob
from tidewheel.core.payload import merge_patch, pointer_to
from tidewheel.core.security_context import acting_as
from tidewheel.errors import (
    HandlerNotFound,
    InvalidInput,
    InvalidPayload,
    JobNotFound,
    NotPermitted,
    WrongState,
)
from tidewheel.server.idempotent_requests import REQUEST_ID_PARAMETER
from tidewheel.server.problems import JOB_NOT_FOUND, WRONG_STATE, invalid_input_problem
from tidewheel.server.redaction import CannotRestore
from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.server.routes.enqueue_routes import (
    ENQUEUE_PROBLEMS,
    AttemptCount,
    EnqueuedJob,
    Moment,
    PositiveSeconds,
    Seconds,
    Text,
    canonical_body,
    enqueued_fields,
    read_idempotency_key,
    rule_fields,
    validated_body,
)
from tidewheel.tasks.options import MAX_PRIORITY


class CopyBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be another than it was.

    ``payload`` is the whole new payload (base64 where the job's is bytes), ``patch`` a JSON merge patch
    (RFC 7396) of it. Where one of them still has the mark of a value that ``redact`` hides, that value is
    taken over; only superusers may change what stands beside such values. ``delete_original``: remove the
    first job, which has to be finished, when the new one is written.
    """

    payload: Any | UnsetType = UNSET
    patch: Any | UnsetType = UNSET
    run_at: Moment | UnsetType | None = UNSET
    delay: Seconds | UnsetType | None = UNSET
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | UnsetType = UNSET
    max_attempts: AttemptCount | UnsetType | None = UNSET
    timeout: PositiveSeconds | UnsetType | None = UNSET
    key: Text | UnsetType | None = UNSET
    correlation_id: Text | UnsetType | None = UNSET
    delete_original: bool = False


class CopiedJob(EnqueuedJob, frozen=True, kw_only=True):
    """The new job, or the one that holds the key."""

    copied_from: UUID
    original_deleted: bool


_NON_OPTION_FIELDS: Final = ("payload", "patch", "delete_original")
_INHERITED_OPTIONS: Final = ("priority", "max_attempts", "timeout", "correlation_id", "limit_key")


async def copy_job(request: Request[NoQuery, CopyBody]) -> Response:
    app, body = request.app, request.body
    record = (await app.get(request.path["id"])).record
    deletion = None
    if body.delete_original:
        deletion = request.api.authenticator.deletion(request.caller)
        with acting_as(deletion):
            await app.get(record.id)
        if not record.state.final:
            raise WrongState(
                f"job {record.id} is {record.state}; delete_original is for jobs that have finished; cancel "
                "it first, or leave delete_original out"
            )
    given = {
        name: value
        for name, value in structs.asdict(body).items()
        if name not in _NON_OPTION_FIELDS and value is not UNSET
    }
    if (key := read_idempotency_key(request, given.get("key"))) is not None:
        given["key"] = key
    new = _new_job(request, record, given)
    edited = body.payload is not UNSET or body.patch is not UNSET
    changed = {"changed": sorted([*given, *(["payload"] if edited else [])])}
    async with request.api.authenticator.record_action(
        request, "job.copy", target=str(record.id), details=changed
    ) as entry:
        job = await enqueue_job(app, new)
        entry.details["copy"] = str(job.id)
        deleted = False
        if body.delete_original and not job.duplicate:
            with acting_as(deletion):
                deleted = await _delete(request, record.id)
        entry.details["original_deleted"] = deleted
    answer = CopiedJob(**enqueued_fields(job), copied_from=record.id, original_deleted=deleted)
    location = f"{request.mount_path}{API_ROOT}/{job.id}".encode()
    return Response(answer, 200 if job.duplicate else 201, ((b"location", location),))


def _new_job(request: Request[Any, CopyBody], record: JobRecord, given: dict[str, Any]) -> NewJob:
    """The copy, checked, when this caller may make it: for the rule it is a request that says all of it."""
    app, payload = request.app, _payload(request, record)
    task = app.registry.resolve(record.topic, record.task)
    name = record.task or None if task is None else task.name

    def check(job: JobRecord | NewJob, body: Any, body_format: str) -> None:
        taken_over = {field: getattr(job, field) for field in _INHERITED_OPTIONS}
        retry = None if job.retry is None else msgspec.json.decode(job.retry)
        said = {**taken_over, "retry": retry, **given}
        canonical = canonical_body(
            said, topic=job.topic, task=name or "", body=body, body_format=body_format, now=app.clock.now()
        )
        request.api.authenticator.access.check_enqueue(
            request.caller, topic=job.topic, task=name, body=canonical, job={**rule_fields(job), **given}
        )

    try:
        job = make_copy(app, record, payload, None, cast("CopyOptions", given))
    except (InvalidInput, HandlerNotFound, WrongState) as error:
        check(record, payload, str(record.format))
        raise _without_values(error) if isinstance(error, InvalidPayload) else error from None
    check(job, *validated_body(job, task))
    return job


async def _delete(request: Request[Any, Any], job_id: UUID) -> bool:
    try:
        await request.app.delete(job_id)
    except (JobNotFound, WrongState):
        return False  # somebody deleted or requeued it meanwhile
    return True


def _payload(request: Request[Any, CopyBody], record: JobRecord) -> Any:
    """What the new job is to be given, with everything hidden as it was."""
    body, before = request.body, copied_payload(record)
    if body.payload is not UNSET and body.patch is not UNSET:
        raise invalid_input_problem("payload and patch are both given; give one of them", pointer="#/patch")
    if record.format is BodyFormat.BYTES:
        return _bytes(body, before)
    name = "payload" if body.patch is UNSET else "patch"
    if body.patch is not UNSET:
        after = merge_patch(before, body.patch)
    else:
        after = before if body.payload is UNSET else body.payload
    try:
        restored = request.api.redaction.restore(after, before)
    except CannotRestore as error:
        raise invalid_input_problem(
            f"{'.'.join(map(str, error.path))} has the mark of a hidden value, but {error.reason}; give the "
            "value itself",
            pointer=f"#/{name}{pointer_to(error.path)}",
        ) from None
    if not request.caller.superuser:
        _check_beside_hidden(request, before, restored)
    return restored


def _check_beside_hidden(request: Request[Any, CopyBody], before: Any, restored: Any) -> None:
    """Whoever may choose what stands beside a hidden value, an address, say, can have it sent there."""
    body = request.body
    if body.patch is not UNSET:
        takes_over = request.api.redaction.apply(before) != before
    else:
        takes_over = body.payload is not UNSET and restored != body.payload
    if takes_over:
        raise NotPermitted(
            "the payload has values that the setting redact hides, and only superusers may change what "
            "stands beside them; give a whole payload without their marks, or copy the job as it was"
        )


def _without_values(error: InvalidPayload) -> InvalidPayload:
    """What is refused may be what the job before had, and hidden: then it is not its caller's to read."""
    without = InvalidPayload(
        str(error) if error.message_without_value is None else error.message_without_value
    )
    without.places = error.places
    return without


def _bytes(body: CopyBody, before: Any) -> Any:
    if body.patch is not UNSET:
        raise invalid_input_problem(
            "the job has bytes for a payload, which have no members to patch", pointer="#/patch"
        )
    if body.payload is UNSET:
        return before
    try:
        return base64.b64decode(body.payload, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise invalid_input_problem(
            "the job has bytes for a payload, so it has to be text in base64", pointer="#/payload"
        ) from None


ROUTES: Final = (
    Route(
        method="POST",
        path=f"{API_ROOT}/{{id:uuid}}/copy",
        name="copy_job",
        summary="Make a new job like this one, as it was or with changes; keys and tokens need the scope "
        "enqueue, too",
        permission=Permission.MANAGE,
        handler=copy_job,
        body=CopyBody,
        body_required=False,
        responses={201: CopiedJob, 200: CopiedJob},
        problems=(JOB_NOT_FOUND, WRONG_STATE, *ENQUEUE_PROBLEMS),
        parameters={
            "Idempotency-Key": "The new job's key, for clients that send it as a header.",
            **REQUEST_ID_PARAMETER,
        },
        idempotent=True,
    ),
)
