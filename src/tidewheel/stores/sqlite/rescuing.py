"""What nobody else takes care of: leases that ended, jobs that expired."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from tidewheel.model import Rescued, RescuedJob, State
from tidewheel.stores.endings import CANCELLED_ON_REQUEST, expired, summarise_error, worker_lost
from tidewheel.stores.queries import Queries
from tidewheel.stores.sqlite.depending import release
from tidewheel.stores.sqlite.settling import Row, add_attempt, finish_cancelled, finish_failed, load_rows
from tidewheel.stores.sqlite.transaction import Code, Transaction

_sql = Queries("tidewheel.stores.sqlite.sql", "rescue.sql")

_BECAME = {"returned": State.PENDING, "failed": State.FAILED, "cancelled": State.CANCELLED}


def rescue(transaction: Transaction, limit: int) -> Rescued:
    connection = transaction.connection
    done: Counter[str] = Counter()
    found = connection.execute(_sql["ended_leases"], (transaction.leases_at, limit)).fetchall()
    rows = load_rows(transaction, [job_id for job_id, _ in found])
    for job_id, correlation_id in found:
        row = rows[job_id]
        became = _rescue(transaction, row)
        code = CANCELLED_ON_REQUEST.code if became == "cancelled" else worker_lost(row.attempt).code
        transaction.rescued.append(_told(job_id, correlation_id, row, _BECAME[became], code))
        done[became] += 1
    found = connection.execute(_sql["expired"], (transaction.judged_at, limit)).fetchall()
    rows = load_rows(transaction, [job_id for job_id, _ in found])
    for job_id, correlation_id in found:
        row = rows[job_id]
        error = expired(row.run_at)
        finish_cancelled(transaction, row, error, None)
        transaction.rescued.append(_told(job_id, correlation_id, row, State.CANCELLED, error.code))
        done["expired"] += 1
    release(transaction)
    return Rescued(**done)


def _told(job_id: bytes, correlation_id: str | None, row: Row, state: State, code: str) -> RescuedJob:
    lane = row.topic, row.task, row.tenant
    return RescuedJob(UUID(bytes=job_id), *lane, correlation_id, row.attempt, row.worker, state, code)


def _rescue(transaction: Transaction, row: Row) -> str:
    """Decide what becomes of a job whose worker did not come back; the name of that."""
    connection = transaction.connection
    counted = bool(row.counts_if_lost)
    attempt = row.attempt if counted else row.attempt - 1
    error = worker_lost(row.attempt)
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
        _sql["put_back"],
        {
            "number": row.number,
            "attempt": attempt,
            "summary": summarise_error(error) if counted else None,
        },
    )
    transaction.tally.moved(row.tenant, row.topic, row.task, Code.RUNNING, Code.READY)
    transaction.ready_topics.add(row.topic)
    return "returned"
