"""What worker processes have counted, told to their parent and added up there.

Figures are told as they are, not what was added since: a datagram that is lost makes them older, not wrong.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from tidewheel.telemetry import figures
from tidewheel.telemetry.figures import TopicFigures
from tidewheel.telemetry.samples import Sample, added_up
from tidewheel.telemetry.telemetry import Telemetry

T = TypeVar("T")

MOST_BYTES: Final = 7000
"""Of figures in one datagram: with all around them less than the 8 KiB that every system lets through."""
WHOLE_EVERY: Final = 30
"""Rounds after which everything is told again, should a datagram have been lost."""


class Counted(Struct, frozen=True, tag=True):
    """Some of what a member has counted, and which of its lives it is."""

    member: int
    pid: int
    samples: tuple[Sample, ...] = ()
    topics: tuple[TopicFigures, ...] = ()  # as it saw them last
    anew: bool = False  # the first of those


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
        pid = os.getpid()
        for index, topics in enumerate(_pieces(telemetry.topics())):
            yield Counted(self._member, pid, topics=topics, anew=index == 0)
        for samples in _pieces(changed):
            yield Counted(self._member, pid, samples)


def _pieces(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    piece: list[T] = []
    size = 0
    for item in items:
        more = len(msgspec.json.encode(item)) + 1
        if piece and size + more > MOST_BYTES:
            yield tuple(piece)
            piece, size = [], 0
        piece.append(item)
        size += more
    if piece:
        yield tuple(piece)


class Counts:
    """In the parent: the last of each member, and the sum of those that have ended."""

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}
        self._last: dict[int, dict[tuple[str, tuple[str, ...]], Sample]] = {}
        self._ended: list[Sample] = []
        self._topics: dict[str, TopicFigures] = {}  # all members see the same, so the last one told counts

    def take(self, told: Counted) -> None:
        if self._pids.get(told.member) != told.pid:
            # A counter never goes down: what its life before counted stays.
            self._ended = added_up((*self._ended, *self._last.pop(told.member, {}).values()))
            self._pids[told.member] = told.pid
        last = self._last.setdefault(told.member, {})
        last.update({(sample.name, sample.labels): sample for sample in told.samples})
        if told.anew:
            self._topics = {}
        self._topics.update({topic.topic: topic for topic in told.topics})

    def samples(self) -> Iterator[Sample]:
        """Added up, and the queue as one of them saw it last."""
        yield from added_up((*self._ended, *(one for last in self._last.values() for one in last.values())))
        yield from figures.of_topics(self._topics.values())
