"""Jobs written in transactions of others: whoever waits is told once such a transaction has committed.

Most of them tell by themselves (``enqueue_given``). This is for those that found another one about to do so,
which may commit before them: their state is asked for, all that are open at once, until it is known.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidewheel.errors import TidewheelError
from tidewheel.stores.joining import Untold
from tidewheel.stores.postgres.database import Database, Record
from tidewheel.stores.queries import Queries

REST_SECONDS: Final = 0.2
"""Between two looks. With 0.05 s, eight who commit all the time lost a sixth of their rate."""
LONGEST_SECONDS: Final = 600.0
"""A transaction that is older is left to those who poll."""
MOST: Final = 10_000
"""Transactions that are waited for; of more, the oldest are announced at once, which does no harm."""

_sql = Queries("tidewheel.stores.postgres.sql", "verbs.sql")
_log = logging.getLogger("tidewheel.postgres")


@dataclass(slots=True)
class _Open:
    since: float
    places: dict[str, int]


class Herald:
    """Waits for the ends of transactions, for one store."""

    def __init__(self, database: Database, ready: Callable[[Mapping[str, int]], None]) -> None:
        self._database = database
        self._ready = ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._new: deque[Untold] = deque()  # from any thread
        self._open: dict[str, _Open] = {}
        self._looking = False  # somebody will look at what is new
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """On the event loop of the store."""
        self._loop = asyncio.get_running_loop()

    def expect(self, untold: Untold) -> None:
        """Tell of its places once the transaction has committed. From any thread, and cheap while others are
        waited for: nobody is woken up for it.
        """
        self._new.append(untold)
        if not self._looking and self._loop is not None:
            self._looking = True
            self._loop.call_soon_threadsafe(self._start)

    def close(self) -> None:
        """Nobody will look any more: say it now, it is only a hint."""
        self._loop = None
        if self._task is not None:
            self._task.cancel()
        self._take_in()
        for one in self._open.values():
            self._ready(one.places)
        self._open.clear()

    def _start(self) -> None:
        if self._task is None and self._loop is not None:
            self._task = self._loop.create_task(self._look())

    async def _look(self) -> None:
        try:
            while self._take_in():
                await asyncio.sleep(REST_SECONDS)
                self._heard(await self._database.fetch(_sql["ends"], list(self._open)))
        except TidewheelError as error:
            self._open.clear()
            # Whoever polls finds the jobs.
            _log.debug("the ends of some transactions were not seen: %s", error)
        finally:
            self._task = None
            self._looking = False
            if self._new:  # came in just now, while it still looked as if somebody would see it
                self._looking = True
                self._start()

    def _take_in(self) -> bool:
        """What is new; whether there is anything to wait for."""
        while self._new:
            untold = self._new.popleft()
            known = self._open.get(untold.transaction)
            if known is None:
                if len(self._open) >= MOST:
                    self._ready(self._open.pop(next(iter(self._open))).places)
                known = self._open[untold.transaction] = _Open(time.monotonic(), {})
            for topic, number in untold.places.items():
                known.places[topic] = min(number, known.places.get(topic, number))
        return bool(self._open)

    def _heard(self, ends: Sequence[Record]) -> None:
        for transaction, state in ends:
            if state == "committed":
                self._ready(self._open[transaction].places)
            age = time.monotonic() - self._open[transaction].since
            if state != "in progress" or age > LONGEST_SECONDS:
                del self._open[transaction]
