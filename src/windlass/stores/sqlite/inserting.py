"""New jobs into their tables: many rows with few statements."""

from __future__ import annotations

import functools
import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

from windlass.model import BodyFormat, KeyLifetime, NewJob
from windlass.stores.columns import Column, columns_of, microseconds, shared, spread
from windlass.stores.queries import Queries
from windlass.stores.sqlite.transaction import Code, Metric, Transaction

_sql = Queries("windlass.stores.sqlite.sql", "enqueue.sql")

MOST_ROWS: Final = 128
"""Of one statement. Fewer rows go in powers of two, so that few statements have to be prepared."""

KEY_UNTIL: Final = {KeyLifetime.PRUNED: 0, KeyLifetime.FINISHED: 1}
FORMAT_CODES: Final = {BodyFormat.JSON: 0, BodyFormat.BYTES: 1}

_WAITING: Final = Code.WAITING.value
_READY: Final = Code.READY.value
_ENQUEUED: Final = Metric.ENQUEUED


NewRow = tuple[NewJob, int, int, int | None]
"""A job that is to be written with its number, when it is due and when it expires."""


def insert(transaction: Transaction, rows: Sequence[NewRow]) -> None:
    """Write these jobs, count them, and remember whom to wake."""
    if not rows:
        return
    number = len(rows)
    jobs, numbers, due, expires_ats = zip(*rows, strict=True)
    of = columns_of(jobs)
    now = transaction.now
    run_ats = shared(due)
    states = [_WAITING if run_at > now else _READY for run_at in run_ats]
    _insert_columns(
        transaction.connection,
        "insert_job",
        number,
        (
            numbers,
            [job_id.bytes for job_id in of["id"]],
            states,
            of["topic"],
            of["task"],
            of["tenant"],
            of["priority"],
            run_ats,
            (now,),
            of["max_attempts"],
            microseconds(of["timeout"]),
            microseconds(of["lease_seconds"]),
            microseconds(of["retention"]),
            microseconds(of["retention_failed"]),
            shared(expires_ats),
            of["retry"],
            of["key"],
            shared([None if job.key is None else KEY_UNTIL[job.key_until] for job in jobs]),
            of["correlation_id"],
            of["user_id"],
            of["service_id"],
            of["trace"],
        ),
    )
    formats = [FORMAT_CODES[body_format] for body_format in of["format"]]
    _insert_columns(transaction.connection, "insert_body", number, (numbers, formats, of["payload"]))
    _count(transaction, number, of["tenant"], of["topic"], of["task"], states)


def _count(
    transaction: Transaction, number: int, tenants: Column, topics: Column, tasks: Column, states: Column
) -> None:
    if len(tenants) == len(topics) == len(tasks) == len(states) == 1:
        lanes = {(tenants[0], topics[0], tasks[0], states[0]): number}
    else:
        columns = [spread(column, number) for column in (tenants, topics, tasks, states)]
        lanes = Counter(zip(*columns, strict=True))
    for (tenant, topic, task, state), n in lanes.items():
        transaction.tally.moved(tenant, topic, task, None, state, n)
        transaction.tally.happened(transaction.now, _ENQUEUED, n)
        # Also for delayed jobs: a sleeping worker has to learn when to get up.
        transaction.ready_topics.add(topic)


def _insert_columns(
    connection: sqlite3.Connection, name: str, number: int, columns: Sequence[Column]
) -> None:
    """Many rows in few steps. After each step of ``executemany`` this thread would have to fight the event
    loop for the interpreter; a statement with a hundred rows is one step.
    """
    start = 0
    while start < number:
        size = min(MOST_ROWS, 1 << (number - start).bit_length() - 1)
        part = [column if len(column) == 1 else column[start : start + size] for column in columns]
        statement = _statement(name, size, tuple(map(len, part)))
        connection.execute(statement, tuple(chain.from_iterable(part)))
        start += size


@functools.lru_cache(256)
def _statement(name: str, number: int, lengths: tuple[int, ...]) -> str:
    """The statement for so many rows whose parameters come column by column; shared values are bound once."""
    head, _, _ = _sql[name].partition("VALUES ")
    firsts = [1 + sum(lengths[:column]) for column in range(len(lengths))]
    rows = (
        ", ".join(
            f"?{first + row if length > 1 else first}" for first, length in zip(firsts, lengths, strict=True)
        )
        for row in range(number)
    )
    return head + "VALUES " + ", ".join(f"({row})" for row in rows)
