"""Statistics from counters: what they cost does not depend on how many jobs there are."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict

from windlass.clock import seconds_to_microseconds
from windlass.model import Distribution, MinuteStats, Stats, TopicStats
from windlass.stores.histogram import summarise
from windlass.stores.protocol import MINUTES_KEPT_SECONDS
from windlass.stores.queries import Queries
from windlass.stores.sqlite.recording import STATES
from windlass.stores.sqlite.transaction import Code, Metric

_sql = Queries("windlass.stores.sqlite.sql", "stats.sql")

MAX_PROBES = 10_000
"""Looks for the oldest job per lane and priority; with more levels than this the answer is approximate."""


def topics(connection: sqlite3.Connection, now: int, tenant: str | None = None) -> list[TopicStats]:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for topic, state, n in connection.execute(_sql["counts"], (tenant, tenant)):
        if n:
            counts[topic][STATES[Code(state)].value] += n
    pauses = dict(connection.execute(_sql["pauses"], (now,)).fetchall())
    names = set(counts) | (set(pauses) if tenant is None else set())
    return [TopicStats(topic, **counts[topic], paused_until=pauses.get(topic)) for topic in sorted(names)]


def stats(connection: sqlite3.Connection, now: int, window_seconds: float, tenant: str | None) -> Stats:
    by_topic = topics(connection, now, tenant)
    series: list[MinuteStats] = []
    times: dict[Metric, Distribution] = {}
    if tenant is None:
        since = now - seconds_to_microseconds(min(window_seconds, MINUTES_KEPT_SECONDS))
        series, times = _minutes(connection, since)
    return Stats(
        pending=sum(t.pending for t in by_topic),
        running=sum(t.running for t in by_topic),
        completed=sum(t.completed for t in by_topic),
        failed=sum(t.failed for t in by_topic),
        cancelled=sum(t.cancelled for t in by_topic),
        delayed=_delayed(connection, now, tenant),
        oldest_due_at=_oldest_due_at(connection, now, tenant),
        topics=tuple(by_topic),
        window_seconds=window_seconds,
        run_time=times.get(Metric.RUN_TIME, Distribution()),
        wait_time=times.get(Metric.WAIT_TIME, Distribution()),
        series=tuple(series),
    )


def _delayed(connection: sqlite3.Connection, now: int, tenant: str | None) -> int:
    waiting = sum(
        n for _, state, n in connection.execute(_sql["counts"], (tenant, tenant)) if state == Code.WAITING
    )
    if not waiting:
        return 0
    if tenant is None:
        due = connection.execute(_sql["due_but_waiting"], (now,)).fetchone()[0]
    else:
        due = connection.execute(_sql["due_but_waiting_of_tenant"], (now, tenant)).fetchone()[0]
    blocked = connection.execute(_sql["blocked"], (tenant, tenant)).fetchone()[0]
    return int(waiting - due - blocked)


def _oldest_due_at(connection: sqlite3.Connection, now: int, tenant: str | None) -> int | None:
    """When the job that has waited longest became due."""
    if tenant is not None:
        return connection.execute(_sql["oldest_of_tenant"], (now, tenant)).fetchone()[0]  # type: ignore[no-any-return]
    heads = (
        connection.execute(_sql["oldest_waiting"], (now,)).fetchone(),
        connection.execute(_sql["oldest_promoted"]).fetchone(),
    )
    found: list[int] = [row[0] for row in heads if row is not None]
    probes = 0
    for topic, task in connection.execute(_sql["lanes_with_ready"]).fetchall():
        below = 2**62
        while probes < MAX_PROBES:
            probes += 1
            row = connection.execute(_sql["oldest_of_priority"], (topic, task, below)).fetchone()
            if row is None:
                break
            below, run_at = row
            found.append(run_at)
    return min(found, default=None)


def _minutes(
    connection: sqlite3.Connection, since: int
) -> tuple[list[MinuteStats], dict[Metric, Distribution]]:
    series: defaultdict[int, Counter[str]] = defaultdict(Counter)
    buckets: defaultdict[Metric, Counter[int]] = defaultdict(Counter)
    totals: Counter[Metric] = Counter()
    for minute, code, bucket, n, total in connection.execute(_sql["minutes"], (since,)):
        metric = Metric(code)
        if metric in (Metric.RUN_TIME, Metric.WAIT_TIME):
            buckets[metric][bucket] += n
            totals[metric] += total
        else:
            series[minute][metric.name.lower()] += n
    times = {metric: summarise(counts, totals[metric]) for metric, counts in buckets.items()}
    return [MinuteStats(minute, **series[minute]) for minute in sorted(series)], times
