"""A new job like an existing one, in any state: what is taken over, and what may be changed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict

from msgspec.structs import replace

from tidewheel.core import payload
from tidewheel.core.model import BodyFormat, JobRecord, NewJob
from tidewheel.core.names import shorten, suggest
from tidewheel.core.payload import UNCHANGED, encode_untyped_payload
from tidewheel.core.retry import Retry
from tidewheel.core.security_context import current_context
from tidewheel.errors import HandlerNotFound, InvalidInput, WrongState
from tidewheel.tasks.options import ByFields, make_template

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.tasks.task import Task


_NOT_COPIED_OPTIONS: Final = frozenset({"key", "until", "on_duplicate"})
"""What a task says about keys is not for copies: with the key of the first job they would not come to be."""


class CopyOptions(TypedDict, total=False):
    """What may be another than it was."""

    run_at: datetime | None
    delay: float | timedelta | None
    priority: int
    max_attempts: int | None
    timeout: float | timedelta | None
    key: str | None
    correlation_id: str | None


def make_copy(app: Tidewheel, record: JobRecord, body: Any, patch: Any, changes: CopyOptions) -> NewJob:
    """The new job, checked as any other: against its task, where this app knows it, and all limits.

    It has the topic, task, tenant, priority, attempts, timeout, retry policy and carried variables of the one
    before, and its owner, unless whoever makes it acts for somebody. What happened to that one, its key,
    delay and expiry are its own.
    """
    for name in changes:
        if name not in CopyOptions.__annotations__:
            known = CopyOptions.__annotations__
            hint = suggest(name, known)
            raise InvalidInput(
                f"{shorten(name)} cannot be changed{hint}; what can is {', '.join(sorted(known))}"
            )
    task = _task_of(app, record)
    given: dict[str, Any] = {
        "priority": record.priority,
        "max_attempts": record.max_attempts,
        "timeout": record.timeout,
        "correlation_id": record.correlation_id or str(record.id),
    }
    context = current_context()
    if context is None:
        given |= {"user_id": record.user_id, "service_id": record.service_id}
    limited_by = None if task is None else task.defaults.get("limit_key")
    if record.limit_key is not None and not isinstance(
        limited_by, ByFields
    ):  # whose values may be others now
        given["limit_key"] = record.limit_key
    if record.retry is not None:
        given["retry"] = Retry.load(record.retry)
    defaults = {} if task is None else task.defaults
    template = make_template(
        app.settings,
        task=record.task,
        topic=record.topic,
        defaults={name: value for name, value in defaults.items() if name not in _NOT_COPIED_OPTIONS},
        given={**given, **changes},
    ).for_tenant(record.tenant)
    if context is not None:
        template = template.under_context(context, uuids=app.settings.tenant_uuids)
    value = _copied_body(record, body, patch)
    limit = app.settings.max_payload_bytes
    if task is None:
        job = template.job(*encode_untyped_payload(value, limit))
    else:
        job = template.job(task.signature.encode_payload(value, limit), task.signature.format)
    return replace(job, headers=record.headers)


def copied_payload(record: JobRecord) -> Any:
    """What a job was given; ``WrongState`` where that is an object of one process only."""
    if type(record.payload) is not bytes:
        raise WrongState(
            f"job {record.id} is of a task that is not durable, and what it was given is in no store; "
            "enqueue it from the program that runs it"
        )
    return record.payload if record.format is BodyFormat.BYTES else payload.decode(record.payload)


def _task_of(app: Tidewheel, record: JobRecord) -> Task[..., Any] | None:
    task = app.registry.resolve(record.topic, record.task)
    if task is None:
        if app.settings.strict_tasks:
            name = record.task or record.topic
            raise HandlerNotFound(
                f"there is no task {shorten(name)}{suggest(name, app.registry.tasks)} any more "
                "(strict_tasks refuses others)"
            )
    elif not task.durable:
        raise WrongState(
            f"task {task.name!r} is not durable any more, so a job of it cannot be copied; enqueue it from "
            "the program that runs it"
        )
    return task


def _copied_body(record: JobRecord, body: Any, patch: Any) -> Any:
    before = copied_payload(record)
    if patch is None:
        return before if body is UNCHANGED else body
    if body is not UNCHANGED:
        raise InvalidInput("payload and patch are both given; give the whole payload, or what changes")
    if record.format is BodyFormat.BYTES:
        raise InvalidInput(f"job {record.id} has bytes for a payload, which have no members to patch")
    return payload.merge_patch(before, patch)
