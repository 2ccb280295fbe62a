"""Reports for operators: topics, statistics, lanes, durations, failures, repeats and running jobs.

Statistics come from counters, so their cost does not depend on the number of jobs. Every other query is
bounded: beyond 10,000 lanes or delayed jobs, for example, the oldest waiting job is approximate.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from dataclasses import replace
from heapq import heapify, heappop, heapreplace
from typing import Any
from uuid import UUID

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.conditions import asked
from tidewheel.core.model import (
    ROOT_TENANT,
    Distribution,
    JobFilter,
    JobRecord,
    MinuteStats,
    State,
    Stats,
    TopicStats,
)
from tidewheel.core.reports import Failures, LaneDurations, RepeatGroup, Repeats, TaskStats
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
from tidewheel.stores.sqlite.job_queries import Looking
from tidewheel.stores.sqlite.query_plan import Source, select
from tidewheel.stores.sqlite.row_mapping import record
from tidewheel.stores.sqlite.tenant_scope import find
from tidewheel.stores.sqlite.write_transaction import Code, Metric

_statistics_sql = Queries("tidewheel.stores.sqlite", "sql/statistics.sql")

FIRST_LOOK = 1000
"""Among so many of the oldest pending jobs the longest wait is looked for first."""
FEW_JOBS = 20_000
"""So many jobs of a tenant, finished ones included, are looked at one by one."""
MAX_LEVELS = 10_000
"""Lanes and priorities whose first job is looked at; with more the oldest job is approximate."""
MAX_STEPS = 10_000
"""How many jobs that had been delayed are passed over; with more it is approximate, too."""

_Counts = list[tuple[str, int, int]]
"""Topic, stored state, and how many jobs."""


def topics(connection: sqlite3.Connection, now: int, tenant: str | None) -> list[TopicStats]:
    return _by_topic(connection, now, _counts(connection, tenant), pauses_alone=tenant is None)


def stats(connection: sqlite3.Connection, now: int, window_seconds: float, tenant: str | None) -> Stats:
    counts = _counts(connection, tenant)
    totals: Counter[int] = Counter()
    for _, state, n in counts:
        totals[state] += n
    series: list[MinuteStats] = []
    times: dict[Metric, Distribution] = {}
    if tenant is None:
        since = now - seconds_to_microseconds(min(window_seconds, MINUTES_KEPT_SECONDS))
        series, times = _minutes(connection, since, now)
    return Stats(
        pending=totals[Code.WAITING] + totals[Code.READY],
        running=totals[Code.RUNNING],
        completed=totals[Code.COMPLETED],
        failed=totals[Code.FAILED],
        cancelled=totals[Code.CANCELLED],
        delayed=_delayed(connection, now, tenant, totals[Code.WAITING]),
        oldest_due_at=_oldest_due_at(connection, now, tenant, totals.total()),
        topics=tuple(_by_topic(connection, now, counts, pauses_alone=tenant is None)),
        window_seconds=window_seconds,
        run_time=times.get(Metric.RUN_TIME, Distribution()),
        wait_time=times.get(Metric.WAIT_TIME, Distribution()),
        series=tuple(series),
    )


def _counts(connection: sqlite3.Connection, tenant: str | None) -> _Counts:
    return find(connection, _statistics_sql["counts"], tenant).fetchall()


def _by_topic(
    connection: sqlite3.Connection, now: int, counts: _Counts, *, pauses_alone: bool
) -> list[TopicStats]:
    """With topics that have nothing but a pause, or without them."""
    pauses: dict[str, int] = dict(connection.execute(_statistics_sql["pauses"], (now,)).fetchall())
    found: dict[str, list[int]] = {topic: [0] * len(Code) for topic in pauses} if pauses_alone else {}
    for topic, state, n in counts:
        if n:
            of_topic = found.get(topic)
            if of_topic is None:
                of_topic = found[topic] = [0] * len(Code)
            of_topic[state] = n
    return [
        TopicStats(topic, waiting + ready, running, completed, failed, cancelled, pauses.get(topic))
        for topic, (waiting, ready, running, completed, failed, cancelled) in sorted(found.items())
    ]


def _delayed(connection: sqlite3.Connection, now: int, tenant: str | None, waiting: int) -> int:
    if not waiting:
        return 0
    due = find(connection, _statistics_sql["unpromoted"], tenant, (now,)).fetchone()[0]
    blocked = find(connection, _statistics_sql["blocked"], tenant).fetchone()[0]
    return int(waiting - due - blocked)


def _oldest_due_at(connection: sqlite3.Connection, now: int, tenant: str | None, jobs: int) -> int | None:
    """When the job that has waited longest became due; ``jobs`` is how many there are."""
    if tenant is not None:
        few = tenant != ROOT_TENANT and jobs <= FEW_JOBS
        index = "tidewheel_jobs_tenant" if few else "tidewheel_jobs_pending"
        statement = _statistics_sql["oldest_of_tenant"]
        return find(connection, statement, tenant, (now,), index=index).fetchone()[0]  # type: ignore[no-any-return]
    heads = (
        connection.execute(_statistics_sql["oldest_waiting"], (now,)).fetchone(),
        connection.execute(_statistics_sql["oldest_promoted"]).fetchone(),
        _oldest_prompt(connection),
    )
    return min((row[0] for row in heads if row is not None), default=None)


def _oldest_prompt(connection: sqlite3.Connection) -> tuple[int] | None:
    """Jobs that were never delayed are due in the order of their numbers, so the first has waited longest."""
    statement = _statistics_sql["first_never_delayed"]
    first: tuple[int] | None = connection.execute(statement, (FIRST_LOOK,)).fetchone()
    if first is not None:
        return first
    heads = connection.execute(_statistics_sql["first_of_lanes"], (MAX_LEVELS,)).fetchall()
    heapify(heads)
    for _ in range(MAX_STEPS):
        if not heads:
            break
        number, *level = heads[0]
        run_at, created_at = connection.execute(_statistics_sql["due_times"], (number,)).fetchone()
        if run_at <= created_at:
            return (run_at,)
        following = connection.execute(_statistics_sql["next_of_priority"], (*level, number)).fetchone()
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (*following, *level))
    return None


def _minutes(
    connection: sqlite3.Connection, since: int, now: int
) -> tuple[list[MinuteStats], dict[Metric, Distribution]]:
    series: defaultdict[int, Counter[str]] = defaultdict(Counter)
    buckets: defaultdict[Metric, Counter[int]] = defaultdict(Counter)
    totals: Counter[Metric] = Counter()
    for minute, code, bucket, n, total in connection.execute(_statistics_sql["minutes"], (since, now) * 2):
        metric = Metric(code)
        if metric in (Metric.RUN_TIME, Metric.WAIT_TIME):
            buckets[metric][bucket] += n
            totals[metric] += total
        else:
            series[minute][metric.name.lower()] += n
    times = {metric: summarise(counts, totals[metric]) for metric, counts in buckets.items()}
    return [MinuteStats(minute, **series[minute]) for minute in sorted(series)], times


_sql = Queries("tidewheel.stores.sqlite", "sql/reports.sql")
_BY_TENANT = {"index": "tidewheel_jobs_tenant"}
_job_queries_sql = Queries("tidewheel.stores.sqlite", "sql/job_queries.sql")


def lanes(
    connection: sqlite3.Connection, now: int, window_seconds: float, tenant: str | None
) -> list[TaskStats]:
    counts = _lane_counts(connection, now, tenant)
    if tenant is not None:
        return told_lanes(counts, None)
    since = now - seconds_to_microseconds(min(window_seconds, LANE_MINUTES_KEPT_SECONDS))
    happened = {
        (topic, task): Happened(*numbers)
        for topic, task, *numbers in connection.execute(_sql["lane_events"], (since, now))
    }
    found = told_lanes(counts, happened)
    minutes: defaultdict[LaneName, dict[int, Happened]] = defaultdict(dict)
    wanted = json.dumps(with_series(found))
    for minute, topic, task, *events in connection.execute(_sql["lane_minutes"], (since, now, wanted)):
        minutes[topic, task][minute] = Happened(*events)
    return add_series(found, minutes)


def _lane_counts(connection: sqlite3.Connection, now: int, tenant: str | None) -> dict[LaneName, TaskStats]:
    by_state: defaultdict[LaneName, list[int]] = defaultdict(lambda: [0] * len(Code))
    for topic, task, state, n in find(connection, _sql["lane_counts"], tenant):
        if n:
            by_state[topic, task][state] = n
    late: dict[LaneName, int] = {}
    if any(numbers[Code.WAITING] for numbers in by_state.values()):
        rows = find(connection, _sql["unpromoted_by_lane"], tenant, (now, MAX_LOOKED_AT))
        late = {(topic, task): n for topic, task, n in rows}
    return {
        name: TaskStats(
            *name, waiting + ready, ready + late.get(name, 0), running, completed, failed, cancelled
        )
        for name, (waiting, ready, running, completed, failed, cancelled) in by_state.items()
    }


def durations(connection: sqlite3.Connection, tenant: str | None) -> list[LaneDurations]:
    statement, parts = _sql["durations"], {}
    if between_others(tenant):
        statement, parts = _sql["durations_of_tenant"], _BY_TENANT
    times: defaultdict[LaneName, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for topic, task, run_time, wait_time in find(connection, statement, tenant, (MAX_LOOKED_AT,), **parts):
        runs, waits = times[topic, task]
        runs.append(run_time)
        waits.append(wait_time)
    return summarise_lanes(times)


def find_failures(
    connection: sqlite3.Connection, where: JobFilter, now: int, *, window_seconds: float, limit: int
) -> Failures:
    where = replace(where, state=State.FAILED)
    window = seconds_to_microseconds(window_seconds)
    further = False
    if (condition := asked(where)) is not None:  # it may take a search
        looking = Looking(connection, where, condition, now)
        numbers, further = looking.numbers(limit=MAX_LOOKED_AT)
        source = Source("", _sql["with_numbers"], [json.dumps(numbers)])
    else:
        source = select(connection, where, now)
    since = now - window
    rows = find(
        connection,
        _sql["failures"],
        where.tenant,
        (
            *source.values,
            MAX_LOOKED_AT + 1,
            MAX_LOOKED_AT,
            since,
            since,
            TREND_PARTS,
            window,
            TREND_PARTS - 1,
        ),
        hint=source.hint,
        conditions=source.conditions,
    ).fetchall()
    groups = FailureGroups([Failed._make(row[:-1]) for row in rows], limit)
    ids = dict(connection.execute(_sql["ids"], (json.dumps(groups.numbers),)).fetchall())
    complete = not further and (not rows or not rows[0][-1])
    return groups.told({number: UUID(bytes=found) for number, found in ids.items()}, complete=complete)


def repeats(connection: sqlite3.Connection, limit: int, tenant: str | None) -> Repeats:
    statement, parts = _sql["duplicate_payloads"], {}
    if between_others(tenant):
        statement, parts = _sql["duplicate_payloads_of_tenant"], _BY_TENANT
    keyed = find(connection, _sql["duplicate_keys"], tenant, (MAX_LOOKED_AT,)).fetchall()
    alike = find(connection, statement, tenant, (MAX_LOOKED_AT, COMPARED_PAYLOAD_BYTES), **parts).fetchall()
    counts = find(connection, _sql["lane_counts"], tenant).fetchall()
    return found_repeats(
        map(_alike, keyed),
        map(_alike, alike),
        limit,
        tenant=tenant,
        jobs=sum(n for _, _, _, n in counts),
        pending=sum(n for _, _, state, n in counts if state in (Code.WAITING, Code.READY)),
    )


def _alike(row: tuple[Any, ...]) -> Alike:
    number, count, tenant, topic, task, key, newest, oldest = row
    return Alike(number, RepeatGroup(tenant, topic, task, key, count, UUID(bytes=newest), UUID(bytes=oldest)))


def longest_running(connection: sqlite3.Connection, limit: int, tenant: str | None) -> list[JobRecord]:
    rows = find(connection, _sql["longest_running"], tenant, (limit,), columns=_job_queries_sql["columns"])
    return [record(row) for row in rows]
