"""Get, list and count. Lists never touch bodies, unless a condition looks into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tidewheel.conditions import asked
from tidewheel.model import Count, JobFilter, JobRecord, Page, State
from tidewheel.stores.postgres.counting import counted
from tidewheel.stores.postgres.database import Database, Statements
from tidewheel.stores.postgres.recording import STATES, full_record, record
from tidewheel.stores.postgres.searching import Found, Search
from tidewheel.stores.postgres.selecting import Selecting
from tidewheel.stores.protocol import COUNT_LIMIT
from tidewheel.stores.queries import Queries

_sql = Queries("tidewheel.stores.postgres.sql", "read.sql")
_get = _sql["get"].replace("{columns}", _sql["columns"]).replace("{after}", _sql["after"])
_records = _sql["records"].replace("{columns}", _sql["columns"])


async def get(database: Statements, job_id: UUID, tenant: str | None) -> JobRecord | None:
    rows = await database.fetch_for(tenant, _get, job_id, tenant)
    return full_record(rows[0]) if rows else None


async def states(database: Database, job_ids: Sequence[UUID], tenant: str | None) -> list[State | None]:
    if not job_ids:
        return []
    rows = await database.fetch_for(tenant, _sql["states"], list(job_ids), tenant)
    return [None if row[0] is None else STATES[row[0]] for row in rows]


async def list_jobs(
    database: Database, where: JobFilter, *, limit: int, cursor: int | None, offset: int
) -> Page:
    async with database.transaction(where.tenant) as connection:
        now = await pin(database, connection)
        if (condition := asked(where)) is not None:
            search = Search(database, connection, where, condition, now)
            found = await search.find(limit=limit, cursor=cursor, offset=offset)
        else:
            # One more than asked for, to know whether there is a next page.
            selecting = Selecting(database, connection, where, now)
            selection = await selecting.select(offset + limit + 1)
            numbers = await selection.numbers(limit + 1, cursor, offset)
            further = numbers[limit - 1] if 0 < limit < len(numbers) else None
            found = Found(numbers[:limit], cursor=further)
        rows = await connection.fetch(database.qualify(_records), found.numbers) if found.numbers else []
    items = sorted((record(row) for row in rows), key=lambda item: item.number, reverse=True)
    return Page(tuple(items), found.cursor, found.partial, found.searched_back_to)


async def count(database: Database, where: JobFilter, *, beyond: bool) -> Count:
    async with database.transaction(where.tenant) as connection:
        now = await pin(database, connection)
        total = await counted(database, connection, where)
        if total is not None and beyond:
            return Count(total)
        if total is None:
            if (condition := asked(where)) is not None:
                search = Search(database, connection, where, condition, now)
                found = await search.find(limit=COUNT_LIMIT, cursor=None, offset=0)
                return Count(len(found.numbers), exact=found.cursor is None)
            # Nothing is put in order, so one lane after another is read until there are enough.
            selection = await Selecting(database, connection, where, now).select(1)
            total = await selection.count(COUNT_LIMIT + 1)
    return Count(min(total, COUNT_LIMIT), exact=total <= COUNT_LIMIT)


async def pin(database: Database, connection: Any) -> int:
    """Settings for this transaction, and its time."""
    return int(await connection.fetchval(database.qualify(_sql["pin"]), database.now))
