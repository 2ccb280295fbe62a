"""The last events of a server, in order. Listeners hold positions in it."""

from __future__ import annotations

import re
from collections.abc import Hashable
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid4

from msgspec import Struct

RING_SIZE: Final = 10_000
MAX_ID_LENGTH: Final = 64

_form = re.compile(r"([0-9a-f]{12})-([0-9]{1,18})")


class Kind(StrEnum):
    """What an event is about, as clients see it."""

    TOPIC = "topic"
    """a topic's counts changed"""
    JOB = "job"
    """something happened to a job"""
    GONE = "gone"
    """a job is not there any more"""
    END = "end"
    """all jobs of the stream have finished"""
    RESET = "reset"
    """events were missed: read again"""
    TROUBLE = "trouble"
    """the store cannot be reached"""
    RECOVERED = "recovered"
    """it can be reached again"""


class AboutTopic(Struct, frozen=True):
    """The counts of one topic, of one tenant's jobs or of all (None)."""

    tenant: str | None
    topic: str


class AboutJob(Struct, frozen=True):
    """One job, as those see it who have this view on it."""

    view: Hashable
    job_id: UUID


class Event(Struct, frozen=True, gc=False):
    """One event, written once for everybody. ``about=None`` concerns all."""

    number: int
    about: AboutTopic | AboutJob | None
    text: bytes
    entries: tuple[str, ...] = ()  # of a job's timeline, by id


class Ring:
    """Events by growing numbers. What is coalesced leaves the ring when something newer says the same."""

    def __init__(self, size: int = RING_SIZE) -> None:
        self.epoch = uuid4().hex[:12]  # an id of another server, or of this one before a restart, is not ours
        self.head = 0  # the number of the newest event there ever was
        self._size = size
        self._events: dict[int, Event] = {}
        self._newest: dict[Hashable, int] = {}  # the event that is replaced by the next of its name
        self._lost = 0  # the newest that had to make room

    def __len__(self) -> int:
        return len(self._events)

    def add(
        self,
        about: AboutTopic | AboutJob | None,
        kind: Kind,
        data: bytes,
        *,
        entries: tuple[str, ...] = (),
        replaces: Hashable = None,
    ) -> Event:
        """Append an event; ``replaces`` names those of which only the newest matters."""
        self.head += 1
        text = b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), self.id_at(self.head), data)
        event = self._events[self.head] = Event(self.head, about, text, entries)
        if replaces is not None:
            self._events.pop(self._newest.pop(replaces, 0), None)
            self._newest[replaces] = self.head
        while len(self._events) > self._size:
            self._lost = next(iter(self._events))
            del self._events[self._lost]
        if len(self._newest) > 2 * self._size:
            # Names whose events had to make room: those still there are the only ones worth replacing.
            self._newest = {name: number for name, number in self._newest.items() if number in self._events}
        return event

    def holds(self, position: int) -> bool:
        """Whether everything after this position that matters is still there."""
        return self._lost <= position <= self.head

    def after(self, position: int) -> list[Event]:
        """What came after it, oldest first."""
        if position >= self.head:
            return []
        newer = []
        for number in reversed(self._events):  # a dict walks backwards from its newest without a search
            if number <= position:
                break
            newer.append(self._events[number])
        newer.reverse()
        return newer

    def id_at(self, position: int) -> bytes:
        """A position as clients know it."""
        return b"%s-%d" % (self.epoch.encode(), position)

    def position_of(self, event_id: str) -> int | None:
        """The position a client names; None when it is not one of this ring, or what followed is lost."""
        match = _form.fullmatch(event_id)
        if match is None or match[1] != self.epoch:
            return None
        position = int(match[2])
        return position if self.holds(position) else None

    def told_about(self, job: AboutJob) -> frozenset[str]:
        """Which entries of a job's timeline are in the ring."""
        events = (event for event in self._events.values() if event.entries and event.about == job)
        return frozenset(entry for event in events for entry in event.entries)
