"""Jobs on their way to another store, and those that come from one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.full_job import FullJob, make_full_job
from tidewheel.core.model import KeyLifetime, Progress, State
from tidewheel.errors import StoreError
from tidewheel.stores.bounds import MAX_EXPORT_BYTES
from tidewheel.stores.postgres.database import Database, Record
from tidewheel.stores.postgres.enqueue import LARGE_BYTES, body_text
from tidewheel.stores.postgres.row_mapping import FORMAT_CODES, KEY_UNTIL, full_record
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.transfer import KeyName, key_name, prune_at, select_new_jobs, stored_state_code

_sql = SqlFile("tidewheel.stores.postgres", "sql/transfer.sql")
_read_sql = SqlFile("tidewheel.stores.postgres", "sql/job_queries.sql")
_depend_sql = SqlFile("tidewheel.stores.postgres", "sql/dependencies.sql")

_newest = _sql["newest"].replace("{size}", _sql["size"]).replace("{large}", _sql["large"])
_whole = _sql["export"].replace("{columns}", _read_sql["columns"]).replace("{large}", _sql["large"])
_whole = (
    _whole.replace("{parents}", _read_sql["parents"])
    .replace("{shared_columns}", _sql["shared_columns"])
    .replace("{batched_columns}", _sql["batched_columns"])
)

_INTERNAL_COLUMN_COUNT: Final = 7
"""Columns of ``export`` after those of ``get``."""
_LAST_NUMBER: Final = 2**63 - 1
_LIFETIMES: Final[Mapping[int | None, KeyLifetime | None]] = {None: None} | {
    code: lifetime for lifetime, code in KEY_UNTIL.items()
}
_STEPS: Final = 1_000_000
"""Values of a sequence that one statement passes over: half a second."""
_STATES: Final = ("waiting", "ready", "running", "completed", "failed", "cancelled")


async def export_jobs(database: Database, limit: int, before: int | None) -> list[FullJob]:
    _check_sees_all_tenants(database)
    async with database.transaction() as connection:
        found = await connection.fetch(
            database.qualify(_newest), _LAST_NUMBER if before is None else before, limit
        )
        if not found:
            return []
        last, size = found[0][0], 0
        for number, bodies in found:
            size += bodies
            if size > MAX_EXPORT_BYTES and number != found[0][0]:
                break
            last = number
        rows = await connection.fetch(database.qualify(_whole), last, found[0][0])
    return [_read_exported(row) for row in rows]


def _read_exported(row: Record) -> FullJob:
    shown, unshown = row[:-_INTERNAL_COLUMN_COUNT], row[-_INTERNAL_COLUMN_COUNT:]
    key_until, expires_at, retention_us, retention_failed_us, *flags = unshown
    suspect, counts_if_lost, buried = flags
    return make_full_job(
        full_record(shown),
        None if shown[25] is None else Progress(*shown[25:29]),
        key_until=_LIFETIMES[key_until],
        expires_at=expires_at,
        retention=None if retention_us is None else retention_us / MICROSECONDS,
        retention_failed=None if retention_failed_us is None else retention_failed_us / MICROSECONDS,
        suspect=suspect,
        counts_if_lost=counts_if_lost,
        buried=buried,
    )


async def import_jobs(database: Database, jobs: Sequence[FullJob], now: int) -> list[FullJob]:
    """Those that were written."""
    _check_sees_all_tenants(database)
    async with database.connection() as connection, connection.transaction():
        await connection.execute(_sql["import_lock"], database.schema)
        placed = select_new_jobs(jobs, *await _existing_jobs(database, connection, jobs))
        if placed:
            await _raise_sequences(database, connection, placed)
            for table, rows in _table_rows(placed, now).items():
                await _write(database, connection, table, rows)
            placed_ids = [job.record.id for job in placed]
            await connection.execute(database.qualify(_depend_sql["resolve_imported"]), placed_ids)
    return placed


def _check_sees_all_tenants(database: Database) -> None:
    if database.sees_one_tenant:
        raise StoreError(
            f"{database.description} shows this role one tenant at a time, and a copy is of all jobs; run it "
            "as a "
            "member of tidewheel_worker"
        )


async def _existing_jobs(
    database: Database, connection: Any, jobs: Sequence[FullJob]
) -> tuple[set[UUID], dict[int, UUID], dict[KeyName, UUID]]:
    ids = [job.record.id for job in jobs]
    numbers = [job.record.number for job in jobs]
    there = await connection.fetch(database.qualify(_sql["existing"]), ids, numbers)
    names = [name for job in jobs if (name := key_name(job)) is not None]
    held = []
    if names:
        columns = [list(column) for column in zip(*names, strict=True)]
        held = await connection.fetch(database.qualify(_sql["key_holders"]), *columns)
    return (
        {row[0] for row in there},
        {row[1]: row[0] for row in there},
        {(tenant, scope, key): holder for tenant, scope, key, holder in held},
    )


async def _raise_sequences(database: Database, connection: Any, jobs: Sequence[FullJob]) -> None:
    number = max(job.record.number for job in jobs)
    fence = max(job.record.fence for job in jobs)
    behind = await connection.fetchrow(database.qualify(_sql["sequence_gaps"]), number, fence)
    for name, steps in zip(("raise_numbers", "raise_fences"), behind, strict=True):
        for begun in range(0, steps, _STEPS):
            await connection.fetchval(database.qualify(_sql[name]), min(_STEPS, steps - begun))


async def _write(database: Database, connection: Any, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        statement = _sql["insert_rows"].replace("{table}", table).replace("{names}", ", ".join(rows[0]))
        await connection.execute(database.qualify(statement), msgspec.json.encode(rows).decode())


Rows = list[dict[str, Any]]


def _table_rows(jobs: Sequence[FullJob], now: int) -> dict[str, Rows]:
    """What goes into which table. All rows of a table name the same columns."""
    tables: dict[str, Rows] = {
        name: []
        for name in (
            "jobs",
            "finished_jobs",
            "bodies",
            "progress",
            "attempts",
            "steps",
            "dependencies",
            "job_keys",
            "retention_queue",
            "counter_deltas",
        )
    }
    lanes: Counter[tuple[str, str, str, int]] = Counter()
    by_end: dict[int, list[FullJob]] = {}
    for job in jobs:
        record = job.record
        owned = {"id": record.id, "tenant": record.tenant}
        code = stored_state_code(job, now)
        lanes[record.tenant, record.topic, record.task, code] += 1
        row, apart = _job_row(job, code)
        tables["jobs" if code <= 2 else "finished_jobs"].append(row)
        if apart is not None:
            tables["bodies"].append({**owned, **apart})
        if record.progress is not None or record.checkpoint is not None:
            tables["progress"].append({**owned, **_progress_row(job)})
        tables["attempts"] += [
            {
                **owned,
                "ordinal": ordinal,
                "attempt": one.attempt,
                "worker": one.worker,
                "started_at": one.started_at,
                "ended_at": one.ended_at,
                "error": msgspec.json.encode(one.error).decode(),
            }
            for ordinal, one in enumerate(record.attempts, 1)
        ]
        tables["steps"] += [
            {
                **owned,
                "ordinal": ordinal,
                "attempt": step.attempt,
                "worker": step.worker,
                "started_at": step.started_at,
                "finished_at": step.finished_at,
                "name": step.name,
                "output": step.output.decode(),
            }
            for ordinal, step in enumerate(record.steps, 1)
        ]
        tables["dependencies"] += [
            {
                "child": record.id,
                "parent": parent.job_id,
                "tenant": record.tenant,
                "position": place,
                "after_any": record.after_any,
                "unresolved": parent.waits,
            }
            for place, parent in enumerate(record.after, 1)
        ]
        if (name := key_name(job)) is not None:
            tables["job_keys"].append({"tenant": name[0], "scope": name[1], "key": name[2], "id": record.id})
        if (ends_at := prune_at(job)) is not None:
            by_end.setdefault(ends_at, []).append(job)
    tables["retention_queue"] = [
        {
            "prune_at": ends_at,
            "number": min(job.record.number for job in group),
            "ids": [job.record.id for job in group],
        }
        for ends_at, group in by_end.items()
    ]
    tables["counter_deltas"] = _counter_delta_rows(lanes, now)
    return tables


def _job_row(job: FullJob, code: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The row of a job, and its body if that is kept apart."""
    record = job.record
    body = record.payload or b""
    text = body_text(record.format, body)
    payload = {"payload": text, "raw": None if text is not None else "\\x" + body.hex()}
    apart = len(body) > LARGE_BYTES
    row = {name: getattr(record, name) for name in _COPIED_FIELDS} | {
        # What most jobs never need takes no room.
        **{name: getattr(record, name) or None for name in _NULL_WHEN_ZERO},
        "state": code,
        "format": FORMAT_CODES[record.format],
        "has_separate_body": apart,
        "timeout_us": _microseconds(record.timeout),
        "lease_us": _microseconds(record.lease_seconds),
        "retention_us": _microseconds(job.retention),
        "retention_failed_us": _microseconds(job.retention_failed),
        "key_until": None if job.key_until is None else KEY_UNTIL[job.key_until],
        "headers": job.record.headers,
        "has_dependents": False,
        **(dict.fromkeys(payload) if apart else payload),
    }
    if record.state in (State.PENDING, State.RUNNING):
        row |= {
            "leased_until": record.leased_until,
            "expires_at": job.expires_at,
            "blocked": record.blocked,
            "cancel_requested": record.cancel_requested,
            "suspect": job.suspect,
            "counts_if_lost": job.counts_if_lost,
        }
    else:
        row |= {
            "finished_at": record.finished_at,
            "prune_at": prune_at(job),
            "buried": job.buried,
            "result": None if record.result is None else record.result.decode(),
        }
    return row, payload if apart else None


