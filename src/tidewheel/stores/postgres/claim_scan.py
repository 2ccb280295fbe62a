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
from tidewheel.stores.postgres.wakeups import ANY_NUMBER

MAX_COMMIT_LAG_SECONDS: Final = 3.0
"""A transaction that is open for no longer than this can commit behind a mark and is yet found by the next
look back, without a look at everything."""

MAX_PRIORITIES_PER_LANE: Final = 20
"""Priorities of one lane that are told apart."""


class ScanRanges(NamedTuple):
    """Parts of lanes: after (urgency, number), before an urgency where one is given. Or all of them."""

    topics: list[str]
    tasks: list[str | None]
    urgencies: list[int | None] | None = None
    numbers: list[int | None] | None = None
    end_urgencies: list[int | None] | None = None

    @classmethod
    def whole_lanes(cls, lanes: Sequence[Lane]) -> ScanRanges:
        """All of these lanes."""
        return cls([lane.topic for lane in lanes], [lane.task for lane in lanes])


class ClaimCursors:
    """How far the claims of some lanes have come: in each lane and priority, the number of the last job.

    One for each priority: a new job of a higher one is beyond the mark of its own, and so never passed over.
    """

    def __init__(self, lanes: Sequence[Lane], now: float) -> None:
        self._lanes = lanes
        self._index = {(lane.topic, lane.task): index for index, lane in enumerate(lanes)}
        self._of_topic: dict[str, list[int]] = {}
        for index, lane in enumerate(lanes):
            self._of_topic.setdefault(lane.topic, []).append(index)
        self._cursors: list[dict[int, int]] = [{} for _ in lanes]
        self._old_cursors: list[dict[int, int]] = [{} for _ in lanes]  # as they were a while ago
        self._next_old_cursors: list[dict[int, int]] = [{} for _ in lanes]
        self._aged_at = now

    def ranges(self, now: float, *, rescan: bool) -> ScanRanges:
        """What is not behind the marks; ``back``: not behind those of a while ago."""
        if now >= self._aged_at + MAX_COMMIT_LAG_SECONDS:
            self._old_cursors, self._next_old_cursors = (
                self._next_old_cursors,
                [dict(bands) for bands in self._cursors],
            )
            self._aged_at = now
        topics: list[str] = []
        tasks: list[str | None] = []
        urgencies: list[int | None] = []
        numbers: list[int | None] = []
        befores: list[int | None] = []
        for lane, bands in zip(self._lanes, self._old_cursors if rescan else self._cursors, strict=True):
            marked = sorted(bands)
            topics += [lane.topic] * (len(marked) + 1)
            tasks += [lane.task] * (len(marked) + 1)
            urgencies += [None, *marked]
            numbers += [None, *[bands[urgency] for urgency in marked]]
            befores += [*marked, None]
        return ScanRanges(topics, tasks, urgencies, numbers, befores)

    def advance(
        self, last: Mapping[tuple[str, str, int], int], *, last_urgency: int | None, topic_limits_apply: bool
    ) -> None:
        """Jobs were granted; ``last``: the number of the last one, by topic, task and urgency.

        ``cut``: the urgency at which there may be more, None if everything was granted. ``rooms``: there may
        be more anywhere.
        """
        for (topic, task, urgency), number in last.items():
            bands = self._cursors[self._index[topic, task]]
            if topic_limits_apply or urgency == last_urgency:
                bands[urgency] = number
            else:
                # What was found behind the mark is granted; nothing else was there.
                bands[urgency] = max(number, bands.get(urgency, number))
            if len(bands) > MAX_PRIORITIES_PER_LANE:
                bands.clear()

    def move_back(self, places: Mapping[str, int]) -> None:
        """In these topics jobs became ready, none with a number below the one given."""
        for topic, lowest in places.items():
            for index in self._of_topic.get(topic, ()):
                for bands in (self._cursors[index], self._old_cursors[index], self._next_old_cursors[index]):
                    for urgency, number in bands.items():
                        bands[urgency] = min(number, lowest - 1)


