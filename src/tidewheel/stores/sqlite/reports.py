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
from tidewheel.core.conditions import unindexed_condition
from tidewheel.core.model import ROOT_TENANT, JobFilter, JobRecord, State
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
from tidewheel.stores.sqlite.job_queries import JobSearch
from tidewheel.stores.sqlite.query_plan import JobSource, plan_query
from tidewheel.stores.sqlite.row_mapping import record
from tidewheel.stores.sqlite.tenant_scope import execute_for_tenant
from tidewheel.stores.sqlite.write_transaction import Metric, StateCode

_statistics_sql = SqlFile("tidewheel.stores.sqlite", "sql/statistics.sql")

FIRST_SAMPLE = 1000
"""Among so many of the oldest pending jobs the longest wait is looked for first."""
MAX_SCANNED_OF_TENANT = 20_000
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
        pending=totals[StateCode.WAITING] + totals[StateCode.READY],
        running=totals[StateCode.RUNNING],
        completed=totals[StateCode.COMPLETED],
        failed=totals[StateCode.FAILED],
        cancelled=totals[StateCode.CANCELLED],
        delayed=_delayed(connection, now, tenant, totals[StateCode.WAITING]),
        oldest_due_at=_oldest_due_at(connection, now, tenant, totals.total()),
        topics=tuple(_by_topic(connection, now, counts, pauses_alone=tenant is None)),
        window_seconds=window_seconds,
        run_time=times.get(Metric.RUN_TIME, Distribution()),
        wait_time=times.get(Metric.WAIT_TIME, Distribution()),
        series=tuple(series),
    )


def _counts(connection: sqlite3.Connection, tenant: str | None) -> _Counts:
    return execute_for_tenant(connection, _statistics_sql["counts"], tenant).fetchall()


def _by_topic(
    connection: sqlite3.Connection, now: int, counts: _Counts, *, pauses_alone: bool
) -> list[TopicStats]:
    """With topics that have nothing but a pause, or without them."""
    pauses: dict[str, int] = dict(connection.execute(_statistics_sql["pauses"], (now,)).fetchall())
    found: dict[str, list[int]] = {topic: [0] * len(StateCode) for topic in pauses} if pauses_alone else {}
    for topic, state, n in counts:
        if n:
            of_topic = found.get(topic)
            if of_topic is None:
                of_topic = found[topic] = [0] * len(StateCode)
            of_topic[state] = n
    return [
        TopicStats(topic, waiting + ready, running, completed, failed, cancelled, pauses.get(topic))
        for topic, (waiting, ready, running, completed, failed, cancelled) in sorted(found.items())
    ]


def _delayed(connection: sqlite3.Connection, now: int, tenant: str | None, waiting: int) -> int:
    if not waiting:
        return 0
    due = execute_for_tenant(connection, _statistics_sql["unpromoted"], tenant, (now,)).fetchone()[0]
    blocked = execute_for_tenant(connection, _statistics_sql["blocked"], tenant).fetchone()[0]
    return int(waiting - due - blocked)


def _oldest_due_at(connection: sqlite3.Connection, now: int, tenant: str | None, jobs: int) -> int | None:
    """When the job that has waited longest became due; ``jobs`` is how many there are."""
    if tenant is not None:
        few = tenant != ROOT_TENANT and jobs <= MAX_SCANNED_OF_TENANT
        index = "tidewheel_jobs_tenant" if few else "tidewheel_jobs_pending"
        statement = _statistics_sql["oldest_of_tenant"]
        return execute_for_tenant(connection, statement, tenant, (now,), index=index).fetchone()[0]  # type: ignore[no-any-return]
    heads = (
        connection.execute(_statistics_sql["oldest_waiting"], (now,)).fetchone(),
        connection.execute(_statistics_sql["oldest_promoted"]).fetchone(),
        _oldest_never_delayed(connection),
    )
    return min((row[0] for row in heads if row is not None), default=None)


def _oldest_never_delayed(connection: sqlite3.Connection) -> tuple[int] | None:
    """Jobs that were never delayed are due in the order of their numbers, so the first has waited longest."""
    statement = _statistics_sql["first_never_delayed"]
    first: tuple[int] | None = connection.execute(statement, (FIRST_SAMPLE,)).fetchone()
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
    times = {metric: summarise_buckets(counts, totals[metric]) for metric, counts in buckets.items()}
    return [MinuteStats(minute, **series[minute]) for minute in sorted(series)], times


_sql = SqlFile("tidewheel.stores.sqlite", "sql/reports.sql")
_BY_TENANT = {"index": "tidewheel_jobs_tenant"}
_job_queries_sql = SqlFile("tidewheel.stores.sqlite", "sql/job_queries.sql")


