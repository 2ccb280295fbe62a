"""Reads on a connection that cannot write. Lists never touch bodies, unless a condition looks into them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from msgspec import structs

from tidewheel.conditions import asked
from tidewheel.model import Count, JobFilter, JobRecord, Lease, Page, State, StepRecord
from tidewheel.stores.protocol import COUNT_LIMIT
from tidewheel.stores.queries import Queries
from tidewheel.stores.sqlite.depending import parents_of
from tidewheel.stores.sqlite.looking import Looking
from tidewheel.stores.sqlite.recording import STATES, full_record, record
from tidewheel.stores.sqlite.scoping import find
from tidewheel.stores.sqlite.selecting import counted, select

_sql = Queries("tidewheel.stores.sqlite.sql", "read.sql")
_settle_sql = Queries("tidewheel.stores.sqlite.sql", "settle.sql")


def get(connection: sqlite3.Connection, job_id: UUID, tenant: str | None) -> JobRecord | None:
    row = find(connection, _sql["get"], tenant, (job_id.bytes,), columns=_sql["columns"]).fetchone()
    if row is None:
        return None
    return told(connection, row)


def told(connection: sqlite3.Connection, row: tuple[Any, ...]) -> JobRecord:
    """A row of ``get``, with what is kept in other tables: its last columns say whether there is any."""
    number = row[1]
    attempts = connection.execute(_sql["attempts"], (number,)).fetchall() if row[-3] else []
    full = full_record(row, attempts, steps_of(connection, number) if row[-2] else ())
    if not row[-1]:
        return full
    after, after_any = parents_of(connection, number)
    return structs.replace(full, after=after, after_any=after_any)


def states(connection: sqlite3.Connection, job_ids: Sequence[UUID], tenant: str | None) -> list[State | None]:
    answers: list[State | None] = []
    for job_id in job_ids:
        row = find(connection, _sql["state"], tenant, (job_id.bytes,)).fetchone()
        answers.append(None if row is None else STATES[row[0]])
    return answers


def steps(connection: sqlite3.Connection, lease: Lease, now: int) -> tuple[StepRecord, ...] | None:
    # Nobody but the holder of the lease adds to them, so they may be read after it was found to hold.
    row = connection.execute(_settle_sql["leased"], (lease.job_id.bytes, lease.fence, now)).fetchone()
    return None if row is None else steps_of(connection, row[0])


def steps_of(connection: sqlite3.Connection, number: int) -> tuple[StepRecord, ...]:
    return tuple([StepRecord(*row) for row in connection.execute(_sql["steps"], (number,))])


def cancel_requests(connection: sqlite3.Connection, leases: Sequence[Lease], now: int) -> list[Lease]:
    asked = {(row[0], row[1]) for row in connection.execute(_settle_sql["cancelling"], (now,))}
    return [lease for lease in leases if (lease.job_id.bytes, lease.fence) in asked] if asked else []


def list_jobs(
    connection: sqlite3.Connection, where: JobFilter, *, limit: int, cursor: int | None, offset: int, now: int
) -> Page:
    if (condition := asked(where)) is not None:
        looking = Looking(connection, where, condition, now)
        return looking.page(limit=limit, cursor=cursor, offset=offset)
    wanted = limit + 1  # one more than asked for, to know whether there is a next page
    if where.state is not None and (total := counted(connection, where)) is not None:
        # When all there are have been found, nobody has to walk on to see that.
        wanted = min(wanted, max(total - offset, 0)) if cursor is None or total == 0 else wanted
    source = select(connection, where, now, cursor)
    parts = {"columns": _sql["columns"], "hint": source.hint, "conditions": source.conditions}
    rows = find(connection, _sql["page"], where.tenant, (*source.values, wanted, offset), **parts).fetchall()
    items = tuple(record(row) for row in rows[:limit])
    return Page(items, cursor=items[-1].number if len(rows) > limit else None)


def count(connection: sqlite3.Connection, where: JobFilter, now: int, *, beyond: bool) -> Count:
    total = counted(connection, where)
    if total is not None and beyond:
        return Count(total)
    if total is None:
        if (condition := asked(where)) is not None:
            return Looking(connection, where, condition, now).count()
        source = select(connection, where, now)
        parts = {"hint": source.hint, "conditions": source.conditions}
        values = (*source.values, COUNT_LIMIT + 1)
        [total] = find(connection, _sql["count"], where.tenant, values, **parts).fetchone()
    return Count(min(total, COUNT_LIMIT), exact=total <= COUNT_LIMIT)
