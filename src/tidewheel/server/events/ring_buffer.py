"""The last events of a server, in order. Listeners hold positions in it."""

from __future__ import annotations

import base64
import hmac
import os
import re
from collections.abc import Hashable
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

RING_SIZE: Final = 10_000
MAX_ID_LENGTH: Final = 64

_PART_BYTES: Final = 8
_form = re.compile(r"[A-Za-z0-9_-]{32}")


class EventKind(StrEnum):
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


class TopicSubject(Struct, frozen=True):
    """The counts of one topic, of one tenant's jobs or of all (None)."""

    tenant: str | None
    topic: str


class JobSubject(Struct, frozen=True):
    """One job, as those see it who have this view on it."""

    scope: Hashable
    job_id: UUID


class Event(Struct, frozen=True, gc=False):
    """One event, written once for everybody. ``subject=None`` concerns all."""

    number: int
    subject: TopicSubject | JobSubject | None
    text: bytes
    entries: tuple[str, ...] = ()  # of a job's timeline, by id


class EventRing:
    """Events by growing numbers. What is coalesced leaves the ring when something newer says the same."""

    def __init__(self, size: int = RING_SIZE) -> None:
        self._secret = os.urandom(32)  # an id of another server, or of this one before a restart, is not ours
        self.head = 0  # the number of the newest event there ever was
        self._size = size
        self._events: dict[int, Event] = {}
        self._newest_by_key: dict[Hashable, int] = {}  # the event that is replaced by the next of its name
        self._last_dropped = 0  # the newest that had to make room

    def __len__(self) -> int:
        return len(self._events)

    def add(
        self,
        subject: TopicSubject | JobSubject | None,
        kind: EventKind,
        data: bytes,
        *,
        entries: tuple[str, ...] = (),
        replaces: Hashable = None,
    ) -> Event:
        """Append an event; ``replaces`` names those of which only the newest matters."""
        self.head += 1
        text = b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), self.id_at(self.head), data)
        event = self._events[self.head] = Event(self.head, subject, text, entries)
        if replaces is not None:
            self._events.pop(self._newest_by_key.pop(replaces, 0), None)
            self._newest_by_key[replaces] = self.head
        while len(self._events) > self._size:
            self._last_dropped = next(iter(self._events))
            del self._events[self._last_dropped]
        if len(self._newest_by_key) > 2 * self._size:
            # Names whose events had to make room: those still there are the only ones worth replacing.
            self._newest_by_key = {
                name: number for name, number in self._newest_by_key.items() if number in self._events
            }
        return event

    def holds(self, position: int) -> bool:
        """Whether everything after this position that matters is still there."""
        return self._last_dropped <= position <= self.head

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
        """A position as clients know it: a text that is another one each time, and opens for this ring alone.

        All tenants' events are in one ring. A number, or a text that stays until the next event, would tell
        one of them how much happens among the others.
        """
        salt = os.urandom(_PART_BYTES)
        number = position.to_bytes(_PART_BYTES, "big")
        hidden = bytes(a ^ b for a, b in zip(number, self._digest(b"mask", salt), strict=True))
        return base64.urlsafe_b64encode(salt + hidden + self._digest(b"seal", salt + hidden))

    def position_of(self, event_id: str) -> int | None:
        """The position a client names; None when it is not one of this ring, or what followed is lost."""
        if _form.fullmatch(event_id) is None:
            return None
        whole = base64.urlsafe_b64decode(event_id)
        salt, hidden, seal = (whole[at : at + _PART_BYTES] for at in range(0, 3 * _PART_BYTES, _PART_BYTES))
        if not hmac.compare_digest(seal, self._digest(b"seal", salt + hidden)):
            return None
        number = bytes(a ^ b for a, b in zip(hidden, self._digest(b"mask", salt), strict=True))
        position = int.from_bytes(number, "big")
        return position if self.holds(position) else None

    def _digest(self, purpose: bytes, data: bytes) -> bytes:
        return hmac.digest(self._secret, purpose + data, "sha256")[:_PART_BYTES]

    def entries_of(self, job: JobSubject) -> frozenset[str]:
        """Which entries of a job's timeline are in the ring."""
        events = (event for event in self._events.values() if event.entries and event.subject == job)
        return frozenset(entry for event in events for entry in event.entries)
