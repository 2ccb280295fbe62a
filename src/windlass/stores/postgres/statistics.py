"""Statistics from counters: what they cost does not depend on how many jobs there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Final

from windlass.clock import seconds_to_microseconds
from windlass.model import ROOT_TENANT, Distribution, MinuteStats, Stats, TopicStats
from windlass.stores.histogram import summarise
from windlass.stores.postgres.database import Database
from windlass.stores.protocol import MINUTES_KEPT_SECONDS
from windlass.stores.queries import Queries

_sql = Queries("windlass.stores.postgres.sql", "stats.sql")

MAX_LEVELS: Final = 10_000
"""Looks for the oldest job, one per lane and priority; with more levels the answer is approximate."""
MAX_STEPS: Final = 10_000
"""How many jobs that had been delayed, or are others', are passed over; with more it is approximate, too."""

FEW_JOBS: Final = 20_000
"""So many jobs of a tenant are looked at one by one. With more, some are near the head of each lane."""

_EVENTS: Final = ("enqueued", "completed", "failed", "cancelled", "retried")  # by metric
_RUN_TIME: Final = 5
_WAIT_TIME: Final = 6


async def topics(database: Database, tenant: str | None = None) -> list[TopicStats]:
    async with database.transaction() as connection:
        now = await _moment(database, connection)
        return (await _topics(database, connection, now, tenant))[0]


async def stats(database: Database, window_seconds: float, tenant: str | None) -> Stats:
    series: list[MinuteStats] = []
    times: dict[int, Distribution] = {}
    async with database.transaction() as connection:
        now = await _moment(database, connection)
        by_topic, waiting = await _topics(database, connection, now, tenant)
        pending = sum(t.pending for t in by_topic)
        if tenant not in (None, ROOT_TENANT) and pending <= FEW_JOBS:
            statement = database.qualify(_sql["pending_of_tenant"])
            delayed, oldest_due_at = await connection.fetchrow(statement, now, tenant)
        else:
            delayed = await _delayed(database, connection, now, tenant, waiting)
            oldest_due_at = await _oldest_due_at(database, connection, now, tenant)
        if tenant is None:
            since = now - seconds_to_microseconds(min(window_seconds, MINUTES_KEPT_SECONDS))
            series, times = await _minutes(database, connection, since)
    return Stats(
        pending=pending,
        running=sum(t.running for t in by_topic),
        completed=sum(t.completed for t in by_topic),
        failed=sum(t.failed for t in by_topic),
        cancelled=sum(t.cancelled for t in by_topic),
        delayed=delayed,
        oldest_due_at=oldest_due_at,
        topics=tuple(by_topic),
        window_seconds=window_seconds,
        run_time=times.get(_RUN_TIME, Distribution()),
        wait_time=times.get(_WAIT_TIME, Distribution()),
        series=tuple(series),
    )


async def _moment(database: Database, connection: Any) -> int:
    return int(await connection.fetchval(database.qualify(_sql["moment"]), database.now))


async def _topics(
    database: Database, connection: Any, now: int, tenant: str | None
) -> tuple[list[TopicStats], int]:
    """By name; and how many jobs of all topics are waiting, as stored."""
    pauses = dict(await connection.fetch(database.qualify(_sql["pauses"]), now))
    found: dict[str, TopicStats] = {}
    if tenant is None:
        found.update((topic, TopicStats(topic, paused_until=until)) for topic, until in pauses.items())
    all_waiting = 0
    for row in await connection.fetch(database.qualify(_sql["counts"]), tenant):
        topic, waiting, pending, running, completed, failed, cancelled = row
        all_waiting += waiting
        if pending or running or completed or failed or cancelled:
            found[topic] = TopicStats(
                topic, pending, running, completed, failed, cancelled, pauses.get(topic)
            )
    # Sorted here: the database may know an alphabet of its own.
    return [found[topic] for topic in sorted(found)], all_waiting


async def _delayed(database: Database, connection: Any, now: int, tenant: str | None, waiting: int) -> int:
    if not waiting:
        return 0
    return waiting - int(await connection.fetchval(database.qualify(_sql["not_delayed"]), now, tenant))


async def _oldest_due_at(database: Database, connection: Any, now: int, tenant: str | None) -> int | None:
    """When the job that has waited longest became due."""
    found = [await connection.fetchval(database.qualify(_sql["oldest_delayed"]), now, tenant)]
    lanes = await connection.fetch(database.qualify(_sql["lanes_with_ready"]), tenant)
    if lanes:
        found.append(
            await connection.fetchval(
                database.qualify(_sql["oldest_prompt"]),
                [topic for topic, _ in lanes],
                [task for _, task in lanes],
                MAX_LEVELS,
                MAX_STEPS // len(lanes) + 1,
                tenant,
            )
        )
    return min((run_at for run_at in found if run_at is not None), default=None)


async def _minutes(
    database: Database, connection: Any, since: int
) -> tuple[list[MinuteStats], dict[int, Distribution]]:
    series: defaultdict[int, Counter[str]] = defaultdict(Counter)
    buckets: defaultdict[int, Counter[int]] = defaultdict(Counter)
    totals: Counter[int] = Counter()
    for minute, metric, bucket, n, total in await connection.fetch(database.qualify(_sql["minutes"]), since):
        if minute is None:
            buckets[metric][bucket] += n
            totals[metric] += total
        else:
            series[minute][_EVENTS[metric]] += n
    times = {metric: summarise(counts, totals[metric]) for metric, counts in buckets.items()}
    return [MinuteStats(minute, **series[minute]) for minute in sorted(series)], times