def lanes(
    connection: sqlite3.Connection, now: int, window_seconds: float, tenant: str | None
) -> list[TaskStats]:
    counts = _lane_counts(connection, now, tenant)
    if tenant is not None:
        return select_lanes(counts, None)
    since = now - seconds_to_microseconds(min(window_seconds, LANE_MINUTES_KEPT_SECONDS))
    happened = {
        (topic, task): LaneEvents(*numbers)
        for topic, task, *numbers in connection.execute(_sql["lane_events"], (since, now))
    }
    found = select_lanes(counts, happened)
    minutes: defaultdict[LaneName, dict[int, LaneEvents]] = defaultdict(dict)
    wanted = json.dumps(lanes_with_series(found))
    for minute, topic, task, *events in connection.execute(_sql["lane_minutes"], (since, now, wanted)):
        minutes[topic, task][minute] = LaneEvents(*events)
    return add_series(found, minutes)


def _lane_counts(connection: sqlite3.Connection, now: int, tenant: str | None) -> dict[LaneName, TaskStats]:
    by_state: defaultdict[LaneName, list[int]] = defaultdict(lambda: [0] * len(StateCode))
    for topic, task, state, n in execute_for_tenant(connection, _sql["lane_counts"], tenant):
        if n:
            by_state[topic, task][state] = n
    late: dict[LaneName, int] = {}
    if any(numbers[StateCode.WAITING] for numbers in by_state.values()):
        rows = execute_for_tenant(connection, _sql["unpromoted_by_lane"], tenant, (now, MAX_SCANNED_JOBS))
        late = {(topic, task): n for topic, task, n in rows}
    return {
        name: TaskStats(
            *name, waiting + ready, ready + late.get(name, 0), running, completed, failed, cancelled
        )
        for name, (waiting, ready, running, completed, failed, cancelled) in by_state.items()
    }


def durations(connection: sqlite3.Connection, tenant: str | None) -> list[LaneDurations]:
    statement, parts = _sql["durations"], {}
    if has_tenant_index(tenant):
        statement, parts = _sql["durations_of_tenant"], _BY_TENANT
    times: defaultdict[LaneName, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for topic, task, run_time, wait_time in execute_for_tenant(
        connection, statement, tenant, (MAX_SCANNED_JOBS,), **parts
    ):
        runs, waits = times[topic, task]
        runs.append(run_time)
        waits.append(wait_time)
    return summarise_lanes(times)


def failures(
    connection: sqlite3.Connection, where: JobFilter, now: int, *, window_seconds: float, limit: int
) -> FailureGroups:
    where = replace(where, state=State.FAILED)
    window = seconds_to_microseconds(window_seconds)
    further = False
    if (condition := unindexed_condition(where)) is not None:  # it may take a search
        looking = JobSearch(connection, where, condition, now)
        numbers, further = looking.numbers(limit=MAX_SCANNED_JOBS)
        source = JobSource("", _sql["with_numbers"], [json.dumps(numbers)])
    else:
        source = plan_query(connection, where, now)
    since = now - window
    rows = execute_for_tenant(
        connection,
        _sql["failures"],
        where.tenant,
        (
            *source.values,
            MAX_SCANNED_JOBS + 1,
            MAX_SCANNED_JOBS,
            since,
            since,
            TREND_BUCKETS,
            window,
            TREND_BUCKETS - 1,
        ),
        hint=source.hint,
        conditions=source.conditions,
    ).fetchall()
    groups = FailureGrouper([FailedJobs._make(row[:-1]) for row in rows], limit)
    ids = dict(connection.execute(_sql["ids"], (json.dumps(groups.numbers),)).fetchall())
    complete = not further and (not rows or not rows[0][-1])
    return groups.to_failures({number: UUID(bytes=found) for number, found in ids.items()}, complete=complete)


def duplicate_jobs(connection: sqlite3.Connection, limit: int, tenant: str | None) -> DuplicateJobs:
    statement, parts = _sql["duplicate_payloads"], {}
    if has_tenant_index(tenant):
        statement, parts = _sql["duplicate_payloads_of_tenant"], _BY_TENANT
    keyed = execute_for_tenant(connection, _sql["duplicate_keys"], tenant, (MAX_SCANNED_JOBS,)).fetchall()
    alike = execute_for_tenant(
        connection, statement, tenant, (MAX_SCANNED_JOBS, MAX_COMPARED_PAYLOAD_BYTES), **parts
    ).fetchall()
    counts = execute_for_tenant(connection, _sql["lane_counts"], tenant).fetchall()
    return group_duplicates(
        map(_duplicate_group, keyed),
        map(_duplicate_group, alike),
        limit,
        tenant=tenant,
        jobs=sum(n for _, _, _, n in counts),
        pending=sum(n for _, _, state, n in counts if state in (StateCode.WAITING, StateCode.READY)),
    )


def _duplicate_group(row: tuple[Any, ...]) -> DuplicateGroup:
    number, count, tenant, topic, task, key, newest, oldest = row
    return DuplicateGroup(
        number, DuplicateJobGroup(tenant, topic, task, key, count, UUID(bytes=newest), UUID(bytes=oldest))
    )


def longest_running(connection: sqlite3.Connection, limit: int, tenant: str | None) -> list[JobRecord]:
    rows = execute_for_tenant(
        connection, _sql["longest_running"], tenant, (limit,), columns=_job_queries_sql["columns"]
    )
    return [record(row) for row in rows]
