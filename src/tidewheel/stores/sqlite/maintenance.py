"""Rescue jobs whose leases ended, cancel expired jobs, and prune finished ones.

Pruning holds the write lock, so all other writers wait. A call therefore removes jobs in parts of up to 50
and stops after 10 ms, even if jobs are left. All jobs are in one table, so no partition can be dropped
instead. Pruning also removes old statistics, documents, meters and vanished workers.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import accumulate
from typing import Any, Final
from uuid import UUID

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import RescuedJob, RescueResult, State
from tidewheel.stores.bounds import LANE_MINUTES_KEPT_SECONDS, MINUTES_KEPT_SECONDS
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite import documents, topic_limits, worker_registry
from tidewheel.stores.sqlite.admin import remove_jobs
from tidewheel.stores.sqlite.dependencies import release_dependents
from tidewheel.stores.sqlite.settlements import (
    JobRow,
    add_attempt,
    finish_cancelled,
    finish_failed,
    load_jobs,
)
from tidewheel.stores.sqlite.write_transaction import StateCode, WriteTransaction
from tidewheel.stores.terminal_errors import (
    CANCELLED_ON_REQUEST,
    expired_error,
    summarise_error,
    worker_lost_error,
)

_sql = SqlFile("tidewheel.stores.sqlite", "sql/maintenance.sql")

_RESCUE_RESULTS = {"returned": State.PENDING, "failed": State.FAILED, "cancelled": State.CANCELLED}


def rescue_jobs(transaction: WriteTransaction, limit: int) -> RescueResult:
    connection = transaction.connection
    done: Counter[str] = Counter()
    found = connection.execute(_sql["expired_leases"], (transaction.lease_cutoff, limit)).fetchall()
    rows = load_jobs(transaction, [job_id for job_id, _ in found])
    for job_id, correlation_id in found:
        row = rows[job_id]
        became = _rescue_job(transaction, row)
        code = CANCELLED_ON_REQUEST.code if became == "cancelled" else worker_lost_error(row.attempt).code
        transaction.rescued.append(
            _to_rescued_job(job_id, correlation_id, row, _RESCUE_RESULTS[became], code)
        )
        done[became] += 1
    found = connection.execute(_sql["expired_jobs"], (transaction.trusted_now, limit)).fetchall()
    rows = load_jobs(transaction, [job_id for job_id, _ in found])
    for job_id, correlation_id in found:
        row = rows[job_id]
        error = expired_error(row.run_at)
        finish_cancelled(transaction, row, error, None)
        transaction.rescued.append(_to_rescued_job(job_id, correlation_id, row, State.CANCELLED, error.code))
        done["expired"] += 1
    release_dependents(transaction)
    return RescueResult(**done)


def _to_rescued_job(
    job_id: bytes, correlation_id: str | None, row: JobRow, state: State, code: str
) -> RescuedJob:
    lane = row.topic, row.task, row.tenant
    return RescuedJob(UUID(bytes=job_id), *lane, correlation_id, row.attempt, row.worker, state, code)


def _rescue_job(transaction: WriteTransaction, row: JobRow) -> str:
    """Decide what becomes of a job whose worker did not come back; the name of that."""
    connection = transaction.connection
    counted = bool(row.counts_if_lost)
    attempt = row.attempt if counted else row.attempt - 1
    error = worker_lost_error(row.attempt)
    if row.cancel_requested:
        connection.execute(_sql["count_timeout"], (attempt, row.number))
        finish_cancelled(transaction, row, CANCELLED_ON_REQUEST, row.started_at)
        return "cancelled"
    if counted:
        add_attempt(transaction, row, row.started_at, error)
        if row.max_attempts is not None and attempt >= row.max_attempts:
            connection.execute(_sql["count_timeout"], (attempt, row.number))
            finish_failed(transaction, row, error, row.started_at)
            return "failed"
    connection.execute(
        _sql["return_to_ready"],
        {
            "number": row.number,
            "attempt": attempt,
            "summary": summarise_error(error) if counted else None,
        },
    )
    transaction.counter_deltas.count_transition(
        row.tenant, row.topic, row.task, StateCode.RUNNING, StateCode.READY
    )
    transaction.ready_topics.add(row.topic)
    return "returned"


LOCK_SECONDS: Final = 0.01
"""After this the next part is left for another call."""
PRUNE_BATCH: Final = 50
PRUNE_BATCH_BYTES: Final = 1024 * 1024
"""Of bodies in one part: a large one is a chain of pages, and each is read to be freed."""


_STATES = {
    StateCode.COMPLETED: State.COMPLETED,
    StateCode.FAILED: State.FAILED,
    StateCode.CANCELLED: State.CANCELLED,
}


def prune(transaction: WriteTransaction, limit: int) -> dict[State, int]:
    until = time.monotonic() + LOCK_SECONDS
    pruned: Counter[State] = Counter()
    left, more = limit, True
    while more and left > 0:
        rows, more = _next_batch(transaction, min(left, PRUNE_BATCH))
        remove_jobs(transaction, rows)
        pruned.update(_STATES[StateCode(row[1])] for row in rows)
        left -= len(rows)
        if time.monotonic() >= until:
            break
    _remove_expired_records(transaction, limit)
    if not more:  # it reads all counters, which there may be many of: not with every call of many
        transaction.connection.execute(_sql["delete_zero_counts"])
    return dict(pruned)


def _next_batch(transaction: WriteTransaction, most: int) -> tuple[list[tuple[Any, ...]], bool]:
    """The jobs that are overdue longest, at least one if there is any; whether there are more, perhaps."""
    rows = transaction.connection.execute(_sql["overdue_jobs"], (transaction.trusted_now, most)).fetchall()
    sizes = accumulate(row[-1] for row in rows)
    fitting = max(1, sum(size <= PRUNE_BATCH_BYTES for size in sizes))
    return [row[:-1] for row in rows[:fitting]], len(rows) == most or fitting < len(rows)


def _remove_expired_records(transaction: WriteTransaction, limit: int) -> None:
    connection, now = transaction.connection, transaction.trusted_now
    connection.execute(_sql["delete_old_minutes"], (now - seconds_to_microseconds(MINUTES_KEPT_SECONDS),))
    lanes_before = now - seconds_to_microseconds(LANE_MINUTES_KEPT_SECONDS)
    connection.execute(_sql["delete_old_lane_minutes"], (lanes_before,))
    worker_registry.remove_vanished_workers(transaction)
    documents.remove_expired(transaction, limit)
    topic_limits.remove_idle_meters(transaction, limit)
