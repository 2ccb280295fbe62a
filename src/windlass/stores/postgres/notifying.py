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

from windlass.errors import WindlassError
from windlass.stores.freed_room import FreedRoom
from windlass.stores.postgres.database import Database
from windlass.stores.postgres.marks import ANYWHERE
from windlass.stores.queries import Queries

CLOSE_SECONDS: Final = 1.0
TELL_SECONDS: Final = 0.050
"""Max seconds that an enqueue waits until its hint is sent. Its job is written, so polling finds it."""
PAUSE_SECONDS: Final = 0.010
"""Between two notifications; the first one goes out at once."""
MOST_TOPICS: Final = 20
MOST_BYTES: Final = 7999
"""More topics than this, or names too long for a notification, are not named: it may be any."""

_sql = Queries("windlass.stores.postgres.sql", "verbs.sql")
_log = logging.getLogger("windlass.postgres")


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


class Notifier:
    """Sends hints of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.sender = secrets.token_hex(6)
        self.channels = Channels(database.location.schema)
        self._places: dict[str, int] = {}
        self._anywhere = False  # some topic or other, it is not known which
        self._finished = False
        self._sending: asyncio.Task[None] | None = None
        self._first_sent = asyncio.Event()
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
        for topic, number in places.items():
            self._places[topic] = min(number, self._places.get(topic, number))
        if places:
            self._start()

    async def tell(self, places: Mapping[str, int]) -> None:
        """Send a hint before the caller goes on, because it may block the event loop.

        Only if no hint was sent in the last ``PAUSE_SECONDS``; otherwise this one follows after the pause.
        """
        pausing = self._sending is not None
        self.ready(places)
        if not pausing and self._sending is not None:
            try:
                async with asyncio.timeout(TELL_SECONDS):
                    await self._first_sent.wait()
            except TimeoutError:
                _log.debug("a notification takes longer than %g s", TELL_SECONDS)

    def ready_anywhere(self) -> None:
        self._anywhere = True
        self._start()

    def finished(self) -> None:
        self._finished = True
        self._start()

    async def close(self) -> None:
        """Send what is to be sent, if that is quick: it is only a hint."""
        if self._room_told is not None:
            self._room_told.cancel()
            self.ready(dict.fromkeys(self._room.take_all(), ANYWHERE))
        if self._sending is not None:
            await asyncio.wait((self._sending,), timeout=CLOSE_SECONDS)
            if self._sending is not None:
                self._sending.cancel()

    def _start(self) -> None:
        if self._sending is None:
            self._first_sent.clear()
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            while messages := self._take():
                await self._database.fetch(_sql["notify"], list(messages), list(messages.values()))
                self._first_sent.set()
                await asyncio.sleep(PAUSE_SECONDS)
        except WindlassError as error:
            # What it was about is safely written; whoever polls will find it.
            _log.debug("a notification was not sent: %s", error)
        finally:
            self._sending = None
            self._first_sent.set()

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
