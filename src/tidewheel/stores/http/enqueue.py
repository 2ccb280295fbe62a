"""New jobs on their way to a server: everything is said, so that its own defaults change nothing."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from tidewheel.core.clock import MICROSECONDS, to_datetime, to_microseconds
from tidewheel.core.model import (
    FOREVER,
    ROOT_TENANT,
    BodyFormat,
    Enqueued,
    JobRecord,
    NewJob,
    State,
)
from tidewheel.errors import InvalidInput, LimitExceeded, NotOverHttp, TidewheelError
from tidewheel.stores.bounds import MAX_ENQUEUE_BATCH, check_batch
from tidewheel.stores.enqueue import check_parents
from tidewheel.stores.http.api_client import LARGE_BYTES, ApiClient, decode_json, encode_json
from tidewheel.stores.http.request_size import MAX_ITEMS_PER_REQUEST, max_request_bytes, split_bodies

_ALTERNATIVES: Final = "enqueue fewer at a time, or with enqueue_many, which makes them in parts"
_MIN_SECONDS = 0.001
"""Seconds: what has expired already does so after this long."""


class EnqueuedJob(Struct, kw_only=True):
    id: UUID
    topic: str
    task: str
    state: State
    run_at: datetime
    created_at: datetime
    duplicate: bool
    replaced: bool


class EnqueuedJobs(Struct):
    items: list[EnqueuedJob]


class _Policy(Struct):
    """A retry policy as it is stored."""

    kind: str
    initial: float = 0.0
    factor: float = 1.0
    maximum: float = 0.0
    delays: list[float] = []
    jitter: bool = True


async def enqueue(
    client: ApiClient, jobs: Sequence[NewJob], ask_time: Callable[[], Awaitable[int]]
) -> list[Enqueued]:
    """Make these jobs, in their order. All or none of those that fit into one request."""
    check_batch("jobs", len(jobs), MAX_ENQUEUE_BATCH)
    bodies = await _bodies(jobs, ask_time)
    if len(bodies) == 1:
        answer = await client.send_idempotent("POST", "/enqueue", encode_json(bodies[0]))
        return [_enqueued(jobs[0], decode_json(answer, EnqueuedJob, client.shown))]
    made: list[Enqueued] = []
    for number, body in split_bodies("jobs", bodies):
        try:
            answer = await client.send_idempotent("POST", "/enqueue-many", body)
        except TidewheelError as error:
            if isinstance(error, InvalidInput) and error.job is not None:
                error.job += len(made)
            if made:
                error.add_note(f"the first {len(made):,} of these {len(jobs):,} jobs were made before that")
            raise
        told = decode_json(answer, EnqueuedJobs, client.shown).items[:number]
        made += [_enqueued(job, one) for job, one in zip(jobs[len(made) :], told, strict=False)]
    return made


async def enqueue_atomically(
    client: ApiClient, jobs: Sequence[NewJob], ask_time: Callable[[], Awaitable[int]]
) -> list[Enqueued]:
    """Make all of these jobs or none: in one request, or not at all."""
    if len(jobs) <= 1:
        return await enqueue(client, jobs, ask_time)
    if len(jobs) > MAX_ITEMS_PER_REQUEST:
        raise LimitExceeded(
            f"{len(jobs):,} jobs together; over HTTP the limit is {MAX_ITEMS_PER_REQUEST:,}; {_ALTERNATIVES}"
        )
    body = encode_json({"jobs": await _bodies(jobs, ask_time)})
    if len(body) > LARGE_BYTES and len(body) > (limit := await max_request_bytes(client)):
        raise LimitExceeded(
            f"{len(jobs):,} jobs together are {len(body):,} bytes; the server takes {limit:,} at a time "
            f"(max_request_bytes); {_ALTERNATIVES}"
        )
    answer = await client.send_idempotent("POST", "/enqueue-many", body)
    told = decode_json(answer, EnqueuedJobs, client.shown).items
    return [_enqueued(job, one) for job, one in zip(jobs, told, strict=False)]


async def _bodies(jobs: Sequence[NewJob], ask_time: Callable[[], Awaitable[int]]) -> list[dict[str, Any]]:
    check_parents(jobs)
    now = await ask_time() if any(job.expires_at is not None for job in jobs) else 0
    return [_body(job, now) for job in jobs]


def _body(job: NewJob, now: int) -> dict[str, Any]:
    _check_expressible(job)
    body: dict[str, Any] = {
        "topic": job.topic,
        "payload": Raw(job.payload)
        if job.format is BodyFormat.JSON
        else base64.b64encode(job.payload).decode("ascii"),
        "format": job.format,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "timeout": job.timeout,
        "until": job.key_until,
        "on_duplicate": job.on_duplicate,
        "retention": job.retention,
        "retention_failed": job.retention_failed,
    }
    given: dict[str, Any] = {
        "task": job.task or None,
        "key": job.key,
        "correlation_id": job.correlation_id,
        "limit_key": job.limit_key,
        "ttr": job.lease_seconds,
        "retry": None if job.retry is None else _retry(job.retry),
        "delay": job.delay or None,
        "run_at": None if job.run_at is None else to_datetime(min(job.run_at, FOREVER)),
        "expires": _expires(job, now),
        "after": list(job.after) or None,
        "after_any": job.after_any or None,
        "headers": None if job.headers is None else Raw(job.headers.encode()),
        # The root tenant is what programs act for that know of no tenants: theirs is the token's.
        "tenant": job.tenant if job.tenant != ROOT_TENANT else None,
        "user_id": job.user_id,
        "service_id": job.service_id,
    }
    return body | {name: value for name, value in given.items() if value is not None}


def _check_expressible(job: NewJob) -> None:
    if job.row_filter is not None and (job.key is not None or job.after):
        raise NotOverHttp(
            "a row filter (SecurityContext.only) cannot be said over HTTP, so a key or after cannot be used "
            "under one; use a token for which manage_rule says the same"
        )


def _expires(job: NewJob, now: int) -> float | None:
    """A moment becomes a duration by the server's time, which is off by as long as a request takes."""
    if job.expires_at is not None:
        return max((job.expires_at - now) / MICROSECONDS, _MIN_SECONDS)
    return job.expires_in


def _retry(stored: str) -> dict[str, Any]:
    policy = msgspec.json.decode(stored, type=_Policy)
    shape: dict[str, Any] = {"kind": policy.kind, "jitter": policy.jitter}
    match policy.kind:
        case "exponential":
            shape |= {"initial": policy.initial, "factor": policy.factor, "maximum": policy.maximum}
        case "quadratic":
            shape |= {"unit": policy.initial, "maximum": policy.maximum}
        case "fixed":
            shape |= {"delay": policy.initial}
        case _:
            shape |= {"delays": policy.delays}
    return shape


def _enqueued(job: NewJob, enqueued: EnqueuedJob) -> Enqueued:
    created_at, run_at = to_microseconds(enqueued.created_at), to_microseconds(enqueued.run_at)
    # Numbers are store-wide, and not told to those who see a part of it.
    if not enqueued.duplicate:
        return Enqueued(enqueued.id, 0, created_at, run_at)
    holder = JobRecord(
        id=enqueued.id,
        number=0,
        tenant=job.tenant,
        topic=enqueued.topic,
        task=enqueued.task,
        state=enqueued.state,
        priority=0,
        attempt=0,
        max_attempts=None,
        created_at=created_at,
        run_at=run_at,
        key=job.key,
    )
    return Enqueued(enqueued.id, 0, created_at, run_at, True, enqueued.replaced, holder)
