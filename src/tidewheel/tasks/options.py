"""What a caller may say about one job, and what a task says about all of its jobs.

Options are checked once and become a :class:`JobTemplate`, from which any number of jobs are made. Three
layers, the nearest wins: the call's options, the task's defaults, the app's settings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict
from uuid import UUID

import msgspec
from msgspec.structs import replace

from tidewheel.core.conditions import Compare, InState, sufficient_condition
from tidewheel.core.cron import Timing, check_timing
from tidewheel.core.ids import new_id
from tidewheel.core.model import BodyFormat, KeyLifetime, NewJob, OnDuplicate
from tidewheel.core.names import (
    check_given_tenant,
    check_tenant,
    check_text,
    check_topic,
    shorten,
    suggest,
)
from tidewheel.core.payload import canonical_hash
from tidewheel.core.retry import Retry
from tidewheel.core.security_context import SecurityContext, current_context, other_tenant_error
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.core.validation import check_choice, check_integer, check_memory, check_seconds, check_time
from tidewheel.errors import InvalidInput, LimitExceeded
from tidewheel.settings import MAX_COUNT, Settings
from tidewheel.stores.bounds import MAX_PARENTS
from tidewheel.tasks.callbacks import Callback, ErrorCallback, SuccessCallback

if TYPE_CHECKING:
    from tidewheel.client.job_handle import Job
    from tidewheel.client.sync.blocking_jobs import BlockingJob

JobIdentity: TypeAlias = "Job[Any] | BlockingJob[Any] | UUID | str"
"""What names a job to run after: a handle, or an id."""

MAX_PRIORITY: Final = 2**32
"""Priorities go from minus to plus this: the beanstalkd wire's 0 to 2^32-1 fits, negated."""

MAX_AFTER: Final = MAX_PARENTS
"""Most jobs that one may be told to run after."""


LOCAL_RETENTION: Final = 3600.0
"""Seconds that finished jobs of non-durable tasks are remembered, unless their task or the app says less."""

MAX_LIMIT_KEY_LENGTH: Final = 200
"""Longest limit key: together with names it is in an index, whose entries have a largest size."""


class ByPayload(Enum):
    """The type of :data:`BY_PAYLOAD`."""

    BY_PAYLOAD = "by payload"


BY_PAYLOAD: Final = ByPayload.BY_PAYLOAD
"""``key=BY_PAYLOAD``: two jobs of a task with the same payload are the same job."""


@dataclass(frozen=True, slots=True)
class ByFields:
    """What :func:`by_fields` answers."""

    names: tuple[str, ...]

    def key_of(self, body: bytes) -> str:
        """The key of a job with this body; a field that is left out counts as null."""
        return canonical_hash(self._values("key", body))

    def limit_key_of(self, body: bytes) -> str:
        """The limit key of a job with this body: the values themselves, for people, where they are short."""
        values = self._values("limit_key", body)
        text = values.decode()
        return text if len(text) <= MAX_LIMIT_KEY_LENGTH and "\\u0000" not in text else canonical_hash(values)

    def _values(self, what: str, body: bytes) -> bytes:
        fields = msgspec.json.decode(body)
        if not isinstance(fields, dict):
            raise InvalidInput(
                f"{what} is by_fields({', '.join(self.names)}), but the payload is no object with fields"
            )
        return msgspec.json.encode({name: fields.get(name) for name in self.names}, order="sorted")


def by_fields(*names: str) -> ByFields:
    """``key=by_fields("user_id")``: two jobs of a task with the same value there are the same job.

    ``limit_key=by_fields("user_id")``: they are limited together.
    """
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InvalidInput(f"by_fields is given {shorten(names)}; give names of fields of the payload")
    return ByFields(names)


class TaskOptions(TypedDict, total=False):
    """What a task says about all of its jobs."""

    max_attempts: int | None
    timeout: float | timedelta | None
    retry: Retry
    priority: int
    retention: float | timedelta | None
    retention_failed: float | timedelta | None
    key: str | ByPayload | ByFields | None
    until: Literal["pruned", "finished"]
    on_duplicate: Literal["keep", "replace"]
    expires: float | timedelta | None
    limit_key: str | ByFields | None
    limits: TopicLimits | None
    isolation: Literal["process"] | None
    memory_limit: int | str | None
    on_success: SuccessCallback | None
    on_failure: ErrorCallback | None
    fallback: ErrorCallback | None
    durable: bool
    schedule: Timing | None


