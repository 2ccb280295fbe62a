"""Ending leases. Each is judged by its fence and its time; a stale one changes nothing."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, assert_never

import msgspec

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.model import (
    Cancelled,
    Claimed,
    Completed,
    Failed,
    FailureOrigin,
    JobError,
    Lease,
    Released,
    Report,
    Retried,
    Settlement,
)
from tidewheel.stores.bounds import KEPT_ERRORS_FIRST, KEPT_ERRORS_LAST, MAX_BATCH
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite import topic_limits
from tidewheel.stores.sqlite.bulk_insert import to_blob, write_rows
from tidewheel.stores.sqlite.row_mapping import UNTIL_FINISHED
from tidewheel.stores.sqlite.tenant_scope import with_key_condition
from tidewheel.stores.sqlite.write_transaction import (
    Metric,
    OptimisticWriteFailed,
    StateCode,
    WriteTransaction,
)
from tidewheel.stores.terminal_errors import CANCELLED_ON_REQUEST, summarise_error

_sql = SqlFile("tidewheel.stores.sqlite", "sql/settlements.sql")

MAX_PARAMETERS = 500
COMPLETION_BATCH_SIZES = (1, 10, 50, 100, 200, 500, MAX_BATCH)
"""Jobs that one statement completes. Few sizes, so that each is prepared once."""

_complete_statements = _sql["complete"].format(rows="(?, ?, ?)", without_dependents="")
"""Of a job whose row was looked at before."""
DELETED = 6
"""What became of a parent that was deleted before it had ended."""

_lane_of = operator.attrgetter("tenant", "topic", "task")

_METRICS = {
    StateCode.COMPLETED: Metric.COMPLETED,
    StateCode.FAILED: Metric.FAILED,
    StateCode.CANCELLED: Metric.CANCELLED,
}


class JobRow(NamedTuple):
    """What has to be known of a job to move it to another state."""

    number: int
    state: int
    fence: int
    leased_until: int | None
    topic: str
    task: str
    tenant: str
    run_at: int
    attempt: int
    max_attempts: int | None
    worker: str | None
    started_at: int | None
    cancel_requested: int
    key: str | None
    key_until: int | None
    counts_if_lost: int
    blocked: int
    has_dependents: int


def settle(transaction: WriteTransaction, settlements: Sequence[Settlement]) -> list[bool]:
    """Jobs that simply completed, which is nearly all of them, in one go; the others one by one."""
    take = transaction.grants.pop
    simple: list[tuple[Settlement, Claimed]] = []
    others: list[int] = []
    for position, settlement in enumerate(settlements):
        job = take(settlement.lease)
        if job is not None and job.key is None and type(settlement.outcome) is Completed:
            simple.append((settlement, job))
        else:
            others.append(position)
    if not simple or not _complete_jobs(transaction, simple):
        others = list(range(len(settlements)))
    answers = [True] * len(settlements)
    if others:
        held = load_jobs(transaction, [settlements[position].lease.job_id.bytes for position in others])
        for position in others:
            answers[position] = _settle_job(transaction, held, settlements[position])
    return answers


def _complete_jobs(transaction: WriteTransaction, simple: list[tuple[Settlement, Claimed]]) -> bool:
    """Complete jobs this process was granted, whose rows need not be read first.

    All of them or none: when a single lease had ended, False, and each is to be judged by its row.
    """
    connection, now, tally = transaction.connection, transaction.now, transaction.counter_deltas
    ends: list[int | None] = []  # number, fence and start of one job after another
    with_result: list[int] = []
    results: list[bytearray] = []
    run_times: list[int] = []
    wait_times: list[int] = []
    for settlement, job in simple:
        started_at = None
        if (seconds := settlement.run_seconds) is not None:
            run_time = round(seconds * MICROSECONDS)
            started_at = now - run_time
            run_times.append(run_time)
            wait_times.append(max(0, started_at - job.run_at))
        ends += (job.number, job.lease.fence, started_at)
        if (result := settlement.outcome.result) is not None:  # type: ignore[union-attr] # Completed
            with_result.append(job.number)
            results.append(to_blob(result))
    if not _write_ends(transaction, ends):
        return False
    if results:
        write_rows(connection, "tidewheel_results", len(results), {"number": with_result, "result": results})
    lanes = Counter([_lane_of(job) for _, job in simple])
    for (tenant, topic, task), n in lanes.items():
        tally.count_transition(tenant, topic, task, StateCode.RUNNING, StateCode.COMPLETED, n)
        tally.count_event(now, Metric.COMPLETED, topic, task, n)
    tally.add_durations(now, Metric.RUN_TIME, run_times)
    tally.add_durations(now, Metric.WAIT_TIME, wait_times)
    if len(lanes) == 1:
        [(_, topic, task)] = lanes
        tally.add_lane_durations(now, topic, task, run_times, wait_times)
    else:
        _record_lane_durations(transaction, simple, run_times, wait_times)
    transaction.finished = True
    if limited := transaction.grants.limited_topics:
        for (_, topic, _), n in lanes.items():
            if topic in limited:
                transaction.freed_slots[topic] += n
    return True


def _record_lane_durations(
    transaction: WriteTransaction,
    simple: list[tuple[Settlement, Claimed]],
    run_times: list[int],
    wait_times: list[int],
) -> None:
    """Durations of completed jobs by lane. Both lists leave out what was not measured."""
    measured = [job for settlement, job in simple if settlement.run_seconds is not None]
    for job, run_time, wait_time in zip(measured, run_times, wait_times, strict=True):
        transaction.counter_deltas.add_lane_durations(
            transaction.now, job.topic, job.task, (run_time,), (wait_time,)
        )


def _write_ends(transaction: WriteTransaction, ends: list[int | None]) -> bool:
    """Whether all these leases still held; if not, nothing is written.

    The whole batch is one step of SQLite, during which other threads run.
    """
    connection, now = transaction.connection, transaction.now
    number = len(ends) // 3
    size = next(size for size in COMPLETION_BATCH_SIZES if size >= number)
    missing = [0] * (3 * (size - number))  # numbers start at 1
    values = (now, now, *ends, *missing, now)
    if transaction.optimistic:
        if connection.execute(_complete_statement(size), values).rowcount != number:
            raise OptimisticWriteFailed
        return True
    connection.execute("SAVEPOINT tidewheel_complete")
    all_held = connection.execute(_complete_statement(size), values).rowcount == number
    if not all_held:
        connection.execute("ROLLBACK TO tidewheel_complete")
    connection.execute("RELEASE tidewheel_complete")
    return all_held


@functools.cache
def _complete_statement(size: int) -> str:
    rows = ", ".join(["(?, ?, ?)"] * size)
    return _sql["complete"].format(rows=rows, without_dependents="AND has_dependents = 0")


def _start_of(now: int, run_seconds: float | None, recorded: int | None) -> int | None:
    """Return when a handler began: as recorded, or else as long ago as it ran."""
    if run_seconds is None or recorded is not None:
        return recorded
    return now - seconds_to_microseconds(run_seconds)


def load_jobs(transaction: WriteTransaction, wanted: Sequence[bytes]) -> dict[bytes, JobRow]:
    rows: dict[bytes, JobRow] = {}
    for start in range(0, len(wanted), MAX_PARAMETERS):
        part = wanted[start : start + MAX_PARAMETERS]
        statement = _sql["held"].format(ids=",".join("?" * len(part)))
        for row in transaction.connection.execute(statement, part):
            rows[row[0]] = JobRow._make(row[1:])
    return rows


def _settle_job(transaction: WriteTransaction, held: dict[bytes, JobRow], settlement: Settlement) -> bool:
    now, lease = transaction.now, settlement.lease
    job_id = lease.job_id.bytes
    row = held.get(job_id)
    if (
        row is None
        or row.state != StateCode.RUNNING
        or row.fence != lease.fence
        or row.leased_until is None
        or (row.leased_until <= now and row.leased_until <= transaction.lease_cutoff)
    ):
        return False
    # A second settlement of the same lease in this batch finds nothing to settle.
    del held[job_id]
    started_at = _start_of(now, settlement.run_seconds, row.started_at)
    outcome = settlement.outcome
    _record_durations(transaction, row, settlement, started_at)
    match outcome:
        case Completed(result):
            end = (now, now, row.number, row.fence, started_at, min(now, row.leased_until - 1))
            transaction.connection.execute(_complete_statements, end)
            _count_finished(transaction, row, StateCode.COMPLETED)
            if result is not None:
                written = {"number": (row.number,), "result": (result,)}
                write_rows(transaction.connection, "tidewheel_results", 1, written)
        case Failed(error, origin, priority):
            buried = origin is FailureOrigin.BURIED
            add_attempt(transaction, row, started_at, error)
            finish_failed(transaction, row, error, started_at, buried=buried, priority=priority)
        case Cancelled(error):
            add_attempt(transaction, row, started_at, error)
            finish_cancelled(transaction, row, error, started_at)
        case Retried(delay, error):
            add_attempt(transaction, row, started_at, error)
            if row.cancel_requested:
                finish_cancelled(transaction, row, CANCELLED_ON_REQUEST, started_at)
            elif row.max_attempts is not None and row.attempt >= row.max_attempts:
                finish_failed(transaction, row, error, started_at)
            else:
                _return_to_pending(transaction, row, "retry", delay, {"summary": summarise_error(error)})
                transaction.counter_deltas.count_event(now, Metric.RETRIED, row.topic, row.task)
        case Released():
            release_job(transaction, row, outcome, started_at)
        case _:
            assert_never(outcome)
    return True


def release_job(
    transaction: WriteTransaction, row: JobRow, released: Released, started_at: int | None
) -> None:
    """Give a running job back, uncounted; one that was asked to cancel ends as cancelled."""
    if row.cancel_requested:
        transaction.connection.execute(_sql["uncount"], (row.number,))
        finish_cancelled(transaction, row, CANCELLED_ON_REQUEST, started_at)
        return
    more = {"priority": released.priority, "counted": released.counted, "untaken": not released.taken}
    _return_to_pending(transaction, row, "release", released.delay, more)


def finish_cancelled(
    transaction: WriteTransaction, row: JobRow, error: JobError, started_at: int | None
) -> None:
    """To cancelled, from wherever the job is."""
    _finish_job(
        transaction, row, StateCode.CANCELLED, "cancel", started_at, {"summary": summarise_error(error)}
    )


def finish_failed(
    transaction: WriteTransaction,
    row: JobRow,
    error: JobError,
    started_at: int | None,
    *,
    buried: bool = False,
    priority: int | None = None,
) -> None:
    """To failed. Buried jobs are kept until somebody kicks them; ``priority`` is for then."""
    more = {"summary": summarise_error(error), "buried": buried, "priority": priority}
    _finish_job(transaction, row, StateCode.FAILED, "fail", started_at, more)


def _finish_job(
    transaction: WriteTransaction,
    row: JobRow,
    state: StateCode,
    statement: str,
    started_at: int | None,
    more: dict[str, Any] | None = None,
) -> None:
    parameters = {"now": transaction.now, "number": row.number, "started_at": started_at, **(more or {})}
    transaction.connection.execute(_sql[statement], parameters)
    _count_finished(transaction, row, state)


def _count_finished(transaction: WriteTransaction, row: JobRow, state: StateCode) -> None:
    if row.key is not None and row.key_until == UNTIL_FINISHED:
        release_key(transaction, row)
    if row.has_dependents:
        record_ended_parent(transaction, row, state)
        transaction.connection.execute(_sql["keep_for_dependents"], (row.number,))
    transaction.counter_deltas.count_transition(row.tenant, row.topic, row.task, row.state, state)
    transaction.counter_deltas.count_event(transaction.now, _METRICS[state], row.topic, row.task)
    transaction.finished = True
    topic_limits.wake_limited_topics(transaction, [row.topic])


def record_ended_parent(transaction: WriteTransaction, row: JobRow, state: int) -> None:
    """Those who wait for it are to be told, at the end of the call (``dependencies.release``)."""
    transaction.connection.execute(_sql["record_ended_parent"], (int(state), row.number))
    transaction.parents_ended = True


def _return_to_pending(
    transaction: WriteTransaction, row: JobRow, statement: str, delay: float, more: dict[str, Any]
) -> None:
    """Back to pending, due in ``delay`` seconds."""
    delay_us = seconds_to_microseconds(delay)
    # Given back at once: the job has been due since it was, and its wait is measured from there.
    run_at = transaction.now + delay_us if delay_us > 0 else min(row.run_at, transaction.now)
    state = StateCode.WAITING if delay_us > 0 else StateCode.READY
    parameters = {"number": row.number, "state": state.value, "run_at": run_at, **more}
    transaction.connection.execute(_sql[statement], parameters)
    transaction.counter_deltas.count_transition(row.tenant, row.topic, row.task, row.state, state)
    transaction.ready_topics.add(row.topic)


def _record_durations(
    transaction: WriteTransaction, row: JobRow, settlement: Settlement, started_at: int | None
) -> None:
    if settlement.run_seconds is None or started_at is None:
        return
    now, tally = transaction.now, transaction.counter_deltas
    wait_times = [max(0, started_at - row.run_at)]
    run_times = []
    if isinstance(settlement.outcome, Completed | Retried | Failed):
        run_times.append(seconds_to_microseconds(settlement.run_seconds))
    tally.add_durations(now, Metric.WAIT_TIME, wait_times)
    tally.add_durations(now, Metric.RUN_TIME, run_times)
    tally.add_lane_durations(now, row.topic, row.task, run_times, wait_times)


def release_key(transaction: WriteTransaction, row: JobRow) -> None:
    parameters = (row.tenant, row.task or row.topic, row.key, row.number)
    transaction.connection.execute(with_key_condition(_sql["release_key"]), parameters)


def add_attempt(transaction: WriteTransaction, row: JobRow, started_at: int | None, error: JobError) -> None:
    """Keep this error; of many, the first and the last ones."""
    connection = transaction.connection
    ordinal = connection.execute(
        _sql["add_attempt"],
        {
            "number": row.number,
            "attempt": row.attempt,
            "worker": row.worker,
            "started_at": started_at,
            "ended_at": transaction.now,
            "error": msgspec.json.encode(error).decode(),
        },
    ).fetchone()[0]
    if ordinal > KEPT_ERRORS_FIRST + KEPT_ERRORS_LAST:
        connection.execute(_sql["drop_attempt"], (row.number, ordinal - KEPT_ERRORS_LAST))


def extend_leases(transaction: WriteTransaction, argument: tuple[Sequence[Lease], float]) -> list[bool]:
    leases, lease_seconds = argument
    more = {"lease_us": seconds_to_microseconds(lease_seconds)}
    return _under_leases(transaction, "extend", leases, more)


def extend_if_longer(transaction: WriteTransaction, lease: Lease, lease_us: int) -> bool:
    """Let a lease that holds last so long from now; one that lasts longer keeps its end."""
    return _under_leases(transaction, "extend_longer", [lease], {"lease_us": lease_us})[0]


def mark_started(
    transaction: WriteTransaction, argument: tuple[Sequence[Lease], Sequence[float], bool]
) -> list[bool]:
    leases, run_seconds, alone = argument
    answers = []
    for lease, seconds in zip(leases, run_seconds or [0.0] * len(leases), strict=True):
        transaction.grants.pop(lease)  # from now on the row knows more than the grant did
        more = {"run_us": seconds_to_microseconds(seconds), "alone": alone}
        answers += _under_leases(transaction, "start", [lease], more)
    return answers


def _under_leases(
    transaction: WriteTransaction, statement: str, leases: Sequence[Lease], more: dict[str, Any]
) -> list[bool]:
    answers = []
    leases_at = transaction.lease_cutoff
    for lease in leases:
        parameters = {
            "now": transaction.now,
            "leases_at": leases_at,
            "id": lease.job_id.bytes,
            "fence": lease.fence,
            **more,
        }
        answers.append(transaction.connection.execute(_sql[statement], parameters).rowcount == 1)
    return answers


def save_reports(transaction: WriteTransaction, reports: Sequence[Report]) -> list[bool]:
    connection, now, leases_at = transaction.connection, transaction.now, transaction.lease_cutoff
    answers = []
    for item in reports:
        lease = item.lease
        held = (lease.job_id.bytes, lease.fence, leases_at)
        row = connection.execute(_sql["leased"], held).fetchone()
        answers.append(row is not None)
        if row is None:
            continue
        number, attempt, worker, started_at = row
        if started_at is None:
            transaction.grants.pop(lease)  # as in ``mark_started``
            began = now - seconds_to_microseconds(item.run_seconds)
            connection.execute(_sql["record_start"], (began, number))
        if (progress := item.progress) is not None:
            values = (number, progress.percent, progress.message, progress.stage, now)
            connection.execute(_sql["set_progress"], values)
        if item.checkpoint is not None:
            connection.execute(_sql["set_checkpoint"], (number, item.checkpoint))
        if (step := item.step) is not None:
            written = {
                "number": number,
                "name": step.name,
                "attempt": attempt,
                "worker": worker,
                "started_at": now - seconds_to_microseconds(step.run_seconds),
                "finished_at": now,
                "output": step.output,
            }
            connection.execute(_sql["add_step"], written)
    return answers
