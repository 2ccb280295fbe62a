"""New jobs as arrays for the ``enqueue`` function, and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from windlass.clock import seconds_to_microseconds
from windlass.model import BodyFormat, Enqueued, KeyLifetime, NewJob, OnDuplicate
from windlass.stores.postgres.database import Record

LARGE_BYTES: Final = 1000
"""A larger body is kept apart from its row, which is written anew with every change."""

FORMAT_CODES: Final = {BodyFormat.JSON: 0, BodyFormat.BYTES: 1}
_KEY_UNTIL: Final = {KeyLifetime.PRUNED: 0, KeyLifetime.FINISHED: 1}


def enqueue_arguments(jobs: Sequence[NewJob], now: int | None, *, again: bool) -> tuple[Any, ...]:
    """The parameters of the ``enqueue`` statement, column by column; at least one job."""
    texts: list[str | None] = []
    raws: list[bytes | None] = []
    for job in jobs:
        text = body_text(job)
        texts.append(text)
        raws.append(job.payload if text is None else None)
    aparts = [len(job.payload) > LARGE_BYTES for job in jobs]
    return (
        now,
        again,
        any(job.key is not None for job in jobs),
        True in aparts,
        [job.id for job in jobs],
        _column([job.topic for job in jobs]),
        _column([job.task for job in jobs]),
        _column([job.tenant for job in jobs]),
        _column([job.priority for job in jobs]),
        _column([job.run_at for job in jobs]),
        _microseconds([job.delay for job in jobs]),
        _column([job.expires_at for job in jobs]),
        _microseconds([job.expires_in for job in jobs]),
        _column([job.max_attempts for job in jobs]),
        _microseconds([job.timeout for job in jobs]),
        _microseconds([job.lease_seconds for job in jobs]),
        _microseconds([job.retention for job in jobs]),
        _microseconds([job.retention_failed for job in jobs]),
        _column([job.retry for job in jobs]),
        _column([job.key for job in jobs]),
        _column([None if job.key is None else _KEY_UNTIL[job.key_until] for job in jobs]),
        _column([job.on_duplicate is OnDuplicate.REPLACE for job in jobs]),
        _column([job.correlation_id for job in jobs]),
        _column([job.user_id for job in jobs]),
        _column([job.service_id for job in jobs]),
        _column([job.trace for job in jobs]),
        _column([FORMAT_CODES[job.format] for job in jobs]),
        texts,
        _column(raws),
        _column(aparts),
    )


def _column(values: list[Any]) -> list[Any] | None:
    """A column as it is sent: a value all jobs share only once, and nothing at all for one that none has.

    Encoding an array costs as much as encoding the rest of a job, and most columns are like this.
    """
    first = values[0]
    if values.count(first) == len(values):
        return None if first is None else [first]
    return values


def _microseconds(seconds: list[Any]) -> list[Any] | None:
    column = _column(seconds)
    if column is None:
        return None
    return [None if value is None else seconds_to_microseconds(value) for value in column]


def body_text(job: NewJob) -> str | None:
    """A body people can read in the database; None for one that is kept as bytes."""
    if job.format is not BodyFormat.JSON or b"\x00" in job.payload:
        return None
    try:
        return job.payload.decode()
    except UnicodeDecodeError:
        return None


def enqueued(jobs: Sequence[NewJob], rows: Sequence[Record]) -> list[Enqueued]:
    """The answers, in the order of the jobs."""
    by_id: dict[UUID, Record] = {}
    for row in rows:
        by_id.setdefault(row[0], row)
    return [_enqueued(by_id[job.id]) for job in jobs]


def _enqueued(row: Record) -> Enqueued:
    job_id, holder, number, created_at, run_at, replaced = row
    if holder is None:
        return Enqueued(job_id, number, created_at, run_at)
    return Enqueued(holder, number, created_at, run_at, duplicate=True, replaced=replaced)