class PutOptions(TypedDict, total=False):
    """What a caller may say about one job, wherever it waits."""

    run_at: datetime | None
    delay: float | timedelta | None
    priority: int
    max_attempts: int | None
    key: str | ByPayload | ByFields | None
    until: Literal["pruned", "finished"]
    on_duplicate: Literal["keep", "replace"]
    tenant: str | None
    correlation_id: str | None
    user_id: str | None
    service_id: str | None
    timeout: float | timedelta | None
    retry: Retry | None
    expires: float | timedelta | datetime | None
    retention: float | timedelta | None
    retention_failed: float | timedelta | None
    after: JobIdentity | Iterable[JobIdentity] | None
    after_any: bool
    limit_key: str | ByFields | None


class EnqueueOptions(PutOptions, total=False):
    """The same, and where it waits."""

    topic: str | None


class WorkerOptions(TypedDict, total=False):
    """What may be said about one worker; a test keeps it equal to the worker's own keywords."""

    name: str | None
    concurrency: int | None
    topics: Collection[str] | None
    exclude_topics: Collection[str]
    topic_concurrency: Mapping[str, int] | None
    lease: float | None
    prefetch: int | None
    handle_signals: bool
    isolate: bool


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """Checked options, ready to become jobs."""

    prototype: NewJob
    """All that these jobs have in common; a copy of it with a body of its own is ten times cheaper to make
    than a job from its fields."""
    by_payload: bool | ByFields  # what of the body is the key, if anything
    tenant_given: bool = False  # by the caller, not by the settings
    limit_key_rule: ByFields | None = None  # what of the body is the limit key

    def for_tenant(self, tenant: str) -> JobTemplate:
        """The same for jobs of this tenant, which a job has that is there already."""
        owned = replace(self.prototype, tenant=tenant)
        return JobTemplate(owned, self.by_payload, tenant_given=True, limit_key_rule=self.limit_key_rule)

    def under_context(self, context: SecurityContext, *, uuids: bool) -> JobTemplate:
        """The same for code that acts as told, whatever was in force when this was made."""
        pattern = self.prototype
        if self.tenant_given and pattern.tenant != context.tenant:
            raise other_tenant_error(pattern.tenant, context)
        unsaid = {
            name: getattr(context, name)
            for name in ("user_id", "service_id", "correlation_id")
            if getattr(pattern, name) is None
        }
        only = None if context.only is None else sufficient_condition(context.only, Compare, InState)
        owned = replace(pattern, tenant=check_tenant(context.tenant, uuids=uuids), row_filter=only, **unsaid)
        return JobTemplate(owned, self.by_payload, tenant_given=True, limit_key_rule=self.limit_key_rule)

    def job(self, body: bytes, body_format: BodyFormat) -> NewJob:
        """A new job with this body."""
        if self.limit_key_rule is not None:
            return self._limited(self.limit_key_rule, body, body_format)
        if not self.by_payload:
            return replace(self.prototype, id=new_id(), payload=body, format=body_format)
        kind = self.by_payload if isinstance(self.by_payload, ByFields) else BY_PAYLOAD
        key = key_of(kind, body, body_format)
        return replace(self.prototype, id=new_id(), payload=body, format=body_format, key=key)

    def _limited(self, fields: ByFields, body: bytes, body_format: BodyFormat) -> NewJob:
        if body_format is not BodyFormat.JSON:
            raise InvalidInput("limit_key is by_fields(…), but the payload is bytes, which have no fields")
        plain = JobTemplate(self.prototype, self.by_payload, self.tenant_given)
        return replace(plain.job(body, body_format), limit_key=fields.limit_key_of(body))


def key_of(kind: ByPayload | ByFields, body: bytes, body_format: BodyFormat) -> str:
    """The key of a job with this body, where that decides."""
    if body_format is not BodyFormat.JSON:
        if isinstance(kind, ByFields):
            raise InvalidInput("key is by_fields(…), but the payload is bytes, which have no fields")
        return hashlib.sha256(body).hexdigest()
    return kind.key_of(body) if isinstance(kind, ByFields) else canonical_hash(body)


def check_task_options(given: Mapping[str, Any], settings: Settings) -> TaskOptions:
    """A task's own options, complete and checked. ``retry`` stays out when the task has none of its own."""
    _refuse_unknown(given, TaskOptions)
    checked = _checked(given, settings, for_task=True)
    checked.setdefault("max_attempts", settings.max_attempts)
    checked.setdefault("timeout", settings.timeout)
    checked.setdefault("priority", 0)
    if "memory_limit" in checked and "isolation" not in checked:
        raise InvalidInput(
            f"memory_limit is {shorten(given['memory_limit'])}, but only a handler in a process of its own "
            'has one; add isolation="process"'
        )
    if not checked.setdefault("durable", True):
        _make_non_durable(checked, settings)
    return checked  # type: ignore[return-value]  # built key by key from TaskOptions' own keys


