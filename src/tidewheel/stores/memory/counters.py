"""What happened, by minute: the series and the durations of ``stats``, and the same by lane."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.reports import Distribution, MinuteStats
from tidewheel.stores.bounds import LANE_MINUTES_KEPT_SECONDS, MINUTES_KEPT_SECONDS
from tidewheel.stores.reports import NO_EVENTS, LaneEvents, LaneName, bucket_of, summarise_buckets

MINUTE = 60_000_000
KEPT_MICROSECONDS = seconds_to_microseconds(MINUTES_KEPT_SECONDS)
LANES_KEPT_MICROSECONDS = seconds_to_microseconds(LANE_MINUTES_KEPT_SECONDS)


@dataclass(slots=True)
class DurationHistogram:
    """Durations in buckets, and their sum."""

    buckets: Counter[int] = field(default_factory=Counter)
    total: int = 0

    def add(self, microseconds: int) -> None:
        self.buckets[bucket_of(microseconds)] += 1
        self.total += microseconds

    def merge(self, other: DurationHistogram) -> None:
        self.buckets.update(other.buckets)
        self.total += other.total

    def summary(self) -> Distribution:
        return summarise_buckets(self.buckets, self.total)


@dataclass(slots=True)
class LaneMinute:
    """One minute of one lane, in the order of ``LaneEvents``."""

    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    runs: int = 0
    run_us: int = 0
    waits: int = 0
    wait_us: int = 0

    def happened(self) -> LaneEvents:
        return LaneEvents(
            self.enqueued,
            self.completed,
            self.failed,
            self.cancelled,
            self.retried,
            self.runs,
            self.run_us,
            self.waits,
            self.wait_us,
        )


@dataclass(slots=True)
class MinuteCounters:
    """One minute."""

    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    run_time: DurationHistogram = field(default_factory=DurationHistogram)
    wait_time: DurationHistogram = field(default_factory=DurationHistogram)
    lanes: dict[LaneName, LaneMinute] = field(default_factory=dict)

    def lane(self, topic: str, task: str) -> LaneMinute:
        """The tally of a lane, to be counted into as well."""
        lane = self.lanes.get((topic, task))
        if lane is None:
            lane = self.lanes[topic, task] = LaneMinute()
        return lane


class Counters:
    """Tallies of the last 48 hours."""

    def __init__(self) -> None:
        self._minutes: dict[int, MinuteCounters] = {}

    def minute_at(self, now: int) -> MinuteCounters:
        """The tally to count into."""
        minute = now - now % MINUTE
        tally = self._minutes.get(minute)
        if tally is None:
            self._drop_old(now)
            tally = self._minutes[minute] = MinuteCounters()
        return tally

    def summary(
        self, now: int, window_microseconds: int
    ) -> tuple[Distribution, Distribution, tuple[MinuteStats, ...]]:
        """Run times, wait times and the series of the minutes that began inside the window.

        Minutes later than ``now`` were counted before the clock was set back; they are left out.
        """
        since = now - min(window_microseconds, KEPT_MICROSECONDS)
        run_time, wait_time = DurationHistogram(), DurationHistogram()
        series = []
        for minute in sorted(minute for minute in self._minutes if since <= minute <= now):
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

    def lanes(self, now: int, window_microseconds: int) -> dict[LaneName, dict[int, LaneEvents]]:
        """What happened in each lane, by the minutes that began inside the window."""
        since = now - min(window_microseconds, LANES_KEPT_MICROSECONDS)
        found: dict[LaneName, dict[int, LaneEvents]] = {}
        for minute in [minute for minute in self._minutes if since <= minute <= now]:
            for name, lane in self._minutes[minute].lanes.items():
                if (happened := lane.happened()) != NO_EVENTS:
                    found.setdefault(name, {})[minute] = happened
        return found

    def _drop_old(self, now: int) -> None:
        for minute, tally in self._minutes.items():
            if minute < now - LANES_KEPT_MICROSECONDS:
                tally.lanes.clear()
        for minute in [minute for minute in self._minutes if minute < now - KEPT_MICROSECONDS]:
            del self._minutes[minute]
