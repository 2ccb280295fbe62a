"""Jobs on their way to another store, and those that come from one."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.full_job import FullJob, make_full_job
from tidewheel.core.model import KeyLifetime, Progress
from tidewheel.stores.bounds import MAX_EXPORT_BYTES
from tidewheel.stores.enqueue import Column, collapse_equal, column_in_microseconds
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite.bulk_insert import to_blob, write_rows
from tidewheel.stores.sqlite.dependencies import import_dependencies as place_parents
from tidewheel.stores.sqlite.job_queries import read_full_record
from tidewheel.stores.sqlite.row_mapping import FORMAT_CODES, KEY_UNTIL
from tidewheel.stores.sqlite.tenant_scope import with_key_condition
from tidewheel.stores.sqlite.write_transaction import WriteTransaction
from tidewheel.stores.transfer import (
    KeyName,
    key_name,
    mark_imported,
    prune_at,
    select_new_jobs,
    stored_state_code,
)

_sql = SqlFile("tidewheel.stores.sqlite", "sql/transfer.sql")
_job_queries_sql = SqlFile("tidewheel.stores.sqlite", "sql/job_queries.sql")
_whole_sql = _sql["export"].format(columns=_job_queries_sql["columns"])

_INTERNAL_COLUMN_COUNT: Final = 7
"""Columns of ``export`` after those of ``get``."""
_LAST_NUMBER: Final = 2**63 - 1
_LIFETIMES: Final[dict[int | None, KeyLifetime | None]] = {None: None} | {
    code: lifetime for lifetime, code in KEY_UNTIL.items()
}


def export_jobs(connection: sqlite3.Connection, limit: int, before: int | None) -> list[FullJob]:
    values = (_LAST_NUMBER if before is None else before, limit)
    jobs: list[FullJob] = []
    size = 0
    for row in connection.execute(_whole_sql, values):
        job = _export_job(connection, row)
        size += job.size
        if jobs and size > MAX_EXPORT_BYTES:
            break
        jobs.append(job)
    return jobs


def _export_job(connection: sqlite3.Connection, row: tuple[Any, ...]) -> FullJob:
    shown, unshown = row[:-_INTERNAL_COLUMN_COUNT], row[-_INTERNAL_COLUMN_COUNT:]
    key_until, expires_at, retention_us, retention_failed_us, *flags = unshown
    suspect, counts_if_lost, buried = flags
    return make_full_job(
        read_full_record(connection, shown),
        None if shown[25] is None else Progress(*shown[25:29]),
        key_until=_LIFETIMES[key_until],
        expires_at=expires_at,
        retention=None if retention_us is None else retention_us / MICROSECONDS,
        retention_failed=None if retention_failed_us is None else retention_failed_us / MICROSECONDS,
        suspect=bool(suspect),
        counts_if_lost=bool(counts_if_lost),
        buried=bool(buried),
    )


def import_jobs(transaction: WriteTransaction, jobs: Sequence[FullJob]) -> list[bool]:
    placed = select_new_jobs(jobs, *_existing_jobs(transaction.connection, jobs))
    if placed:
        # In the order in which tables are kept: the newest first would leave pages half empty.
        _insert_imported(transaction, sorted(placed, key=lambda job: job.record.number))
    return mark_imported(jobs, placed)


def _existing_jobs(
    connection: sqlite3.Connection, jobs: Sequence[FullJob]
) -> tuple[set[UUID], dict[int, UUID], dict[KeyName, UUID]]:
    numbers: dict[int, UUID] = {}
    keys: dict[KeyName, UUID] = {}
    for job in jobs:
        for job_id, number in connection.execute(_sql["existing"], (job.record.id.bytes, job.record.number)):
            numbers[number] = UUID(bytes=job_id)
        if (name := key_name(job)) is not None:
            holder = connection.execute(with_key_condition(_sql["key_holder"]), name).fetchone()
            if holder is not None:
                keys[name] = UUID(bytes=holder[0])
    return set(numbers.values()), numbers, keys


def _insert_imported(transaction: WriteTransaction, jobs: list[FullJob]) -> None:
    connection = transaction.connection
    records = [job.record for job in jobs]
    states = [stored_state_code(job, transaction.now) for job in jobs]

    def of_records(name: str) -> Column:
        return collapse_equal([getattr(record, name) for record in records])

    def of_jobs(tell: Callable[[FullJob], Any]) -> Column:
        return collapse_equal([tell(job) for job in jobs])

    def write(table: str, rows: Sequence[Sequence[Any]], *names: str) -> None:
        if rows:
            columns = dict(zip(names, zip(*rows, strict=True), strict=True))
            write_rows(connection, table, len(rows), columns)

    for sequence, highest in (
        ("number", max(record.number for record in records)),
        ("fence", max(record.fence for record in records)),
    ):
        connection.execute(_sql["raise_sequence"], (highest, sequence))
    write_rows(
        connection,
        "tidewheel_jobs",
        len(jobs),
        {
            "id": [to_blob(record.id.bytes) for record in records],
            "state": collapse_equal(states),
            **{name: of_records(name) for name in _COPIED_FIELDS},
            "cancel_requested": of_jobs(lambda job: int(job.record.cancel_requested)),
            "prune_at": of_jobs(prune_at),
            "suspect": of_jobs(lambda job: int(job.suspect)),
            "counts_if_lost": of_jobs(lambda job: int(job.counts_if_lost)),
            "buried": of_jobs(lambda job: int(job.buried)),
            "timeout_us": column_in_microseconds(of_records("timeout")),
            "lease_us": column_in_microseconds(of_records("lease_seconds")),
            "retention_us": column_in_microseconds(of_jobs(lambda job: job.retention)),
            "retention_failed_us": column_in_microseconds(of_jobs(lambda job: job.retention_failed)),
            "expires_at": of_jobs(lambda job: job.expires_at),
            "key_until": of_jobs(lambda job: None if job.key_until is None else KEY_UNTIL[job.key_until]),
            "headers": of_jobs(lambda job: job.record.headers),
        },
    )
    bodies = [
        (record.number, FORMAT_CODES[record.format], to_blob(record.payload or b"")) for record in records
    ]
    write("tidewheel_bodies", bodies, "number", "format", "payload")
    results = [(record.number, to_blob(record.result)) for record in records if record.result is not None]
    write("tidewheel_results", results, "number", "result")
    progress = []
    for record in records:
        if record.progress is not None or record.checkpoint is not None:
            said = record.progress
            told = (said.percent, said.message, said.stage, said.updated_at) if said else (None,) * 4
            saved = None if record.checkpoint is None else to_blob(record.checkpoint)
            progress.append((record.number, *told, saved))
    write("tidewheel_progress", progress, "number", "percent", "message", "stage", "updated_at", "checkpoint")
    attempts = [
        (record.number, ordinal, one.attempt, one.worker, one.started_at, one.ended_at, _json(one.error))
        for record in records
        for ordinal, one in enumerate(record.attempts, 1)
    ]
    write(
        "tidewheel_attempts", attempts,
        "number", "ordinal", "attempt", "worker", "started_at", "ended_at", "error",
    )  # fmt: skip
    steps = [
        (record.number, step.name, ordinal, step.attempt, step.worker, step.started_at, step.finished_at,
         to_blob(step.output))
        for record in records
        for ordinal, step in enumerate(record.steps, 1)
    ]  # fmt: skip
    write(
        "tidewheel_steps", steps,
        "number", "name", "ordinal", "attempt", "worker", "started_at", "finished_at", "output",
    )  # fmt: skip
    after = [
        (record.number, to_blob(parent.job_id.bytes), place, int(record.after_any), int(parent.waits))
        for record in records
        for place, parent in enumerate(record.after)
    ]
    write("tidewheel_dependencies", after, "child", "parent", "position", "after_any", "unresolved")
    keys = [(*name, job.record.number) for job in jobs if (name := key_name(job)) is not None]
    write("tidewheel_job_keys", keys, "tenant", "scope", "key", "number")
    lanes = Counter(
        (record.tenant, record.topic, record.task, state)
        for record, state in zip(records, states, strict=True)
    )
    for (tenant, topic, task, state), n in lanes.items():
        transaction.counter_deltas.count_transition(tenant, topic, task, None, state, n)
        transaction.ready_topics.add(topic)
    place_parents(transaction, [record.number for record in records])


_COPIED_FIELDS: Final = (
    *("number", "topic", "task", "tenant", "priority", "run_at", "created_at", "attempt", "max_attempts"),
    *(
        "fence",
        "leased_until",
        "worker",
        "claimed_at",
        "started_at",
        "finished_at",
        "blocked",
        "retry",
        "key",
    ),
    *(
        "correlation_id",
        "user_id",
        "service_id",
        "limit_key",
        "error_summary",
        "reserves",
        "timeouts",
        "releases",
    ),
    *("buries", "kicks", "touches"),
)
"""Columns that are fields of ``JobRecord`` by the same name."""


def _json(error: Any) -> str:
    return msgspec.json.encode(error).decode()
