"""What a claim looks at: all of its lanes, or what lies beyond the marks."""

from __future__ import annotations

import json
import operator
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidewheel.clock import MICROSECONDS
from tidewheel.model import Lane
from tidewheel.stores.postgres.database import Record
from tidewheel.stores.postgres.marks import ANYWHERE, Marks, Ranges

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
