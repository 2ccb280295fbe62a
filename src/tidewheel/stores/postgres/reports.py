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
from tidewheel.core.conditions import unindexed_condition
from tidewheel.core.model import JobFilter, JobRecord, State
from tidewheel.core.reports import (
    Distribution,
    DuplicateJobGroup,
    DuplicateJobs,
    FailureGroups,
    LaneDurations,
    MinuteStats,
    Stats,
    TaskStats,
    TopicStats,
)
from tidewheel.stores.bounds import (
    LANE_MINUTES_KEPT_SECONDS,
    MAX_COMPARED_PAYLOAD_BYTES,
    MAX_SCANNED_JOBS,
    MINUTES_KEPT_SECONDS,
    TREND_BUCKETS,
)
from tidewheel.stores.postgres import job_queries
from tidewheel.stores.postgres.database import Database, Record
from tidewheel.stores.postgres.job_queries import JobSearch
from tidewheel.stores.postgres.query_plan import QueryPlanner
from tidewheel.stores.postgres.row_mapping import record
from tidewheel.stores.reports import (
    DuplicateGroup,
    FailedJobs,
    FailureGrouper,
    LaneEvents,
    LaneName,
    add_series,
    group_duplicates,
    has_tenant_index,
    lanes_with_series,
    select_lanes,
    summarise_buckets,
    summarise_lanes,
)
from tidewheel.stores.sql_files import SqlFile

_sql = SqlFile("tidewheel.stores.postgres", "sql/reports.sql")
_read_sql = SqlFile("tidewheel.stores.postgres", "sql/job_queries.sql")
_longest_running = _sql["longest_running"].replace("{columns}", _read_sql["columns"])


@dataclass(frozen=True, slots=True)
class _ReportQuery:
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
async def _report_query(database: Database, tenant: str | None) -> AsyncIterator[_ReportQuery]:
    async with database.transaction(tenant) as connection:
        now = await connection.fetchval(database.qualify(_sql["begin_snapshot"]), database.now)
        yield _ReportQuery(database, connection, int(now))


async def lanes(database: Database, window_seconds: float, tenant: str | None) -> list[TaskStats]:
    async with _report_query(database, tenant) as asking:
        counts = await _lane_counts(asking, tenant)
        if tenant is not None:
            return select_lanes(counts, None)
        since = asking.now - seconds_to_microseconds(min(window_seconds, LANE_MINUTES_KEPT_SECONDS))
        happened = {
            (topic, task): LaneEvents(*numbers)
            for topic, task, *numbers in await asking.fetch("lane_events", since, asking.now)
        }
        found = select_lanes(counts, happened)
        minutes: dict[LaneName, dict[int, LaneEvents]] = {}
        if wanted := lanes_with_series(found):
            rows = await asking.fetch(
                "lane_minutes", since, asking.now, *map(list, zip(*wanted, strict=True))
            )
            for topic, task, *columns in rows:
                minutes[topic, task] = {
                    minute: LaneEvents(*events) for minute, *events in zip(*columns, strict=True)
                }
    return add_series(found, minutes)


async def _lane_counts(asking: _ReportQuery, tenant: str | None) -> dict[LaneName, TaskStats]:
    [columns] = await asking.fetch("lane_counts", asking.now, tenant)
    late: dict[LaneName, int] = {}
    if any(columns["o_waiting"]):
        rows = await asking.fetch("unpromoted_by_lane", asking.now, tenant, MAX_SCANNED_JOBS)
        late = {(topic, task): n for topic, task, n in rows}
    return {
        (topic, task): TaskStats(topic, task, waiting + ready, ready + late.get((topic, task), 0), *others)
        for topic, task, waiting, ready, *others in zip(*columns, strict=True)
    }


async def durations(database: Database, tenant: str | None) -> list[LaneDurations]:
    name = "durations_of_tenant" if has_tenant_index(tenant) else "durations"
    async with _report_query(database, tenant) as asking:
        rows = await asking.fetch(name, tenant, MAX_SCANNED_JOBS)
    return summarise_lanes({(topic, task): (runs, waits) for topic, task, runs, waits in rows})


