"""How many a second, from two looks at what happened by minute.

Not from the counts of jobs: pruning makes those smaller, and a requeue moves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidewheel.findings import TaskStats
from tidewheel.glance import Glance
from tidewheel.model import MinuteStats

NAMES = ("enqueued", "completed", "failed", "retried")

Happened = dict[tuple[str, int], dict[str, int]]
"""By topic (``""`` is all of them) and minute."""


@dataclass(frozen=True, slots=True)
class Rates:
    """A second, by name; of topics whose minutes are not told (all but the busiest) nothing is known."""

    overall: Mapping[str, float]
    topics: Mapping[str, Mapping[str, float]]


NO_RATES = Rates({}, {})


class Meter:
    """Compares each look with the one before."""

    def __init__(self) -> None:
        self._before: Happened | None = None
        self._taken = 0.0

    def measure(self, glance: Glance, taken: float) -> Rates | None:
        """The rates since the last call, ``taken`` being monotonic seconds; None the first time."""
        happened = _happened(glance)
        before, since = self._before, taken - self._taken
        if before is not None and since <= 0:
            return None
        self._before, self._taken = happened, taken
        if before is None:
            return None
        sums: dict[str, dict[str, float]] = {}
        for (topic, minute), now in happened.items():
            then = before.get((topic, minute), {})
            of_topic = sums.setdefault(topic, dict.fromkeys(NAMES, 0.0))
            for name in NAMES:
                of_topic[name] += max(0, now[name] - then.get(name, 0)) / since
        overall = sums.pop("", dict.fromkeys(NAMES, 0.0))
        return Rates(overall, sums)


def _happened(glance: Glance) -> Happened:
    happened: Happened = {}
    _add(happened, "", glance.stats.series)
    for lane in glance.lanes:
        _add(happened, lane.topic, _series(lane))
    return happened


def _series(lane: TaskStats) -> Iterable[MinuteStats]:
    return () if lane.activity is None else lane.activity.series


def _add(happened: Happened, topic: str, series: Iterable[MinuteStats]) -> None:
    for minute in series:
        numbers = happened.setdefault((topic, minute.minute), dict.fromkeys(NAMES, 0))
        for name in NAMES:
            numbers[name] += getattr(minute, name)