RESCAN_SECONDS: Final = 0.25
"""How long claims may go on from where the last one ended, before they look back: the most that a delayed,
rescued or late-committed job is passed over while claims come back full."""

# Columns of the claim function.
FENCE, TOPIC, TASK, PRIORITY, PAYLOAD, CHECKPOINT = 1, 2, 3, 5, 11, 14
NUMBER, CREATED_AT, RUN_AT, LOSSES = 15, 16, 17, 23

_lane_and_priority_of = operator.itemgetter(TOPIC, TASK, PRIORITY)
_number_of = operator.itemgetter(NUMBER)


class ClaimSummary(NamedTuple):
    """What a claim says besides the jobs, in its last row. Moments are the server's."""

    server_time: int
    next_claim_at: int | None  # when a claim may find more
    # Up to which ended leases and due jobs were dealt with; None: it did not look.
    maintained_until: int | None
    full_scan_seconds: float | None  # seconds it took to look at everything; None: it did not
    rescued_jobs: str | None = None  # of jobs rescued on the way
    limited_topics: frozenset[str] = frozenset()  # which of its topics have limits: they have no marks
    needs_more_slots: bool = False  # there may be more for who has more free slots

    @classmethod
    def from_row(cls, row: Record) -> ClaimSummary:
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
        return self.next_claim_at is not None and self.next_claim_at <= self.server_time


class ScanState:
    """What the claims of some lanes have looked at, and what the next is to look at."""

    def __init__(self, lanes: tuple[Lane, ...], at: int | None) -> None:
        now = time.monotonic()
        self.injected_time = at  # the injected time they are good for; None under the server's clock
        self._lanes = lanes
        self._topics = frozenset([lane.topic for lane in lanes])
        self._can_use_cursors = None not in [lane.task for lane in lanes]
        self._cursors = ClaimCursors(lanes, now)
        self._has_cursors = False  # whether everything has been looked at once
        self._full_scan_wanted = True  # whether there is a reason to do so next
        self._rescan_at = now  # when to look back at the latest

    def next_ranges(self, now: float, *, rested: bool) -> tuple[ScanRanges, bool]:
        """What a claim is to look at, and whether that looks back."""
        back = now >= self._rescan_at
        if back and not rested:
            self._full_scan_wanted = (
                True  # as soon as that is allowed, not only when it is time to look back again
            )
        if not self._has_cursors or (rested and (back or self._full_scan_wanted)):
            return ScanRanges.whole_lanes(self._lanes), back
        return self._cursors.ranges(now, rescan=back), back

    def notify_ready(self, places: Mapping[str, int] | None) -> None:
        """Jobs became ready; see ``Claimer.ready``."""
        if places is None or any(places[topic] == ANY_NUMBER for topic in places.keys() & self._topics):
            self._full_scan_wanted = True
        else:
            self._cursors.move_back(places)

    def record_claim(self, answer: ClaimSummary, rows: Sequence[Record], *, rooms: bool) -> None:
        """What a claim granted, best first, and where it looked."""
        now = time.monotonic()
        if answer.maintained_until is not None:
            self._rescan_at = now + RESCAN_SECONDS
        elif not answer.more:
            self._rescan_at = now  # it fell short, and there may be more where it did not look
        if answer.full_scan_seconds is not None:
            self._has_cursors, self._full_scan_wanted = self._can_use_cursors, False
        elif not answer.more:
            self._full_scan_wanted = True
        if self._has_cursors and rows:
            cut = -rows[-1][PRIORITY] if answer.more else None
            # The number of the last one in each.
            numbers = dict(zip(map(_lane_and_priority_of, rows), map(_number_of, rows), strict=True))
            last = {(topic, task, -priority): number for (topic, task, priority), number in numbers.items()}
            self._cursors.advance(last, last_urgency=cut, topic_limits_apply=rooms)
