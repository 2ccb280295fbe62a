"""State of ``tidewheel top``: the data that is drawn, and rates per second.

A rate compares two polls of the activity per minute. Job counts are no basis for it: pruning lowers them and
a requeue moves them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidewheel.admin.reports.answers import Attention, FailedJobs
from tidewheel.admin.reports.queue_snapshot import QueueSnapshot
from tidewheel.admin.worker_info import WorkerInfo
from tidewheel.core.reports import MinuteStats, TaskStats

COUNTED_EVENTS = ("enqueued", "completed", "failed", "retried")

MinuteCounts = dict[tuple[str, int], dict[str, int]]
"""By topic (``""`` is all of them) and minute."""


@dataclass(frozen=True, slots=True)
class Rates:
    """A second, by name; of topics whose minutes are not told (all but the busiest) nothing is known."""

    overall: Mapping[str, float]
    topics: Mapping[str, Mapping[str, float]]


NO_RATES = Rates({}, {})


class RateMeter:
    """Compares each look with the one before."""

    def __init__(self) -> None:
        self._before: MinuteCounts | None = None
        self._taken = 0.0

    def measure(self, glance: QueueSnapshot, taken: float) -> Rates | None:
        """The rates since the last call, ``taken`` being monotonic seconds; None the first time."""
        happened = _minute_counts(glance)
        before, since = self._before, taken - self._taken
        if before is not None and since <= 0:
            return None
        self._before, self._taken = happened, taken
        if before is None:
            return None
        sums: dict[str, dict[str, float]] = {}
        for (topic, minute), now in happened.items():
            then = before.get((topic, minute), {})
            of_topic = sums.setdefault(topic, dict.fromkeys(COUNTED_EVENTS, 0.0))
            for name in COUNTED_EVENTS:
                of_topic[name] += max(0, now[name] - then.get(name, 0)) / since
        overall = sums.pop("", dict.fromkeys(COUNTED_EVENTS, 0.0))
        return Rates(overall, sums)


def _minute_counts(glance: QueueSnapshot) -> MinuteCounts:
    happened: MinuteCounts = {}
    _add(happened, "", glance.stats.series)
    for lane in glance.lanes:
        _add(happened, lane.topic, _series(lane))
    return happened


def _series(lane: TaskStats) -> Iterable[MinuteStats]:
    return () if lane.activity is None else lane.activity.series


def _add(happened: MinuteCounts, topic: str, series: Iterable[MinuteStats]) -> None:
    for minute in series:
        numbers = happened.setdefault((topic, minute.minute), dict.fromkeys(COUNTED_EVENTS, 0))
        for name in COUNTED_EVENTS:
            numbers[name] += getattr(minute, name)


MAX_SAMPLES: Final = 300
"""Of the line of bars; a wider terminal is rare."""


@dataclass(slots=True)
class TopState:
    """Everything a screen shows; whoever looks at the store puts it here."""

    url: str
    """without its password"""
    store: str
    """name and version"""
    every: float
    glance: QueueSnapshot | None = None
    rates: Rates = NO_RATES
    history: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    """completed a second, oldest first"""
    attention: Attention | None = None
    failed: FailedJobs | None = None
    workers: Sequence[WorkerInfo] = ()
    details_at: float = 0.0
    """when attention, failures and workers were looked at, monotonic"""
    poll_seconds: float = 0.0
    """the last look at the store"""
    polled_at: float = 0.0
    """when that was, monotonic"""
    error: str | None = None
    """why the last look failed"""
    error_since: float = 0.0
    """monotonic"""

    @property
    def details_age(self) -> float:
        """By how many seconds those are older than the counts they stand beside."""
        return max(0.0, self.polled_at - self.details_at)
