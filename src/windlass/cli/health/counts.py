"""What worker processes have counted, told to their parent and added up there.

Figures are told as they are, not what was added since: a datagram that is lost makes them older, not wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from windlass.telemetry import figures
from windlass.telemetry.figures import TopicFigures
from windlass.telemetry.samples import Sample, added_up
from windlass.telemetry.telemetry import Telemetry

SAMPLES_AT_A_TIME: Final = 100
"""In one datagram: a histogram has twenty numbers, and names up to 255 characters."""
WHOLE_EVERY: Final = 30
"""Rounds after which everything is told again, should a datagram have been lost."""


class Counted(Struct, frozen=True, tag=True):
    """Some of what a member has counted, and which of its lives it is."""

    member: int
    pid: int
    samples: tuple[Sample, ...] = ()
    topics: tuple[TopicFigures, ...] = ()  # as it saw them last; once in each round


class Recount:
    """In a member: what has changed since it was told, and now and then all of it."""

    def __init__(self, member: int) -> None:
        self._member = member
        self._told: set[Sample] = set()
        self._rounds = 0

    def parts(self, telemetry: Telemetry) -> Iterator[Counted]:
        """In pieces that fit."""
        if self._rounds % WHOLE_EVERY == 0:
            self._told = set()
        self._rounds += 1
        found = telemetry.counted()
        changed = [sample for sample in found if sample not in self._told]
        self._told = set(found)
        if topics := telemetry.topics():
            yield Counted(self._member, os.getpid(), topics=topics)
        for start in range(0, len(changed), SAMPLES_AT_A_TIME):
            yield Counted(self._member, os.getpid(), tuple(changed[start : start + SAMPLES_AT_A_TIME]))


class Counts:
    """In the parent: the last of each member, and the sum of those that have ended."""

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}
        self._last: dict[int, dict[tuple[str, tuple[str, ...]], Sample]] = {}
        self._ended: list[Sample] = []
        self._topics: tuple[TopicFigures, ...] = ()

    def take(self, told: Counted) -> None:
        if self._pids.get(told.member) != told.pid:
            # A counter never goes down: what its life before counted stays.
            self._ended = added_up((*self._ended, *self._last.pop(told.member, {}).values()))
            self._pids[told.member] = told.pid
        last = self._last.setdefault(told.member, {})
        last.update({(sample.name, sample.labels): sample for sample in told.samples})
        if told.topics:
            self._topics = told.topics

    def samples(self) -> Iterator[Sample]:
        """Added up, and the queue as one of them saw it last."""
        yield from added_up((*self._ended, *(one for last in self._last.values() for one in last.values())))
        yield from figures.of_topics(self._topics)