def _make_non_durable(checked: dict[str, Any], settings: Settings) -> None:
    if "isolation" in checked:
        raise InvalidInput(
            'durable is False together with isolation="process"; objects cannot be handed to another '
            "process as they are. Leave one of them out"
        )
    if "limits" in checked or "limit_key" in checked:
        raise InvalidInput(
            "durable is False together with limits or a limit_key; jobs of a process are in no store, whose "
            "limits hold for all. Leave one of them out"
        )
    retention = LOCAL_RETENTION if settings.retention is None else min(LOCAL_RETENTION, settings.retention)
    checked.setdefault("retention", retention)


def make_template(
    settings: Settings, *, task: str, topic: str, defaults: Mapping[str, Any], given: Mapping[str, Any]
) -> JobTemplate:
    """The options of one call laid over the task's ``defaults`` (already checked) and the settings."""
    _refuse_unknown(given, EnqueueOptions)
    if given.get("run_at") is not None and given.get("delay") is not None:
        raise InvalidInput("run_at and delay are both given; a job has one due time, give one of them")
    merged = {**defaults, **_checked(given, settings, for_task=False)}
    retention = merged.get("retention", settings.retention)
    # A job or task that sets only retention means it for failed jobs too, unless the app says otherwise.
    if "retention_failed" in merged:
        retention_failed = merged["retention_failed"]
    elif settings.retention_failed is not None:
        retention_failed = settings.retention_failed
    else:
        retention_failed = retention
    expires = merged.get("expires")
    key = merged.get("key")
    from_body = key if isinstance(key, ByFields) else key is BY_PAYLOAD
    if from_body and not merged.get("durable", True):
        given_as = "BY_PAYLOAD" if key is BY_PAYLOAD else "by_fields(…)"
        raise InvalidInput(
            f"key is {given_as}, but task {task!r} is not durable: objects have no JSON to compare them by; "
            "give a key as text"
        )
    after = merged.get("after", ())
    if after and not merged.get("durable", True):
        raise InvalidInput(
            f"after names {len(after):,} jobs, but task {task!r} is not durable: its jobs are in no store, "
            "where they could wait; make the task durable"
        )
    if after and merged.get("on_duplicate") is OnDuplicate.REPLACE:
        raise InvalidInput(
            f'after names {len(after):,} jobs, but on_duplicate is "replace": a job that waits under the '
            "same key would get this payload and run without waiting for them; leave out one of the two"
        )
    limit_key = merged.get("limit_key")
    limited_by = limit_key if isinstance(limit_key, ByFields) else None
    retry = given.get("retry")  # a task's own policy is looked up when the job runs, not copied into it
    return JobTemplate(
        NewJob(
            id=new_id(),  # each job gets another
            task=task,
            topic=merged.get("topic", topic),
            tenant=merged.get("tenant", settings.tenant),
            priority=merged.get("priority", 0),
            run_at=merged.get("run_at"),
            delay=merged.get("delay", 0.0),
            max_attempts=merged.get("max_attempts", settings.max_attempts),
            timeout=merged.get("timeout", settings.timeout),
            retry=retry.dump() if retry is not None else None,
            key=None if from_body else key,
            key_until=merged.get("until", KeyLifetime.PRUNED),
            on_duplicate=merged.get("on_duplicate", OnDuplicate.KEEP),
            expires_at=expires if isinstance(expires, int) else None,
            expires_in=expires if isinstance(expires, float) else None,
            retention=retention,
            retention_failed=retention_failed,
            correlation_id=merged.get("correlation_id"),
            user_id=merged.get("user_id"),
            service_id=merged.get("service_id"),
            after=after,
            after_any=merged.get("after_any", False),
            limit_key=None if isinstance(limit_key, ByFields) else limit_key,
        ),
        by_payload=from_body,
        limit_key_rule=limited_by,
        tenant_given="tenant" in merged,
    )


def change_options(job: NewJob, given: Mapping[str, Any], settings: Settings) -> NewJob:
    """The job with other options, checked like those of a call; the others stay as they are."""
    _refuse_unknown(given, EnqueueOptions)
    if given.get("run_at") is not None and given.get("delay") is not None:
        raise InvalidInput("run_at and delay are both given; a job has one due time, give one of them")
    fields: dict[str, Any] = {}
    for name, value in _checked(given, settings, for_task=False).items():
        match name:
            case "run_at":
                fields |= {"run_at": value, "delay": 0.0}
            case "delay":
                fields |= {"run_at": None, "delay": value}
            case "expires":
                at = value if isinstance(value, int) else None
                fields |= {"expires_at": at, "expires_in": value if at is None else None}
            case "key":
                from_body = value is BY_PAYLOAD or isinstance(value, ByFields)
                fields[name] = key_of(value, job.payload, job.format) if from_body else value
            case "until":
                fields["key_until"] = value
            case "retry":
                fields[name] = value.dump()
            case "tenant":
                context = current_context()
                if context is not None and value != context.tenant:
                    raise other_tenant_error(value, context)
                fields[name] = value
            case _:
                fields[name] = value
    return replace(job, **fields)


