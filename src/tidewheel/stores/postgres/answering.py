"""What operators ask: lanes, durations, failures, repeats, running jobs. All bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from tidewheel.clock import seconds_to_microseconds
from tidewheel.conditions import asked
from tidewheel.findings import Failures, LaneDurations, RepeatGroup, Repeats, TaskStats
from tidewheel.model import JobFilter, JobRecord, State
from tidewheel.stores.grouping import (
    Alike,
    Failed,
    FailureGroups,
    Happened,
    LaneName,
    add_series,
    between_others,
    found_repeats,
    summarise_lanes,
    told_lanes,
    with_series,
)
from tidewheel.stores.postgres import reading
from tidewheel.stores.postgres.database import Database, Record
from tidewheel.stores.postgres.recording import record
from tidewheel.stores.postgres.searching import Search
from tidewheel.stores.postgres.selecting import Selecting
from tidewheel.stores.protocol import (
    COMPARED_PAYLOAD_BYTES,
    LANE_MINUTES_KEPT_SECONDS,
    MAX_LOOKED_AT,
    TREND_PARTS,
)
from tidewheel.stores.queries import Queries

_sql = Queries("tidewheel.stores.postgres.sql", "answer.sql")
_read_sql = Queries("tidewheel.stores.postgres.sql", "read.sql")
_longest_running = _sql["longest_running"].replace("{columns}", _read_sql["columns"])


@dataclass(frozen=True, slots=True)
class _Asking:
    """One transaction of one moment, whose statements are found by name."""

    database: Database
    connection: Any
    now: int

    async def fetch(self, name: str, *values: object) -> list[Record]:
        return await self.run(_sql[name], *values)

    async def run(self, statement: str, *values: object) -> list[Record]:
        for part in ("changes", "newest", "newest_of_tenant"):
            statement = statement.replace(f"{{{part}}}", _sql[part])
        rows: list[Record] = await self.connection.fetch(self.database.qualify(statement), *values)
        return rows


@asynccontextmanager
async def _asking(database: Database, tenant: str | None) -> AsyncIterator[_Asking]:
    async with database.transaction(tenant) as connection:
        now = await connection.fetchval(database.qualify(_sql["pin"]), database.now)
        yield _Asking(database, connection, int(now))


async def lanes(database: Database, window_seconds: float, tenant: str | None) -> list[TaskStats]:
    async with _asking(database, tenant) as asking:
        counts = await _lane_counts(asking, tenant)
        if tenant is not None:
            return told_lanes(counts, None)
        since = asking.now - seconds_to_microseconds(min(window_seconds, LANE_MINUTES_KEPT_SECONDS))
        happened = {
            (topic, task): Happened(*numbers)
            for topic, task, *numbers in await asking.fetch("happened", since)
        }
        found = told_lanes(counts, happened)
        minutes: dict[LaneName, dict[int, Happened]] = {}
        if wanted := with_series(found):
            rows = await asking.fetch("minutes", since, *map(list, zip(*wanted, strict=True)))
            for topic, task, *columns in rows:
                minutes[topic, task] = {
                    minute: Happened(*events) for minute, *events in zip(*columns, strict=True)
                }
    return add_series(found, minutes)


async def _lane_counts(asking: _Asking, tenant: str | None) -> dict[LaneName, TaskStats]:
    [columns] = await asking.fetch("lane_counts", asking.now, tenant)
    late: dict[LaneName, int] = {}
    if any(columns["o_waiting"]):
        rows = await asking.fetch("due_but_waiting", asking.now, tenant, MAX_LOOKED_AT)
        late = {(topic, task): n for topic, task, n in rows}
    return {
        (topic, task): TaskStats(topic, task, waiting + ready, ready + late.get((topic, task), 0), *others)
        for topic, task, waiting, ready, *others in zip(*columns, strict=True)
    }


async def durations(database: Database, tenant: str | None) -> list[LaneDurations]:
    name = "durations_of_tenant" if between_others(tenant) else "durations"
    async with _asking(database, tenant) as asking:
        rows = await asking.fetch(name, tenant, MAX_LOOKED_AT)
    return summarise_lanes({(topic, task): (runs, waits) for topic, task, runs, waits in rows})


async def find_failures(
    database: Database, where: JobFilter, *, window_seconds: float, limit: int
) -> Failures:
    where = replace(where, state=State.FAILED)
    window = seconds_to_microseconds(window_seconds)
    async with database.transaction(where.tenant) as connection:
        now = await reading.pin(database, connection)
        if (condition := asked(where)) is not None:  # it may take a search
            search = Search(database, connection, where, condition, now)
            found = await search.find(limit=MAX_LOOKED_AT, cursor=None, offset=0)
            numbers, further = found.numbers, found.cursor is not None
        else:
            selection = await Selecting(database, connection, where, now).select(MAX_LOOKED_AT + 1)
            numbers = await selection.numbers(MAX_LOOKED_AT + 1, None)
            further = len(numbers) > MAX_LOOKED_AT
        asking = _Asking(database, connection, now)
        rows = await asking.fetch("failures", numbers[:MAX_LOOKED_AT], now - window, TREND_PARTS, window)
        groups = FailureGroups([Failed._make(row) for row in rows], limit)
        ids = dict(await asking.fetch("ids", groups.numbers))
    return groups.told(ids, complete=not further)


async def repeats(database: Database, limit: int, tenant: str | None) -> Repeats:
    of_all = not between_others(tenant)
    newest = "{newest}" if of_all else "{newest_of_tenant}"
    async with _asking(database, tenant) as asking:

        async def look(name: str, *values: object) -> list[Record]:
            return await asking.run(_sql[name].replace("{newest}", newest), tenant, *values)

        keyed = await look("repeated_keys", MAX_LOOKED_AT)
        alike = await look(
            "repeated_payloads" if of_all else "repeated_payloads_of_tenant",
            MAX_LOOKED_AT,
            COMPARED_PAYLOAD_BYTES,
        )
        [counts] = await asking.fetch("lane_counts", asking.now, tenant)
    _, _, waiting, ready, *others = counts
    pending = sum(waiting) + sum(ready)
    return found_repeats(
        map(_alike, keyed),
        map(_alike, alike),
        limit,
        tenant=tenant,
        jobs=pending + sum(map(sum, others)),
        pending=pending,
    )


def _alike(row: Record) -> Alike:
    number, count, tenant, topic, task, key, newest, oldest = row
    return Alike(number, RepeatGroup(tenant, topic, task, key, count, newest, oldest))


async def longest_running(database: Database, limit: int, tenant: str | None) -> list[JobRecord]:
    async with _asking(database, tenant) as asking:
        rows = await asking.run(_longest_running, tenant, limit)
    return [record(row) for row in rows]
