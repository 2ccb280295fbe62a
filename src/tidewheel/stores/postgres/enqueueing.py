"""New jobs as arrays for the ``enqueue`` function, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import eq
from typing import Any, Final
from uuid import UUID

from tidewheel.model import BodyFormat, Enqueued, KeyLifetime, NewJob, OnDuplicate
from tidewheel.stores.columns import Column, columns_of, microseconds, shared
from tidewheel.stores.postgres.compiling import Views
from tidewheel.stores.postgres.database import Record
from tidewheel.stores.postgres.depending import edges

LARGE_BYTES: Final = 1000
"""A larger body is kept apart from its row, which is written anew with every change."""

FORMAT_CODES: Final = {BodyFormat.JSON: 0, BodyFormat.BYTES: 1}
_ALIKE: Final = tuple(name for name in NewJob.__struct_fields__ if name not in ("id", "payload"))
KEY_UNTIL: Final = {KeyLifetime.PRUNED: 0, KeyLifetime.FINISHED: 1}

PARAMETERS: Final = (
    *("now", "again", "keyed", "large", "ids", "topics", "tasks", "tenants", "priorities", "run_ats"),
    *("delays_us", "expires_ats", "expires_in_us", "max_attempts", "timeouts_us", "leases_us"),
    *("retentions_us", "retentions_failed_us", "retries", "keys", "key_untils", "replaces"),
    *("correlation_ids", "user_ids", "service_ids", "limit_keys", "headers", "formats", "payloads", "raws"),
    *("aparts", "children", "parents", "anys", "views", "view_values"),
)
"""What the ``enqueue`` function takes, by the names and in the order of its parameters."""


def enqueue_arguments(jobs: Sequence[NewJob], now: int | None, *, again: bool) -> tuple[Any, ...]:
    """The parameters of the ``enqueue`` statement, column by column; at least one job."""
    of = columns_of(jobs)
    keys = of["key"]
    texts = [body_text(job.format, job.payload) for job in jobs]
    raws = [job.payload if text is None else None for job, text in zip(jobs, texts, strict=True)]
    aparts = [len(job.payload) > LARGE_BYTES for job in jobs]
    return (
        now,
        again,
        keys != (None,),
        True in aparts,
        of["id"],
        of["topic"],
        of["task"],
        of["tenant"],
        of["priority"],
        _sent(of["run_at"]),
        microseconds(of["delay"]),
        _sent(of["expires_at"]),
        _sent(microseconds(of["expires_in"])),
        _sent(of["max_attempts"]),
        _sent(microseconds(of["timeout"])),
        _sent(microseconds(of["lease_seconds"])),
        _sent(microseconds(of["retention"])),
        _sent(microseconds(of["retention_failed"])),
        _sent(of["retry"]),
        _sent(keys),
        _sent(shared([None if job.key is None else KEY_UNTIL[job.key_until] for job in jobs])),
        [choice is OnDuplicate.REPLACE for choice in of["on_duplicate"]],
        _sent(of["correlation_id"]),
        _sent(of["user_id"]),
        _sent(of["service_id"]),
        _sent(of["limit_key"]),
        _sent(of["headers"]),
        [FORMAT_CODES[body_format] for body_format in of["format"]],
        texts,
        _sent(shared(raws)),
        shared(aparts),
        *edges(jobs),
        *_views(jobs, of),
    )


def _views(jobs: Sequence[NewJob], of: Mapping[str, Column]) -> tuple[Column | None, Column | None]:
    """What other jobs have to meet that these may meet, as SQL and as its values; see ``in_view``."""
    if of["only"] == (None,) or (of["key"] == (None,) and of["after"] == ((),)):
        return None, None
    views = [Views.of(job.only) for job in jobs]
    return shared([view for view, _ in views]), shared([values for _, values in views])


def alike_arguments(jobs: Sequence[NewJob], now: int | None) -> tuple[Any, ...] | None:
    """The parameters of ``enqueue_alike``; None for jobs that are not."""
    of = columns_of(jobs)
    if any(of[name] != (None,) for name in ("key", "expires_at", "expires_in", "limit_key")):
        return None
    if of["after"] != ((),):
        return None
    if any(len(of[name]) > 1 for name in _ALIKE) or max(map(len, of["payload"])) > LARGE_BYTES:
        return None
    texts = [body_text(job.format, job.payload) for job in jobs]
    if None in texts:
        return None
    return (
        now,
        of["id"],
        texts,
        of["run_at"][0],
        *microseconds(of["delay"]),
        *[of[name][0] for name in ("topic", "task", "tenant", "priority", "max_attempts")],
        *microseconds(
            [of[name][0] for name in ("timeout", "lease_seconds", "retention", "retention_failed")]
        ),
        *[of[name][0] for name in ("retry", "correlation_id", "user_id", "service_id", "headers")],
    )


def alike_enqueued(jobs: Sequence[NewJob], row: Record) -> list[Enqueued]:
    """The answers; jobs get their numbers in their order."""
    numbers, created_at, run_at = row
    return [Enqueued(job.id, number, created_at, run_at) for job, number in zip(jobs, numbers, strict=True)]


def _sent(column: Column) -> Column | None:
    """Nothing at all is sent of a column that no job has a value in."""
    return None if len(column) == 1 and column[0] is None else column


def body_text(body_format: BodyFormat, payload: bytes) -> str | None:
    """A body people can read in the database; None for one that is kept as bytes."""
    if body_format is not BodyFormat.JSON or b"\x00" in payload:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def enqueued(jobs: Sequence[NewJob], rows: Sequence[Record]) -> list[Enqueued]:
    """The answers, in the order of the jobs. The rows come in it, unless there were keys or a second try."""
    if len(rows) != len(jobs) or not all(map(eq, [row[0] for row in rows], [job.id for job in jobs])):
        by_id: dict[UUID, Record] = {}
        for row in rows:
            by_id.setdefault(row[0], row)
        rows = [by_id[job.id] for job in jobs]
    return [
        Enqueued(job.id, number, created_at, run_at)
        if holder is None
        else Enqueued(holder, number, created_at, run_at, duplicate=True, replaced=replaced)
        for job, (_, holder, number, created_at, run_at, replaced) in zip(jobs, rows, strict=True)
    ]