async def failures(
    database: Database, where: JobFilter, *, window_seconds: float, limit: int
) -> FailureGroups:
    where = replace(where, state=State.FAILED)
    window = seconds_to_microseconds(window_seconds)
    async with database.transaction(where.tenant) as connection:
        now = await job_queries.begin_snapshot(database, connection)
        if (condition := unindexed_condition(where)) is not None:  # it may take a search
            search = JobSearch(database, connection, where, condition, now)
            found = await search.find(limit=MAX_SCANNED_JOBS, cursor=None, offset=0)
            numbers, further = found.numbers, found.cursor is not None
        else:
            selection = await QueryPlanner(database, connection, where, now).plan(MAX_SCANNED_JOBS + 1)
            numbers = await selection.numbers(MAX_SCANNED_JOBS + 1, None)
            further = len(numbers) > MAX_SCANNED_JOBS
        asking = _ReportQuery(database, connection, now)
        rows = await asking.fetch("failures", numbers[:MAX_SCANNED_JOBS], now - window, TREND_BUCKETS, window)
        groups = FailureGrouper([FailedJobs._make(row) for row in rows], limit)
        ids = dict(await asking.fetch("ids", groups.numbers))
    return groups.to_failures(ids, complete=not further)


async def duplicate_jobs(database: Database, limit: int, tenant: str | None) -> DuplicateJobs:
    of_all = not has_tenant_index(tenant)
    newest = "{newest}" if of_all else "{newest_of_tenant}"
    async with _report_query(database, tenant) as asking:

        async def look(name: str, *values: object) -> list[Record]:
            return await asking.run(_sql[name].replace("{newest}", newest), tenant, *values)

        keyed = await look("duplicate_keys", MAX_SCANNED_JOBS)
        alike = await look(
            "duplicate_payloads" if of_all else "duplicate_payloads_of_tenant",
            MAX_SCANNED_JOBS,
            MAX_COMPARED_PAYLOAD_BYTES,
        )
        [counts] = await asking.fetch("lane_counts", asking.now, tenant)
    _, _, waiting, ready, *others = counts
    pending = sum(waiting) + sum(ready)
    return group_duplicates(
        map(_duplicate_group, keyed),
        map(_duplicate_group, alike),
        limit,
        tenant=tenant,
        jobs=pending + sum(map(sum, others)),
        pending=pending,
    )


def _duplicate_group(row: Record) -> DuplicateGroup:
    number, count, tenant, topic, task, key, newest, oldest = row
    return DuplicateGroup(number, DuplicateJobGroup(tenant, topic, task, key, count, newest, oldest))


async def longest_running(database: Database, limit: int, tenant: str | None) -> list[JobRecord]:
    async with _report_query(database, tenant) as asking:
        rows = await asking.run(_longest_running, tenant, limit)
    return [record(row) for row in rows]


_stats_sql = SqlFile("tidewheel.stores.postgres", "sql/statistics.sql")

FIRST_SAMPLE: Final = 1000
"""Among so many of the oldest jobs the longest wait is looked for first, if there are many lanes."""
MAX_LEVELS: Final = 10_000
"""Looks for the oldest job, one per lane and priority; with more levels the answer is approximate."""
MAX_STEPS: Final = 10_000
"""How many jobs that had been delayed, or are others', are passed over; with more it is approximate, too."""

MAX_SCANNED_OF_TENANT: Final = 20_000
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
        tenant,
        _stats_sql["stats"],
        database.now,
        window,
        tenant,
        MAX_SCANNED_OF_TENANT,
        FIRST_SAMPLE,
        MAX_LEVELS,
        MAX_STEPS,
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
    times = {metric: summarise_buckets(counts, totals[metric]) for metric, counts in buckets.items()}
    return [MinuteStats(minute, **series[minute]) for minute in sorted(series)], times
