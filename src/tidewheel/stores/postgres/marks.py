"""How far claims have come, so that the next need not walk over rows that vacuum has not removed yet.

In an index every job that was granted leaves a dead entry behind. Vacuum takes it away, unless some session
still holds an old snapshot: then they become millions, all of them at the left end, where each claim begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidewheel.model import Lane

LAG_SECONDS: Final = 3.0
"""A transaction that is open for no longer than this can commit behind a mark and is yet found by the next
look back, without a look at everything."""

MOST_BANDS: Final = 20
"""Priorities of one lane that are told apart."""

ANYWHERE: Final = 0
"""In place of a number: where the jobs are is not known."""


class Ranges(NamedTuple):
    """Parts of lanes: after (urgency, number), before an urgency where one is given. Or all of them."""

    topics: list[str]
    tasks: list[str | None]
    urgencies: list[int | None] | None = None
    numbers: list[int | None] | None = None
    befores: list[int | None] | None = None

    @classmethod
    def of(cls, lanes: Sequence[Lane]) -> Ranges:
        """All of these lanes."""
        return cls([lane.topic for lane in lanes], [lane.task for lane in lanes])


class Marks:
    """How far the claims of some lanes have come: in each lane and priority, the number of the last job.

    One for each priority: a new job of a higher one is beyond the mark of its own, and so never passed over.
    """

    def __init__(self, lanes: Sequence[Lane], now: float) -> None:
        self._lanes = lanes
        self._index = {(lane.topic, lane.task): index for index, lane in enumerate(lanes)}
        self._of_topic: dict[str, list[int]] = {}
        for index, lane in enumerate(lanes):
            self._of_topic.setdefault(lane.topic, []).append(index)
        self._bands: list[dict[int, int]] = [{} for _ in lanes]
        self._floors: list[dict[int, int]] = [{} for _ in lanes]  # as they were a while ago
        self._next_floors: list[dict[int, int]] = [{} for _ in lanes]
        self._aged_at = now

    def ranges(self, now: float, *, back: bool) -> Ranges:
        """What is not behind the marks; ``back``: not behind those of a while ago."""
        if now >= self._aged_at + LAG_SECONDS:
            self._floors, self._next_floors = self._next_floors, [dict(bands) for bands in self._bands]
            self._aged_at = now
        topics: list[str] = []
        tasks: list[str | None] = []
        urgencies: list[int | None] = []
        numbers: list[int | None] = []
        befores: list[int | None] = []
        for lane, bands in zip(self._lanes, self._floors if back else self._bands, strict=True):
            marked = sorted(bands)
            topics += [lane.topic] * (len(marked) + 1)
            tasks += [lane.task] * (len(marked) + 1)
            urgencies += [None, *marked]
            numbers += [None, *[bands[urgency] for urgency in marked]]
            befores += [*marked, None]
        return Ranges(topics, tasks, urgencies, numbers, befores)

    def advance(self, last: Mapping[tuple[str, str, int], int], *, cut: int | None, rooms: bool) -> None:
        """Jobs were granted; ``last``: the number of the last one, by topic, task and urgency.

        ``cut``: the urgency at which there may be more, None if everything was granted. ``rooms``: there may
        be more anywhere.
        """
        for (topic, task, urgency), number in last.items():
            bands = self._bands[self._index[topic, task]]
            if rooms or urgency == cut:
                bands[urgency] = number
            else:
                # What was found behind the mark is granted; nothing else was there.
                bands[urgency] = max(number, bands.get(urgency, number))
            if len(bands) > MOST_BANDS:
                bands.clear()

    def lower(self, places: Mapping[str, int]) -> None:
        """In these topics jobs became ready, none with a number below the one given."""
        for topic, lowest in places.items():
            for index in self._of_topic.get(topic, ()):
                for bands in (self._bands[index], self._floors[index], self._next_floors[index]):
                    for urgency, number in bands.items():
                        bands[urgency] = min(number, lowest - 1)
