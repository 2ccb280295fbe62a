"""Reports for operators: topics, statistics, lanes, durations, failures, repeats and running jobs.

Statistics come from counters, so their cost does not depend on the number of jobs. Every other query is
bounded: beyond 10,000 lanes or passed-over jobs, for example, the oldest waiting job is approximate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from operator import add
from typing import Any, Final

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.conditions import asked
from tidewheel.core.model import Distribution, JobFilter, JobRecord, MinuteStats, State, Stats, TopicStats
from tidewheel.core.reports import Failures, LaneDurations, RepeatGroup, Repeats, TaskStats
from tidewheel.stores.postgres import job_queries
from tidewheel.stores.postgres.database import Database, Record
from tidewheel.stores.postgres.job_queries import Search
from tidewheel.stores.postgres.query_plan import Selecting
from tidewheel.stores.postgres.row_mapping import record
from tidewheel.stores.protocol import (
    COMPARED_PAYLOAD_BYTES,
    LANE_MINUTES_KEPT_SECONDS,
    MAX_LOOKED_AT,
    MINUTES_KEPT_SECONDS,
    TREND_PARTS,
)
from tidewheel.stores.reports import (
    Alike,
    Failed,
    FailureGroups,
    Happened,
    LaneName,
    add_series,
    between_others,
    found_repeats,
    summarise,
    summarise_lanes,
    told_lanes,
    with_series,
)
from tidewheel.stores.sql_files import Queries

_sql = Queries("tidewheel.stores.postgres", "sql/reports.sql")
_read_sql = Queries("tidewheel.stores.postgres", "sql/job_queries.sql")
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
        now = await connection.fetchval(database.qualify(_sql["begin_snapshot"]), database.now)
        yield _Asking(database, connection, int(now))


async def lanes(database: Database, window_seconds: float, tenant: str | None) -> list[TaskStats]:
    async with _asking(database, tenant) as asking:
        counts = await _lane_counts(asking, tenant)
        if tenant is not None:
            return told_lanes(counts, None)
        since = asking.now - seconds_to_microseconds(min(window_seconds, LANE_MINUTES_KEPT_SECONDS))
        happened = {
            (topic, task): Happened(*numbers)
            for topic, task, *numbers in await asking.fetch("lane_events", since, asking.now)
        }
        found = told_lanes(counts, happened)
        minutes: dict[LaneName, dict[int, Happened]] = {}
        if wanted := with_series(found):
            rows = await asking.fetch(
                "lane_minutes", since, asking.now, *map(list, zip(*wanted, strict=True))
            )
            for topic, task, *columns in rows:
                minutes[topic, task] = {
                    minute: Happened(*events) for minute, *events in zip(*columns, strict=True)
                }
    return add_series(found, minutes)


async def _lane_counts(asking: _Asking, tenant: str | None) -> dict[LaneName, TaskStats]:
    [columns] = await asking.fetch("lane_counts", asking.now, tenant)
    late: dict[LaneName, int] = {}
    if any(columns["o_waiting"]):
        rows = await asking.fetch("unpromoted_by_lane", asking.now, tenant, MAX_LOOKED_AT)
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
        now = await job_queries.pin(database, connection)
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

        keyed = await look("duplicate_keys", MAX_LOOKED_AT)
        alike = await look(
            "duplicate_payloads" if of_all else "duplicate_payloads_of_tenant",
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


_stats_sql = Queries("tidewheel.stores.postgres", "sql/statistics.sql")

FIRST_LOOK: Final = 1000
"""Among so many of the oldest jobs the longest wait is looked for first, if there are many lanes."""
MAX_LEVELS: Final = 10_000
"""Looks for the oldest job, one per lane and priority; with more levels the answer is approximate."""
MAX_STEPS: Final = 10_000
"""How many jobs that had been delayed, or are others', are passed over; with more it is approximate, too."""

FEW_JOBS: Final = 20_000
"""So many jobs of a tenant are looked at one by one. With more, some are near the head of each lane."""

_EVENTS: Final = ("enqueued", "completed", "failed", "cancelled", "retried")  # by metric
_RUN_TIME: Final = 5
_WAIT_TIME: Final = 6

_Columns = Sequence[Sequence[int]]


async def topics(database: Database, tenant: str | None) -> list[TopicStats]:
    [row] = await database.fetch_for(tenant, _stats_sql["lanes"], database.now, tenant)
    names, *counts, paused, paused_until = row
    pauses = dict(zip(paused, paused_until, strict=True))
    return _by_topic(names, counts, pauses, pauses_alone=tenant is None)


async def stats(database: Database, window_seconds: float, tenant: str | None) -> Stats:
    window = seconds_to_microseconds(min(window_seconds, MINUTES_KEPT_SECONDS))
    [row] = await database.fetch_for(
        tenant, _stats_sql["stats"], database.now, window, tenant, FEW_JOBS, FIRST_LOOK, MAX_LEVELS, MAX_STEPS
    )
    names, *counts = row[:7]
    paused, paused_until, delayed, oldest_due_at, *happened = row[7:]
    pauses = dict(zip(paused, paused_until, strict=True))
    series, times = _minutes(happened) if tenant is None else ([], {})
    waiting, ready, running, completed, failed, cancelled = map(sum, counts)
    return Stats(
        pending=waiting + ready,
        running=running,
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        delayed=delayed,
        oldest_due_at=oldest_due_at,
        topics=tuple(_by_topic(names, counts, pauses, pauses_alone=tenant is None)),
        window_seconds=window_seconds,
        run_time=times.get(_RUN_TIME, Distribution()),
        wait_time=times.get(_WAIT_TIME, Distribution()),
        series=tuple(series),
    )


def _by_topic(
    names: Sequence[str], counts: _Columns, pauses: dict[str, int], *, pauses_alone: bool
) -> list[TopicStats]:
    """From counts by lane, each a column; with topics that have nothing but a pause, or without them."""
    found: dict[str, list[int]] = {topic: [0] * 6 for topic in pauses} if pauses_alone else {}
    for topic, *of_lane in zip(names, *counts, strict=True):
        of_topic = found.get(topic)
        found[topic] = of_lane if of_topic is None else list(map(add, of_topic, of_lane))
    # Sorted here: the database may know an alphabet of its own.
    return [
        TopicStats(topic, waiting + ready, running, completed, failed, cancelled, pauses.get(topic))
        for topic, (waiting, ready, running, completed, failed, cancelled) in sorted(found.items())
    ]


def _minutes(columns: _Columns) -> tuple[list[MinuteStats], dict[int, Distribution]]:
    series: defaultdict[int, Counter[str]] = defaultdict(Counter)
    buckets: defaultdict[int, Counter[int]] = defaultdict(Counter)
    totals: Counter[int] = Counter()
    for minute, metric, bucket, n, total in zip(*columns, strict=True):
        if metric >= _RUN_TIME:
            buckets[metric][bucket] += n
            totals[metric] += total
        else:
            series[minute][_EVENTS[metric]] += n
    times = {metric: summarise(counts, totals[metric]) for metric, counts in buckets.items()}
    return [MinuteStats(minute, **series[minute]) for minute in sorted(series)], times
