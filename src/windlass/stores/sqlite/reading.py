"""Reads on a connection that cannot write. Lists never touch bodies, unless a text is searched."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from windlass.model import Count, JobFilter, JobRecord, Lease, Page, Shown, State, StepRecord
from windlass.stores.protocol import COUNT_LIMIT, SEARCH_SECONDS
from windlass.stores.queries import Queries
from windlass.stores.sqlite.recording import COLUMN_COUNT, STATES, full_record, record
from windlass.stores.sqlite.scoping import find

_sql = Queries("windlass.stores.sqlite.sql", "read.sql")
_settle_sql = Queries("windlass.stores.sqlite.sql", "settle.sql")

# Written so that the planner recognises the partial indexes.
_STATE_CONDITIONS = {
    State.PENDING: "j.state < 2",
    State.RUNNING: "j.state = 2",
    State.COMPLETED: "j.state = 3",
    State.FAILED: "j.state = 4 AND j.state > 3",
    State.CANCELLED: "j.state = 5 AND j.state > 3",
    Shown.DELAYED: "j.state < 2 AND j.state = 0 AND j.blocked = 0 AND j.run_at > :now",
    Shown.RETRYING: "j.state < 2 AND j.attempt > 0",
    Shown.BLOCKED: "j.blocked > 0 AND j.state = 0",
    Shown.CLAIMED: "j.state = 2 AND j.started_at IS NULL",
}


def get(connection: sqlite3.Connection, job_id: UUID, tenant: str | None) -> JobRecord | None:
    row = find(connection, _sql["get"], tenant, (job_id.bytes,), columns=_sql["columns"]).fetchone()
    if row is None:
        return None
    attempts = connection.execute(_sql["attempts"], (row[1],)).fetchall()
    return full_record(row, attempts, _steps_of(connection, row[1]))


def states(connection: sqlite3.Connection, job_ids: Sequence[UUID], tenant: str | None) -> list[State | None]:
    answers: list[State | None] = []
    for job_id in job_ids:
        row = find(connection, _sql["state"], tenant, (job_id.bytes,)).fetchone()
        answers.append(None if row is None else STATES[row[0]])
    return answers


def steps(connection: sqlite3.Connection, lease: Lease, now: int) -> tuple[StepRecord, ...] | None:
    # Nobody but the holder of the lease adds to them, so they may be read after it was found to hold.
    row = connection.execute(_settle_sql["leased"], (lease.job_id.bytes, lease.fence, now)).fetchone()
    return None if row is None else _steps_of(connection, row[0])


def _steps_of(connection: sqlite3.Connection, number: int) -> tuple[StepRecord, ...]:
    return tuple([StepRecord(*row) for row in connection.execute(_sql["steps"], (number,))])


def cancel_requests(connection: sqlite3.Connection, leases: Sequence[Lease], now: int) -> list[Lease]:
    asked = {(row[0], row[1]) for row in connection.execute(_settle_sql["cancelling"], (now,))}
    return [lease for lease in leases if (lease.job_id.bytes, lease.fence) in asked] if asked else []


def list_jobs(
    connection: sqlite3.Connection, where: JobFilter, *, limit: int, cursor: int | None, offset: int, now: int
) -> Page:
    conditions, values = conditions_of(connection, where, now)
    if cursor is not None:
        conditions += " AND j.number < ?"
        values.append(cursor)
    if where.text:
        return _search(connection, conditions, values, where, limit=limit, offset=offset)
    parts = {"columns": _sql["columns"], "hint": hint_for(where), "conditions": conditions}
    # One more than asked for, to know whether there is a next page.
    rows = find(connection, _sql["page"], where.tenant, (*values, limit + 1, offset), **parts).fetchall()
    items = tuple(record(row) for row in rows[:limit])
    return Page(items, cursor=items[-1].number if len(rows) > limit else None)


def hint_for(where: JobFilter) -> str:
    """What leaves few jobs is looked for first, whatever else they have to be.

    A tenant may have a million of them, and running ones are mostly old: walking from the newest would find
    them last.
    """
    if where.key is not None:
        return "INDEXED BY windlass_jobs_key"
    if where.correlation_id is not None:
        return "INDEXED BY windlass_jobs_correlation"
    return "INDEXED BY windlass_jobs_leased" if where.state in (State.RUNNING, Shown.CLAIMED) else ""


def _search(
    connection: sqlite3.Connection,
    conditions: str,
    values: list[object],
    where: JobFilter,
    *,
    limit: int,
    offset: int,
) -> Page:
    """Look into payloads and errors, newest first, for at most a second."""
    deadline = time.monotonic() + SEARCH_SECONDS
    text = where.text or ""
    needle = text.encode()
    items: list[JobRecord] = []
    last: tuple[Any, ...] | None = None
    parts = {"columns": _sql["columns"], "hint": hint_for(where), "conditions": conditions}
    rows = find(connection, _sql["scan"], where.tenant, values, **parts)
    for position, row in enumerate(rows):
        errors = (row[24], row[COLUMN_COUNT + 2])
        if needle in row[COLUMN_COUNT + 1] or any(error is not None and text in error for error in errors):
            if offset:
                offset -= 1
            elif len(items) == limit:
                rows.close()
                return Page(tuple(items), cursor=items[-1].number)
            else:
                items.append(record(row))
        last = row
        if position % 100 == 99 and time.monotonic() > deadline:
            rows.close()
            return Page(tuple(items), cursor=last[1], partial=True, searched_back_to=last[9])
    return Page(tuple(items))


def count(connection: sqlite3.Connection, where: JobFilter, now: int) -> Count:
    if where.text:
        page = list_jobs(connection, where, limit=COUNT_LIMIT, cursor=None, offset=0, now=now)
        return Count(len(page.items), exact=page.cursor is None)
    conditions, values = conditions_of(connection, where, now)
    parts = {"hint": hint_for(where), "conditions": conditions}
    [total] = find(connection, _sql["count"], where.tenant, (*values, COUNT_LIMIT + 1), **parts).fetchone()
    return Count(min(total, COUNT_LIMIT), exact=total <= COUNT_LIMIT)


def conditions_of(connection: sqlite3.Connection, where: JobFilter, now: int) -> tuple[str, list[object]]:
    """A filter as SQL, its tenant aside. Every value is a parameter; only fixed text is put together."""
    parts: list[str] = ["1"]
    values: list[object] = []

    def add(condition: str, value: object) -> None:
        parts.append(condition)
        values.append(value)

    if where.state is not None:
        condition = _STATE_CONDITIONS[where.state]
        if ":now" in condition:
            add(condition.replace(":now", "?"), now)
        else:
            parts.append(condition)
    if where.topic is not None:
        add("j.topic = ?", where.topic)
    if where.task is not None:
        add("j.task = ?", where.task)
        if where.topic is None:
            # A task nearly always lives in one topic, and topics are indexed.
            topics = [row[0] for row in connection.execute(_sql["topics_of_task"], (where.task,))]
            if len(topics) == 1:
                add("j.topic = ?", topics[0])
    if where.key is not None:
        add("j.key = ?", where.key)
    if where.correlation_id is not None:
        add("j.correlation_id = ?", where.correlation_id)
    if where.created_after is not None:
        add("j.created_at >= ?", where.created_after)
    if where.created_before is not None:
        add("j.created_at < ?", where.created_before)
    return " AND ".join(parts), values