_COPIED_FIELDS: Final = (
    *("id", "number", "topic", "task", "tenant", "priority", "run_at", "created_at", "attempt"),
    *("max_attempts", "fence", "worker", "claimed_at", "started_at", "retry", "key", "correlation_id"),
    *("user_id", "service_id", "limit_key", "error_summary", "reserves"),
)
"""Columns that are fields of ``JobRecord`` by the same name."""
_NULL_WHEN_ZERO: Final = ("timeouts", "releases", "buries", "kicks", "touches")


def _progress_row(job: FullJob) -> dict[str, Any]:
    said, saved = job.record.progress, job.record.checkpoint
    return {
        "percent": said and said.percent,
        "message": said and said.message,
        "stage": said and said.stage,
        "updated_at": said and said.updated_at,
        "checkpoint": None if saved is None else saved.decode(),
    }


def _counter_delta_rows(lanes: Mapping[tuple[str, str, str, int], int], now: int) -> Rows:
    """Only how many jobs there are: none of this happened here."""
    changes = (
        *_STATES,
        *("enqueued_events", "completed_events", "failed_events", "cancelled_events", "retried_events"),
    )
    return [
        {
            "minute": now - now % (60 * MICROSECONDS),
            "tenant": tenant,
            "topic": topic,
            "task": task,
            **dict.fromkeys(changes, 0),
            _STATES[code]: n,
        }
        for (tenant, topic, task, code), n in lanes.items()
    ]


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else seconds_to_microseconds(seconds)
