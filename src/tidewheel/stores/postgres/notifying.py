"""Telling other processes: NOTIFY outside the transactions it is about, and not more often than is useful.

A NOTIFY inside a transaction holds a lock of the whole database until it is committed, which would make all
enqueues of all processes wait for each other. So it is sent afterwards, by itself; if that never happens,
polling finds the job.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from tidewheel.errors import TidewheelError
from tidewheel.stores.freed_room import FreedRoom
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.marks import ANYWHERE
from tidewheel.stores.queries import Queries

CLOSE_SECONDS: Final = 1.0
TELL_SECONDS: Final = 0.050
"""Max seconds that an enqueue waits until its hint is sent. Its job is written, so polling finds it."""
PAUSE_SECONDS: Final = 0.010
"""Seconds between two notifications of a busy process."""
MAX_AT_ONCE: Final = 5
"""Hints that enqueues may send without a pause, because a caller may block the event loop after each of them.

One more is allowed after each ``PAUSE_SECONDS``, so a busy producer sends as many as if there were one.
"""
MOST_TOPICS: Final = 20
MOST_BYTES: Final = 7999
"""More topics than this, or names too long for a notification, are not named: it may be any."""

_sql = Queries("tidewheel.stores.postgres.sql", "verbs.sql")
_log = logging.getLogger("tidewheel.postgres")


class Hint(msgspec.Struct, frozen=True, array_like=True):
    """What travels: who says it, where jobs became ready, whether jobs finished.

    Places are topics, each with the lowest number of its jobs or ``ANYWHERE``; None: any topic.
    """

    sender: str
    places: dict[str, int] | None
    finished: bool


class Channels:
    """Where hints travel. Two, because few wait for results, and every worker finishes jobs all the time."""

    def __init__(self, schema: str) -> None:  # an application's own, as its schema is
        self.ready = schema
        self.finished = f"{schema}.finished"


class Allowance:
    """How many hints may be sent without a pause: a token bucket that is full at first."""

    def __init__(self) -> None:
        self._left = float(MAX_AT_ONCE)
        self._counted_at = 0.0

    def take(self, now: float) -> bool:
        """Use one up if there is one."""
        if allowed := self.due_in(now) <= 0:
            self._left -= 1
        return allowed

    def due_in(self, now: float) -> float:
        """Return the seconds until one may be sent."""
        self._left = min(MAX_AT_ONCE, self._left + (now - self._counted_at) / PAUSE_SECONDS)
        self._counted_at = now
        return (1 - self._left) * PAUSE_SECONDS


class Notifier:
    """Sends hints of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.sender = secrets.token_hex(6)
        self.channels = Channels(database.location.schema)
        self._places: dict[str, int] = {}
        self._anywhere = False  # some topic or other, it is not known which
        self._finished = False
        self._allowance = Allowance()
        self._following: asyncio.Task[None] | None = None  # sends what is coalesced, with pauses
        self._sending: set[asyncio.Task[None]] = set()  # hints on their way
        self._room = FreedRoom()
        self._room_told: asyncio.TimerHandle | None = None  # when others learn of it

    def room(self, changes: Mapping[str, int]) -> None:
        """So many places of limited topics came free, or were taken (less than zero)."""
        loop = asyncio.get_running_loop()
        self._room.change(changes, loop.time())
        if self._room_told is None and (seconds := self._room.due_in(loop.time())) is not None:
            self._room_told = loop.call_later(seconds, self._tell_of_room)

    def _tell_of_room(self) -> None:
        self._room_told = None
        self.ready(dict.fromkeys(self._room.take_due(asyncio.get_running_loop().time()), ANYWHERE))
        self.room({})

    def ready(self, places: Mapping[str, int]) -> None:
        self._add(places)
        if places:
            self._follow()

    def _add(self, places: Mapping[str, int]) -> None:
        for topic, number in places.items():
            self._places[topic] = min(number, self._places.get(topic, number))

    async def tell(self, places: Mapping[str, int]) -> None:
        """Send a hint before the caller goes on, because it may block the event loop.

        Beyond ``MAX_AT_ONCE`` hints it is coalesced with others and sent after a pause.
        """
        self._add(places)
        if not self._allowance.take(asyncio.get_running_loop().time()):
            self._follow()
            return
        sending = asyncio.create_task(self._send())
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        if not (await asyncio.wait((sending,), timeout=TELL_SECONDS))[0]:
            _log.debug("a notification takes longer than %g s", TELL_SECONDS)

    def ready_anywhere(self) -> None:
        self._anywhere = True
        self._follow()

    def finished(self) -> None:
        self._finished = True
        self._follow()

    async def close(self) -> None:
        """Send what is to be sent, if that is quick: it is only a hint."""
        if self._room_told is not None:
            self._room_told.cancel()
            self.ready(dict.fromkeys(self._room.take_all(), ANYWHERE))
        if sending := {*self._sending, *filter(None, (self._following,))}:
            for late in (await asyncio.wait(sending, timeout=CLOSE_SECONDS))[1]:
                late.cancel()

    def _follow(self) -> None:
        if self._following is None:
            self._following = asyncio.create_task(self._send_with_pauses())

    async def _send_with_pauses(self) -> None:
        now = asyncio.get_running_loop().time
        try:
            while self._places or self._anywhere or self._finished:
                if not self._allowance.take(now()):
                    await asyncio.sleep(self._allowance.due_in(now()))
                    continue
                await self._send()
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._following = None

    async def _send(self) -> None:
        messages = self._take()
        if not messages:
            return
        try:
            await self._database.fetch(_sql["notify"], list(messages), list(messages.values()))
        except TidewheelError as error:
            # What it was about is safely written; whoever polls will find it.
            _log.debug("a notification was not sent: %s", error)

    def _take(self) -> dict[str, str]:
        """What is to be said now, by channel."""
        messages = {}
        if self._places or self._anywhere:
            # Everybody may listen to a channel, and one tenant may not learn of another's topics.
            named = not self._anywhere and not self._database.secured and len(self._places) <= MOST_TOPICS
            message = _encode(Hint(self.sender, self._places if named else None, finished=False))
            if len(message.encode()) > MOST_BYTES:
                message = _encode(Hint(self.sender, None, finished=False))
            messages[self.channels.ready] = message
        if self._finished:
            messages[self.channels.finished] = _encode(Hint(self.sender, {}, finished=True))
        self._places.clear()
        self._anywhere = self._finished = False
        return messages


def _encode(hint: Hint) -> str:
    return msgspec.json.encode(hint).decode()
