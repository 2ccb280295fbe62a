"""Writing new jobs: many callers' at once, keys checked row by row, limits call by call."""

from __future__ import annotations

import functools
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from windlass.clock import seconds_to_microseconds
from windlass.errors import LimitExceeded, WindlassError
from windlass.model import BodyFormat, Enqueued, KeyLifetime, NewJob, OnDuplicate
from windlass.stores.limits import limit_problem
from windlass.stores.queries import Queries
from windlass.stores.sqlite.transaction import Code, Metric, Transaction

_sql = Queries("windlass.stores.sqlite.sql", "enqueue.sql")

Row = tuple[Any, ...]
STATE, TOPIC, TENANT = 2, 3, 5  # of insert_job's columns

ROWS_PER_STEP = (100, 10, 1)
"""Few sizes, so that each statement is prepared once."""

_KEY_UNTIL = {KeyLifetime.PRUNED: 0, KeyLifetime.FINISHED: 1}
UNTIL_FINISHED = _KEY_UNTIL[KeyLifetime.FINISHED]
FORMAT_CODES = {BodyFormat.JSON: 0, BodyFormat.BYTES: 1}
FORMATS = {code: name for name, code in FORMAT_CODES.items()}


def enqueue(
    transaction: Transaction, calls: Sequence[Sequence[NewJob]]
) -> list[list[Enqueued] | WindlassError]:
    """Every call's jobs, with one pair of statements for all of them."""
    rows: list[Row] = []
    bodies: list[Row] = []
    number = transaction.take_numbers("number", sum(map(len, calls)))
    answers: list[list[Enqueued] | WindlassError] = []
    for jobs in calls:
        if problem := _limit_problem(transaction, jobs, rows):
            answers.append(problem)
            continue
        answer: list[Enqueued] = []
        for job in jobs:
            answer.append(_add(transaction, job, number, rows, bodies))
            number += 1
        answers.append(answer)
    _insert(transaction, rows, bodies)
    return answers


def _insert(transaction: Transaction, rows: list[Row], bodies: list[Row]) -> None:
    _insert_rows(transaction.connection, _sql["insert_job"], rows)
    _insert_rows(transaction.connection, _sql["insert_body"], bodies)
    lanes = Counter([row[STATE : TENANT + 1] for row in rows])
    for (state, topic, task, tenant), n in lanes.items():
        transaction.tally.moved(tenant, topic, task, None, state, n)
        transaction.tally.happened(transaction.now, topic, Metric.ENQUEUED, n)
        # Also for delayed jobs: a sleeping worker has to learn when to get up.
        transaction.ready_topics.add(topic)
    rows.clear()
    bodies.clear()


def _insert_rows(connection: sqlite3.Connection, statement: str, rows: list[Row]) -> None:
    """Many rows in few steps. After each step of ``executemany`` this thread would have to fight the event
    loop for the interpreter; a statement with a hundred rows is one step.
    """
    done = 0
    while done < len(rows):
        size = next(size for size in ROWS_PER_STEP if size <= len(rows) - done)
        part = rows[done : done + size]
        connection.execute(_with_rows(statement, size), [value for row in part for value in row])
        done += size


@functools.cache
def _with_rows(statement: str, number: int) -> str:
    head, _, values = statement.partition("VALUES ")
    return head + "VALUES " + ", ".join([values] * number)


def _add(
    transaction: Transaction,
    job: NewJob,
    number: int,
    rows: list[Row],
    bodies: list[Row],
) -> Enqueued:
    now = transaction.now
    # A past run_at means now: nobody has waited for a job before it existed.
    run_at = now + seconds_to_microseconds(job.delay) if job.run_at is None else max(job.run_at, now)
    expires_at = job.expires_at
    if expires_at is None and job.expires_in is not None:
        expires_at = now + seconds_to_microseconds(job.expires_in)
    state = Code.WAITING if run_at > now else Code.READY
    if job.key is not None:
        scope = job.task or job.topic
        taken = (job.tenant, scope, job.key, number)
        if transaction.connection.execute(_sql["take_key"], taken).fetchone() is None:
            # The holder may be a job of this very transaction that is not written yet.
            _insert(transaction, rows, bodies)
            return _duplicate(transaction, job, run_at, expires_at)
    rows.append(
        (
            number,
            job.id.bytes,
            state.value,
            job.topic,
            job.task,
            job.tenant,
            job.priority,
            run_at,
            now,
            job.max_attempts,
            _microseconds(job.timeout),
            _microseconds(job.lease_seconds),
            _microseconds(job.retention),
            _microseconds(job.retention_failed),
            expires_at,
            job.retry,
            job.key,
            None if job.key is None else _KEY_UNTIL[job.key_until],
            job.correlation_id,
            job.user_id,
            job.service_id,
            job.trace,
        )
    )
    bodies.append((number, FORMAT_CODES[job.format], job.payload))
    return Enqueued(job.id, number, now, run_at)


def _duplicate(transaction: Transaction, job: NewJob, run_at: int, expires_at: int | None) -> Enqueued:
    connection = transaction.connection
    holder = connection.execute(_sql["key_holder"], (job.tenant, job.task or job.topic, job.key)).fetchone()
    number, id_bytes, state, created_at, held_run_at, attempt, tenant, topic, task, blocked = holder
    held = UUID(bytes=id_bytes)
    if job.on_duplicate is not OnDuplicate.REPLACE or state > Code.READY or attempt:
        return Enqueued(held, number, created_at, held_run_at, duplicate=True)
    new_state = Code.WAITING if run_at > transaction.now or blocked else Code.READY
    connection.execute(_sql["replace_job"], (new_state.value, job.priority, run_at, expires_at, number))
    connection.execute(_sql["replace_body"], (FORMAT_CODES[job.format], job.payload, number))
    transaction.tally.moved(tenant, topic, task, state, new_state)
    transaction.ready_topics.add(topic)
    return Enqueued(held, number, created_at, run_at, duplicate=True, replaced=True)


def _limit_problem(transaction: Transaction, jobs: Sequence[NewJob], rows: list[Row]) -> LimitExceeded | None:
    """Whether these jobs would pass a limit, counting what this transaction has not written yet."""
    limits, execute = transaction.limits, transaction.connection.execute
    if not limits.max_topics and not limits.max_jobs_per_topic:
        return None
    added: Counter[str] = Counter()
    keys = set()
    for job in jobs:
        key = (job.tenant, job.task or job.topic, job.key)
        if job.key is not None:
            if key in keys or execute(_sql["key_taken"], key).fetchone()[0]:
                continue  # a duplicate adds nothing
            keys.add(key)
        added[job.topic] += 1
    unwritten = Counter(row[TOPIC] for row in rows)
    return limit_problem(
        limits,
        added,
        topics=lambda: {row[0] for row in execute(_sql["topics_with_jobs"])} | unwritten.keys(),
        active=lambda topic: execute(_sql["count_active"], (topic,)).fetchone()[0] + unwritten[topic],
    )


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else seconds_to_microseconds(seconds)
