"""What happened, by minute: the series and the durations of ``stats``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from windlass.clock import seconds_to_microseconds
from windlass.model import Distribution, MinuteStats
from windlass.stores.histogram import bucket_of, summarise
from windlass.stores.protocol import MINUTES_KEPT_SECONDS

MINUTE = 60_000_000
KEPT_MICROSECONDS = seconds_to_microseconds(MINUTES_KEPT_SECONDS)


@dataclass(slots=True)
class Durations:
    """Durations in buckets, and their sum."""

    buckets: Counter[int] = field(default_factory=Counter)
    total: int = 0

    def add(self, microseconds: int) -> None:
        self.buckets[bucket_of(microseconds)] += 1
        self.total += microseconds

    def merge(self, other: Durations) -> None:
        self.buckets.update(other.buckets)
        self.total += other.total

    def summary(self) -> Distribution:
        return summarise(self.buckets, self.total)


@dataclass(slots=True)
class Tally:
    """One minute."""

    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    run_time: Durations = field(default_factory=Durations)
    wait_time: Durations = field(default_factory=Durations)


class Metrics:
    """Tallies of the last 48 hours."""

    def __init__(self) -> None:
        self._minutes: dict[int, Tally] = {}

    def at(self, now: int) -> Tally:
        """The tally to count into."""
        minute = now - now % MINUTE
        tally = self._minutes.get(minute)
        if tally is None:
            self._drop_old(now)
            tally = self._minutes[minute] = Tally()
        return tally

    def summary(
        self, now: int, window_microseconds: int
    ) -> tuple[Distribution, Distribution, tuple[MinuteStats, ...]]:
        """Run times, wait times and the series of the minutes that began inside the window."""
        since = now - min(window_microseconds, KEPT_MICROSECONDS)
        run_time, wait_time = Durations(), Durations()
        series = []
        for minute in sorted(minute for minute in self._minutes if minute >= since):
            tally = self._minutes[minute]
            run_time.merge(tally.run_time)
            wait_time.merge(tally.wait_time)
            stats = MinuteStats(
                minute,
                enqueued=tally.enqueued,
                completed=tally.completed,
                failed=tally.failed,
                cancelled=tally.cancelled,
                retried=tally.retried,
            )
            if stats != MinuteStats(minute):
                series.append(stats)
        return run_time.summary(), wait_time.summary(), tuple(series)

    def _drop_old(self, now: int) -> None:
        for minute in [minute for minute in self._minutes if minute < now - KEPT_MICROSECONDS]:
            del self._minutes[minute]
