"""Statistics from counters: what they cost does not depend on how many jobs there are."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from heapq import heapify, heappop, heapreplace

from tidewheel.clock import seconds_to_microseconds
from tidewheel.model import ROOT_TENANT, Distribution, MinuteStats, Stats, TopicStats
from tidewheel.stores.histogram import summarise
from tidewheel.stores.protocol import MINUTES_KEPT_SECONDS
from tidewheel.stores.queries import Queries
from tidewheel.stores.sqlite.scoping import find
from tidewheel.stores.sqlite.transaction import Code, Metric

_sql = Queries("tidewheel.stores.sqlite.sql", "stats.sql")

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
        series, times = _minutes(connection, since)
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
    return find(connection, _sql["counts"], tenant).fetchall()


def _by_topic(
    connection: sqlite3.Connection, now: int, counts: _Counts, *, pauses_alone: bool
) -> list[TopicStats]:
    """With topics that have nothing but a pause, or without them."""
    pauses: dict[str, int] = dict(connection.execute(_sql["pauses"], (now,)).fetchall())
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
    due = find(connection, _sql["due_but_waiting"], tenant, (now,)).fetchone()[0]
    blocked = find(connection, _sql["blocked"], tenant).fetchone()[0]
    return int(waiting - due - blocked)


def _oldest_due_at(connection: sqlite3.Connection, now: int, tenant: str | None, jobs: int) -> int | None:
    """When the job that has waited longest became due; ``jobs`` is how many there are."""
    if tenant is not None:
        few = tenant != ROOT_TENANT and jobs <= FEW_JOBS
        index = "tidewheel_jobs_tenant" if few else "tidewheel_jobs_pending"
        return find(connection, _sql["oldest_of_tenant"], tenant, (now,), index=index).fetchone()[0]  # type: ignore[no-any-return]
    heads = (
        connection.execute(_sql["oldest_waiting"], (now,)).fetchone(),
        connection.execute(_sql["oldest_promoted"]).fetchone(),
        _oldest_prompt(connection),
    )
    return min((row[0] for row in heads if row is not None), default=None)


def _oldest_prompt(connection: sqlite3.Connection) -> tuple[int] | None:
    """Jobs that were never delayed are due in the order of their numbers, so the first has waited longest."""
    first: tuple[int] | None = connection.execute(_sql["first_prompt"], (FIRST_LOOK,)).fetchone()
    if first is not None:
        return first
    heads = connection.execute(_sql["heads"], (MAX_LEVELS,)).fetchall()
    heapify(heads)
    for _ in range(MAX_STEPS):
        if not heads:
            break
        number, *level = heads[0]
        run_at, created_at = connection.execute(_sql["due_times"], (number,)).fetchone()
        if run_at <= created_at:
            return (run_at,)
        following = connection.execute(_sql["next_of_priority"], (*level, number)).fetchone()
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (*following, *level))
    return None


def _minutes(
    connection: sqlite3.Connection, since: int
) -> tuple[list[MinuteStats], dict[Metric, Distribution]]:
    series: defaultdict[int, Counter[str]] = defaultdict(Counter)
    buckets: defaultdict[Metric, Counter[int]] = defaultdict(Counter)
    totals: Counter[Metric] = Counter()
    for minute, code, bucket, n, total in connection.execute(_sql["minutes"], (since, since)):
        metric = Metric(code)
        if metric in (Metric.RUN_TIME, Metric.WAIT_TIME):
            buckets[metric][bucket] += n
            totals[metric] += total
        else:
            series[minute][metric.name.lower()] += n
    times = {metric: summarise(counts, totals[metric]) for metric, counts in buckets.items()}
    return [MinuteStats(minute, **series[minute]) for minute in sorted(series)], times