def _checked(given: Mapping[str, Any], settings: Settings, *, for_task: bool) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if value is None and name in _NONE_MEANS_ABSENT:
            continue
        match name:
            case "run_at":
                checked[name] = check_time(name, value)
            case "delay":
                checked[name] = check_seconds(name, value, 0)
            case "expires":
                absolute = isinstance(value, datetime) and not for_task
                checked[name] = check_time(name, value) if absolute else check_seconds(name, value, 0.001)
            case "timeout":
                checked[name] = None if value is None else check_seconds(name, value, 0.001)
            case "retention" | "retention_failed":
                checked[name] = None if value is None else check_seconds(name, value, 0)
            case "priority":
                checked[name] = check_integer(name, value, -MAX_PRIORITY, MAX_PRIORITY)
            case "max_attempts":
                checked[name] = None if value is None else check_integer(name, value, 1, MAX_COUNT)
            case "key":
                if value is not BY_PAYLOAD and not isinstance(value, ByFields):
                    check_text("key", value, settings.max_key_length, "max_key_length")
                checked[name] = value
            case "limit_key":
                if not isinstance(value, ByFields):
                    check_text("limit_key", value, MAX_LIMIT_KEY_LENGTH)
                checked[name] = value
            case "limits":
                if not isinstance(value, TopicLimits):
                    raise InvalidInput(
                        f"limits is {shorten(value)}; give what holds for the task's topic, for example "
                        "TopicLimits(concurrency=5)"
                    )
                checked[name] = value
            case "until":
                checked[name] = check_choice(name, value, KeyLifetime)
            case "on_duplicate":
                checked[name] = check_choice(name, value, OnDuplicate)
            case "isolation":
                if value != "process":
                    raise InvalidInput(
                        f"isolation is {shorten(value)}; it can be 'process'. Without it async handlers run "
                        "on the worker's event loop and plain functions on threads"
                    )
                checked[name] = value
            case "durable":
                if not isinstance(value, bool):
                    raise InvalidInput(f"durable is {shorten(value)}; it must be True or False")
                checked[name] = value
            case "schedule":
                checked[name] = check_timing(value)
            case "memory_limit":
                checked[name] = check_memory(name, value)
            case "on_success" | "on_failure" | "fallback":
                checked[name] = Callback(name, value)
            case "retry":
                if not isinstance(value, Retry):
                    raise InvalidInput(
                        f"retry is {shorten(value)}; give a policy, for example Retry.fixed(10)"
                    )
                checked[name] = value
            case "after":
                checked[name] = check_after(value)
            case "after_any":
                if not isinstance(value, bool):
                    raise InvalidInput(f"after_any is {shorten(value)}; it must be True or False")
                checked[name] = value
            case "tenant":
                checked[name] = check_given_tenant(value, uuids=settings.tenant_uuids)
            case "topic":
                checked[name] = check_topic(value)
            case _:  # correlation_id, user_id, service_id: unknown names have been refused before
                checked[name] = check_text(name, value)
    return checked


# For these None says "as if it were not there"; for timeout, max_attempts and retention it is a value.
_NONE_MEANS_ABSENT: Final = frozenset(
    {
        "run_at",
        "delay",
        "expires",
        "key",
        "tenant",
        "topic",
        "retry",
        "schedule",
        "isolation",
        "memory_limit",
        "on_success",
        "on_failure",
        "fallback",
        "limits",
        "limit_key",
        "correlation_id",
        "user_id",
        "service_id",
        "after",
    }
)


def _refuse_unknown(given: Mapping[str, Any], known: type) -> None:
    names = known.__annotations__
    for name in given:
        if name not in names:
            hint = suggest(name, names)
            raise InvalidInput(
                f"{shorten(name)} is no option{hint}; the options are {', '.join(sorted(names))}"
            )


def check_after(value: Any) -> tuple[UUID, ...]:
    """The ids of the jobs to run after, each once, in the order in which they are named."""
    one = isinstance(value, UUID | str) or not isinstance(value, Iterable)
    found = dict.fromkeys(_job_id_of(item) for item in ([value] if one else value))
    if len(found) > MAX_AFTER:
        raise LimitExceeded(
            f"after names {len(found):,} jobs; the limit is {MAX_AFTER:,}, put a job between that runs "
            "after some of them"
        )
    return tuple(found)


def _job_id_of(item: Any) -> UUID:
    found = getattr(item, "id", item)  # a handle of a job, async or blocking
    if isinstance(found, str):
        try:
            return UUID(found)
        except ValueError:
            pass
    if not isinstance(found, UUID):
        raise InvalidInput(f"after names {shorten(item)}, which is no job; give jobs, or their ids")
    return found
