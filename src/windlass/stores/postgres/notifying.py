"""Telling other processes: NOTIFY outside the transactions it is about, and not more often than is useful.

A NOTIFY inside a transaction holds a lock of the whole database until it is committed, which would make all
enqueues of all processes wait for each other. So it is sent afterwards, by itself; if that never happens,
polling finds the job.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection
from typing import Final

import msgspec

from windlass.errors import StoreError
from windlass.stores.postgres.database import Database
from windlass.stores.queries import Queries

PAUSE_SECONDS: Final = 0.010
"""Between two notifications; the first one goes out at once."""
MOST_TOPICS: Final = 20
MOST_BYTES: Final = 7999
"""More topics than this, or names too long for a notification, are not named: it may be any."""

_sql = Queries("windlass.stores.postgres.sql", "verbs.sql")
_log = logging.getLogger("windlass.postgres")


class Hint(msgspec.Struct, frozen=True, array_like=True):
    """What travels: who says it, the topics with ready jobs (None = any), whether jobs finished."""

    sender: str
    topics: list[str] | None
    finished: bool


class Notifier:
    """Sends hints of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.sender = secrets.token_hex(6)
        self.channel = database.location.schema  # an application's own, as its schema is
        self._topics: set[str] = set()
        self._anywhere = False  # some topic or other, it is not known which
        self._finished = False
        self._sending: asyncio.Task[None] | None = None

    def ready(self, topics: Collection[str]) -> None:
        self._topics.update(topics)
        self._start()

    def ready_anywhere(self) -> None:
        self._anywhere = True
        self._start()

    def finished(self) -> None:
        self._finished = True
        self._start()

    async def close(self) -> None:
        if self._sending is not None:
            await asyncio.wait((self._sending,))

    def _start(self) -> None:
        if self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._topics or self._anywhere or self._finished:
                named = not self._anywhere and len(self._topics) <= MOST_TOPICS
                topics = sorted(self._topics) if named else None
                message = msgspec.json.encode(Hint(self.sender, topics, self._finished))
                if len(message) > MOST_BYTES:
                    message = msgspec.json.encode(Hint(self.sender, None, self._finished))
                self._topics.clear()
                self._anywhere = False
                self._finished = False
                await self._database.fetch(_sql["notify"], self.channel, message.decode())
                await asyncio.sleep(PAUSE_SECONDS)
        except StoreError as error:
            # What it was about is safely written; whoever polls will find it.
            _log.debug("a notification was not sent: %s", error)
        finally:
            self._sending = None
