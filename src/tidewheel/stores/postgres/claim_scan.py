"""Choose the index ranges that a claim scans: whole lanes, or only the part after the marks.

A granted job leaves a dead index entry until vacuum removes it. While a session holds an old snapshot, vacuum
cannot, and millions gather at the left end, where each claim starts. A mark holds the number of the last job
granted in a lane and priority, so the next claim skips those entries. Claims look behind the marks after
0.25 seconds at the latest, for jobs that were delayed, rescued or committed late.
"""

from __future__ import annotations

import json
import operator
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import Lane
from tidewheel.stores.postgres.database import Record
from tidewheel.stores.postgres.wakeups import ANYWHERE

LAG_SECONDS: Final = 3.0
"""A transaction that is open for no longer than this can commit behind a mark and is yet found by the next
look back, without a look at everything."""

MOST_BANDS: Final = 20
"""Priorities of one lane that are told apart."""


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


RESCAN_SECONDS: Final = 0.25
"""How long claims may go on from where the last one ended, before they look back: the most that a delayed,
rescued or late-committed job is passed over while claims come back full."""

# Columns of the claim function.
FENCE, TOPIC, TASK, PRIORITY, PAYLOAD, CHECKPOINT = 1, 2, 3, 5, 11, 14
NUMBER, CREATED_AT, RUN_AT, LOSSES = 15, 16, 17, 23

_level_of = operator.itemgetter(TOPIC, TASK, PRIORITY)
_number_of = operator.itemgetter(NUMBER)


class Answer(NamedTuple):
    """What a claim says besides the jobs, in its last row. Moments are the server's."""

    moment: int
    due: int | None  # when a claim may find more
    tended_to: int | None  # up to which ended leases and due jobs were dealt with; None: it did not look
    cost: float | None  # seconds it took to look at everything; None: it did not
    told: str | None = None  # of jobs rescued on the way
    limited: frozenset[str] = frozenset()  # which of its topics have limits: they have no marks
    kept_back: bool = False  # there may be more for who has more free slots

    @classmethod
    def of(cls, row: Record) -> Answer:
        cost = row[FENCE]
        seconds = None if cost is None else cost / MICROSECONDS
        limited = row[CHECKPOINT]
        return cls(
            row[CREATED_AT],
            row[RUN_AT],
            row[NUMBER],
            seconds,
            row[PAYLOAD],
            frozenset() if limited is None else frozenset(json.loads(limited)),
            bool(row[LOSSES]),
        )

    @property
    def more(self) -> bool:
        """Whether there may be more to grant at once, because only so many were asked for."""
        return self.due is not None and self.due <= self.moment


class Looks:
    """What the claims of some lanes have looked at, and what the next is to look at."""

    def __init__(self, lanes: tuple[Lane, ...], at: int | None) -> None:
        now = time.monotonic()
        self.at = at  # the injected time they are good for; None under the server's clock
        self._lanes = lanes
        self._topics = frozenset([lane.topic for lane in lanes])
        self._markable = None not in [lane.task for lane in lanes]
        self._marks = Marks(lanes, now)
        self._marked = False  # whether everything has been looked at once
        self._everything = True  # whether there is a reason to do so next
        self._back_at = now  # when to look back at the latest

    def next(self, now: float, *, rested: bool) -> tuple[Ranges, bool]:
        """What a claim is to look at, and whether that looks back."""
        back = now >= self._back_at
        if back and not rested:
            self._everything = True  # as soon as that is allowed, not only when it is time to look back again
        if not self._marked or (rested and (back or self._everything)):
            return Ranges.of(self._lanes), back
        return self._marks.ranges(now, back=back), back

    def hear(self, places: Mapping[str, int] | None) -> None:
        """Jobs became ready; see ``Claimer.ready``."""
        if places is None or any(places[topic] == ANYWHERE for topic in places.keys() & self._topics):
            self._everything = True
        else:
            self._marks.lower(places)

    def learn(self, answer: Answer, rows: Sequence[Record], *, rooms: bool) -> None:
        """What a claim granted, best first, and where it looked."""
        now = time.monotonic()
        if answer.tended_to is not None:
            self._back_at = now + RESCAN_SECONDS
        elif not answer.more:
            self._back_at = now  # it fell short, and there may be more where it did not look
        if answer.cost is not None:
            self._marked, self._everything = self._markable, False
        elif not answer.more:
            self._everything = True
        if self._marked and rows:
            cut = -rows[-1][PRIORITY] if answer.more else None
            # The number of the last one in each.
            numbers = dict(zip(map(_level_of, rows), map(_number_of, rows), strict=True))
            last = {(topic, task, -priority): number for (topic, task, priority), number in numbers.items()}
            self._marks.advance(last, cut=cut, rooms=rooms)
