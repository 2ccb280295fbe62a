"""One listener: what it wants to hear, and where in the ring it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final

from tidewheel.server.events.ring import Kind, Ring
from tidewheel.server.events.shape import Notice, encode, job_event
from tidewheel.server.events.view import Wish
from tidewheel.server.events.watcher import WatchedJob, WatchedTopics

HEARTBEAT_SECONDS: Final = 15.0
"""After so long without an event a comment is sent."""
LARGEST_WRITE: Final = 64 * 1024
"""Events are put together up to about this size."""
RETRY_MILLISECONDS: Final = 2000
"""How long a client should wait before it comes back."""

_RESET: Final = Notice("what happened since the last event is not known any more; read again what you show")
_END: Final = Notice("all of these jobs have finished")


@dataclass(frozen=True, slots=True)
class Credential:
    """What a listener showed, and whether it is still good. Listeners with equal names are asked for once."""

    name: Hashable
    still_good: Callable[[], Awaitable[bool]]


class Listener:
    """A position in the ring, for somebody with a wish. ``read`` says what to send next."""

    def __init__(self, ring: Ring, wish: Wish, credential: Credential, *, limited: bool = True) -> None:
        self.wish = wish
        self.limited = limited  # counted for its tenant; False for superusers
        self.credential = credential
        self.position = ring.head
        self.heard_at = 0.0  # on the event loop's clock, when something was last sent
        self.ending: str | None = None  # why it ends, once it does
        self.cut: Callable[[], None] | None = None  # ends a connection that cannot be ended in order
        self.topics: WatchedTopics | None = None
        self.jobs: list[WatchedJob] = []
        self._ring = ring
        self._woken: asyncio.Future[None] | None = None

    # -- when ---------------------------------------------------------------------------------------------

    async def wait(self) -> None:
        """Until it is woken."""
        self._woken = asyncio.get_running_loop().create_future()
        try:
            await self._woken
        finally:
            self._woken = None

    def wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def end(self, why: str) -> None:
        """Let it say goodbye and go. The first reason stands."""
        self.ending = self.ending or why
        self.wake()

    # -- what ---------------------------------------------------------------------------------------------

    def begin(self, last_event_id: str | None) -> bytes:
        """The first words: where it stands, and what it has to know before it can follow."""
        ring = self._ring
        resumed = None if last_event_id is None else ring.position_of(last_event_id)
        if resumed is not None and self.topics is not None and resumed < self.topics.since:
            resumed = None
        words = [b"retry: %d\n" % RETRY_MILLISECONDS]
        if resumed is not None:
            self.position = resumed
            words += [b"id: %s\n\n" % ring.id_at(resumed)]
            return b"".join(words)
        self.position = ring.head
        words += [b"id: %s\n\n" % ring.id_at(ring.head)]
        if last_event_id is not None:
            words.append(self._own(Kind.RESET, encode(_RESET)))
        for watched in self.jobs:
            if (job := watched.job) is not None:
                told = job_event(job, list(job.timeline), superuser=self.wish.view.superuser)
                words.append(self._own(Kind.JOB, told))
        return b"".join(words)

    def read(self) -> bytes:
        """What comes next in the ring that it wants, and step over the rest; empty when it is up to date."""
        if not self._ring.holds(self.position):
            return self.begin("")  # it slept too long: this is no id, so it starts anew
        texts: list[bytes] = []
        size = 0
        for event in self._ring.after(self.position):
            if size >= LARGEST_WRITE:
                return b"".join(texts)
            self.position = event.number
            if self.wish.wants(event):
                texts.append(event.text)
                size += len(event.text)
        self.position = self._ring.head
        return b"".join(texts)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to come: it listens to jobs alone, and all of them have ended."""
        return bool(self.jobs) and all(watched.over for watched in self.jobs)

    def farewell(self) -> bytes:
        """The event that says so."""
        return self._own(Kind.END, encode(_END))

    def heartbeat(self) -> bytes:
        """A sign of life, with its place in the ring: quiet streams can be resumed like busy ones."""
        return b": still here\nid: %s\n\n" % self._ring.id_at(self.position)

    def _own(self, kind: Kind, data: bytes) -> bytes:
        """An event for this listener alone, under the id of where it is."""
        at = self._ring.id_at(self.position)
        return b"event: %s\nid: %s\ndata: %s\n\n" % (kind.encode(), at, data)
