"""What those need who pull jobs by hand: one job granted, touches, kicks, peeks, how much is in a topic."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.model import ROOT_TENANT, URGENT_ABOVE, ActionResult, Claimed, JobRecord, Lease, TopicHead
from tidewheel.core.reports import TopicDepth
from tidewheel.stores.bounds import MAX_COUNT, MAX_SCANNED_JOBS
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite import claims, job_queries
from tidewheel.stores.sqlite.admin import JobSelection, apply_to_each, find_job, requeue_job
from tidewheel.stores.sqlite.dependencies import must_wait, restore_parents
from tidewheel.stores.sqlite.reports import MAX_SCANNED_OF_TENANT
from tidewheel.stores.sqlite.settlements import JobRow
from tidewheel.stores.sqlite.tenant_scope import execute_for_tenant, with_key_condition
from tidewheel.stores.sqlite.write_transaction import StateCode, WriteTransaction

_sql = SqlFile("tidewheel.stores.sqlite", "sql/pull.sql")
_admin_sql = SqlFile("tidewheel.stores.sqlite", "sql/admin.sql")
_statistics_sql = SqlFile("tidewheel.stores.sqlite", "sql/statistics.sql")

MAX_INTEGER = 2**63 - 1
_BY_TENANT = "tidewheel_jobs_tenant"
_URGENT = {"urgent": str(URGENT_ABOVE)}

_Lane = tuple[str, str]
"""Topic and task."""


class ClaimJobRequest(NamedTuple):
    """Which job, to whom, for how long."""

    job_id: UUID
    tenant: str | None
    worker: str
    lease_seconds: float


# -- writing ------------------------------------------------------------------------------------------------


def claim_job(transaction: WriteTransaction, wanted: ClaimJobRequest) -> Claimed | None:
    claims.run_maintenance(transaction)
    row = find_job(transaction, wanted.job_id, wanted.tenant)
    if row is None or row.blocked:
        return None
    back: list[JobRow] = []
    match row.state:
        case StateCode.READY:
            pass
        case StateCode.WAITING:
            _make_due(transaction, [(row.number, row.tenant, row.topic, row.task)], kicks=0)
        case StateCode.FAILED if must_wait(transaction, row):
            return None
        case StateCode.FAILED if requeue_job(transaction, row, back=back, kicks=0) is ActionResult.DONE:
            restore_parents(transaction, back)
        case _:
            return None
    return claims.claim_ready_job(transaction, row.number, wanted.worker, wanted.lease_seconds)


def touch(transaction: WriteTransaction, argument: tuple[Sequence[Lease], float]) -> list[float | None]:
    leases, lease_seconds = argument
    touched: dict[Lease, float | None] = {}
    for lease in dict.fromkeys(leases):
        parameters = {
            "now": transaction.now,
            "leases_at": transaction.lease_cutoff,
            "lease_us": seconds_to_microseconds(lease_seconds),
            "id": lease.job_id.bytes,
            "fence": lease.fence,
        }
        row = transaction.connection.execute(_sql["touch"], parameters).fetchone()
        touched[lease] = None if row is None else row[0] / MICROSECONDS
    return [touched[lease] for lease in leases]


def kick(transaction: WriteTransaction, argument: tuple[str, int, str | None, bool]) -> int:
    topic, limit, tenant, failed_only = argument
    failed = _kickable_jobs(transaction, topic, limit, tenant)
    back: list[JobRow] = []
    for row in failed:
        requeue_job(transaction, row, back=back)
    restore_parents(transaction, back)
    if failed or failed_only:
        return len(failed)
    values = (topic, transaction.now, limit)
    index = _index_hint(transaction.connection, tenant, "tidewheel_jobs_delayed")
    delayed = execute_for_tenant(
        transaction.connection, _sql["delayed_by_time"], tenant, values, index=index
    ).fetchall()
    _make_due(transaction, delayed, kicks=1)
    return len(delayed)


def _kickable_jobs(transaction: WriteTransaction, topic: str, limit: int, tenant: str | None) -> list[JobRow]:
    """The first failed jobs whose key nobody else holds or is about to take, so many."""
    connection = transaction.connection
    found: list[JobRow] = []
    taken: set[tuple[str, str, str]] = set()
    parts = {
        "columns": ", ".join(JobRow._fields),
        "index": _index_hint(connection, tenant, "tidewheel_jobs_failed"),
    }
    # All is read before anything is written: what changes under a cursor may be met again.
    rows = execute_for_tenant(
        connection, _sql["failed_by_time"], tenant, (topic, limit + MAX_SCANNED_JOBS), **parts
    )
    for row in map(JobRow._make, rows):
        if len(found) == limit:
            break
        if row.key is not None:
            key = (row.tenant, row.task or row.topic, row.key)
            holder = connection.execute(with_key_condition(_admin_sql["key_number"]), key).fetchone()
            if key in taken or (holder is not None and holder[0] != row.number):
                continue
            taken.add(key)
        found.append(row)
    rows.close()
    return found


def kick_jobs(transaction: WriteTransaction, selection: JobSelection) -> list[ActionResult]:
    back: list[JobRow] = []
    verdicts = apply_to_each(transaction, selection, partial(_kick_job, back=back))
    restore_parents(transaction, back)
    return verdicts


def _kick_job(transaction: WriteTransaction, row: JobRow, *, back: list[JobRow]) -> ActionResult:
    if row.state == StateCode.FAILED:
        return requeue_job(transaction, row, back=back)
    if row.state != StateCode.WAITING or row.blocked or row.run_at <= transaction.now:
        return ActionResult.WRONG_STATE
    _make_due(transaction, [(row.number, row.tenant, row.topic, row.task)], kicks=1)
    return ActionResult.DONE


def _make_due(transaction: WriteTransaction, jobs: list[tuple[int, str, str, str]], *, kicks: int) -> None:
    """Waiting jobs, as (number, tenant, topic, task)."""
    if not jobs:
        return
    numbers = json.dumps([job[0] for job in jobs])
    parameters = {"now": transaction.now, "kicks": kicks, "numbers": numbers}
    transaction.connection.execute(_sql["make_due"], parameters)
    for (tenant, topic, task), n in Counter(job[1:] for job in jobs).items():
        transaction.counter_deltas.count_transition(
            tenant, topic, task, StateCode.WAITING, StateCode.READY, n
        )
        transaction.ready_topics.add(topic)


def run_maintenance(transaction: WriteTransaction, _: None) -> None:
    """As a claim does before it chooses."""
    claims.run_maintenance(transaction)


# -- reading ------------------------------------------------------------------------------------------------


def job_ids(connection: sqlite3.Connection, numbers: Sequence[int], tenant: str | None) -> list[UUID | None]:
    found: list[UUID | None] = []
    for number in numbers:
        known = 0 < number <= MAX_INTEGER  # what cannot be one cannot be asked for either
        row = execute_for_tenant(connection, _sql["id"], tenant, (number,)).fetchone() if known else None
        found.append(None if row is None else UUID(bytes=row[0]))
    return found


def peek(
    connection: sqlite3.Connection, topic: str, head: TopicHead, tenant: str | None, now: int
) -> JobRecord | None:
    number = _head(connection, topic, head, tenant, now)
    if number is None:
        return None
    [job_id] = job_ids(connection, [number], tenant)
    return None if job_id is None else job_queries.get(connection, job_id, tenant)


def _head(
    connection: sqlite3.Connection, topic: str, head: TopicHead, tenant: str | None, now: int
) -> int | None:
    match head:
        case TopicHead.READY:
            return _first_ready(connection, topic, tenant)
        case TopicHead.DELAYED:
            index = _index_hint(connection, tenant, "tidewheel_jobs_delayed")
            row = execute_for_tenant(
                connection, _sql["first_delayed"], tenant, (topic, now), index=index
            ).fetchone()
        case TopicHead.FAILED:
            index = _index_hint(connection, tenant, "tidewheel_jobs_failed")
            row = execute_for_tenant(
                connection, _sql["first_failed"], tenant, (topic,), index=index
            ).fetchone()
    return None if row is None else int(row[0])


def _first_ready(connection: sqlite3.Connection, topic: str, tenant: str | None) -> int | None:
    if tenant is None:
        return claims.first_ready(connection, topic)
    if (index := _index_hint(connection, tenant, "")) == _BY_TENANT:
        row = execute_for_tenant(
            connection, _sql["first_ready_of_few"], tenant, (topic,), index=index
        ).fetchone()
        return None if row is None else int(row[0])
    counts = execute_for_tenant(connection, _sql["counts_of"], tenant, (json.dumps([topic]),)).fetchall()
    lanes = [(topic, task) for _, task, state, n in counts if n and state == StateCode.READY]
    heads = [
        execute_for_tenant(connection, _sql["first_ready_of_lane"], tenant, lane).fetchone() for lane in lanes
    ]
    return min((head for head in heads if head is not None), default=(0, None))[1]


def _index_hint(connection: sqlite3.Connection, tenant: str | None, of_topic: str) -> str:
    """Where to look for a tenant's jobs: in the topic's index, past those of others, or among its own if they
    are few.
    """
    if tenant is None or tenant == ROOT_TENANT:
        return of_topic
    [jobs] = execute_for_tenant(connection, _sql["count_jobs"], tenant).fetchone()
    return _BY_TENANT if jobs <= MAX_SCANNED_OF_TENANT else of_topic


def depths(
    connection: sqlite3.Connection, topics: Sequence[str] | None, tenant: str | None, now: int
) -> list[TopicDepth]:
    by_state: defaultdict[str, Counter[int]] = defaultdict(Counter)
    ready: dict[_Lane, int] = {}
    for topic, task, state, n in _counts(connection, topics, tenant):
        if n:
            by_state[topic][state] += n
            if state == StateCode.READY:
                ready[topic, task] = n
    urgent = _urgent(connection, ready, tenant)
    late: Counter[str] = Counter()
    blocked: Counter[str] = Counter()
    waiting = [topic for topic, counts in by_state.items() if counts[StateCode.WAITING]]
    if waiting:
        for topic, n, of_them in _due_but_waiting(
            connection, None if topics is None else waiting, tenant, now
        ):
            late[topic] += n
            urgent[topic] += of_them
        blocked.update(
            dict(execute_for_tenant(connection, _sql["blocked"], tenant, (MAX_SCANNED_JOBS,)).fetchall())
        )
    pauses: dict[str, int] = dict(connection.execute(_statistics_sql["pauses"], (now,)).fetchall())
    if tenant is not None:  # the pause of a topic without jobs of this tenant is none of its business
        pauses = {topic: until for topic, until in pauses.items() if topic in by_state}
    names = sorted({*by_state, *pauses}) if topics is None else topics
    return [
        TopicDepth(
            topic,
            ready=by_state[topic][StateCode.READY] + late[topic],
            delayed=by_state[topic][StateCode.WAITING] - late[topic] - blocked[topic],
            running=by_state[topic][StateCode.RUNNING],
            failed=by_state[topic][StateCode.FAILED],
            urgent=min(urgent[topic], MAX_COUNT),
            paused_until=pauses.get(topic),
        )
        for topic in names
    ]


def _counts(
    connection: sqlite3.Connection, topics: Sequence[str] | None, tenant: str | None
) -> Iterable[Any]:
    if topics is None:
        return execute_for_tenant(connection, _sql["counts"], tenant).fetchall()
    return execute_for_tenant(connection, _sql["counts_of"], tenant, (json.dumps(topics),)).fetchall()


def _due_but_waiting(
    connection: sqlite3.Connection, topics: Sequence[str] | None, tenant: str | None, now: int
) -> Iterable[tuple[str, int, int]]:
    """By topic, how many and how many of them are urgent."""
    if topics is None:
        values = (now, MAX_SCANNED_JOBS)
        yield from execute_for_tenant(connection, _sql["unpromoted"], tenant, values, **_URGENT).fetchall()
        return
    for topic in topics:
        values_of = (now, topic, MAX_SCANNED_JOBS)
        n, urgent = execute_for_tenant(
            connection, _sql["unpromoted_in_topics"], tenant, values_of, **_URGENT
        ).fetchone()
        yield topic, n, urgent


def _urgent(connection: sqlite3.Connection, ready: dict[_Lane, int], tenant: str | None) -> Counter[str]:
    """How many of these ready jobs are urgent, by topic."""
    urgent: Counter[str] = Counter()
    [lowest] = connection.execute(_sql["lowest_priorities"], (json.dumps(list(ready)),)).fetchone()
    for (lane, n), priority in zip(ready.items(), json.loads(lowest), strict=True):
        if priority is not None and priority > URGENT_ABOVE:
            urgent[lane[0]] += n
        else:
            values = (*lane, MAX_COUNT)
            urgent[lane[0]] += execute_for_tenant(
                connection, _sql["urgent"], tenant, values, **_URGENT
            ).fetchone()[0]
    return urgent
