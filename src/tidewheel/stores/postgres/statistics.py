"""Statistics from counters: what they cost does not depend on how many jobs there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import add
from typing import Final

from tidewheel.clock import seconds_to_microseconds
from tidewheel.model import Distribution, MinuteStats, Stats, TopicStats
from tidewheel.stores.histogram import summarise
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.protocol import MINUTES_KEPT_SECONDS
from tidewheel.stores.queries import Queries

_sql = Queries("tidewheel.stores.postgres.sql", "stats.sql")

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
    [row] = await database.fetch_for(tenant, _sql["lanes"], database.now, tenant)
    names, *counts, paused, paused_until = row
    pauses = dict(zip(paused, paused_until, strict=True))
    return _by_topic(names, counts, pauses, pauses_alone=tenant is None)


async def stats(database: Database, window_seconds: float, tenant: str | None) -> Stats:
    window = seconds_to_microseconds(min(window_seconds, MINUTES_KEPT_SECONDS))
    [row] = await database.fetch_for(
        tenant, _sql["stats"], database.now, window, tenant, FEW_JOBS, FIRST_LOOK, MAX_LEVELS, MAX_STEPS
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
