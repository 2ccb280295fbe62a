"""Remove finished jobs past their retention: a little at a time, and by one process at a time.

A batch takes a moment, then the pruner rests several times as long. That moment is measured where it is felt:
on a busy database or a busy event loop a batch takes longer, and so does the rest after it. How long others
are kept waiting by one batch is the store's to bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

from tidewheel.clock import Clock, seconds_to_microseconds
from tidewheel.model import NewDocument, State
from tidewheel.stores.protocol import MAX_BATCH, Store
from tidewheel.worker.observers import Observers

SHARE: Final = 0.1
"""Of the time, in which a pruner with a backlog is at work."""
LONGEST_REST: Final = 0.5
"""However busy everything is: jobs that finish meanwhile have to go some day, too."""
TURN_SECONDS: Final = 60.0
"""After this a worker that died with the turn has lost it."""
TURN_KIND: Final = "turn"
TURN: Final = "prune"

_log = logging.getLogger("tidewheel.worker")


def rest_after(seconds: float) -> float:
    """How long to leave the store to others after a batch that took so long."""
    return min(seconds * (1 / SHARE - 1), LONGEST_REST)


class Pruner:
    """Removes what is overdue, for as long as it takes."""

    def __init__(self, store: Store, clock: Clock, observers: Observers | None = None) -> None:
        self._store = store
        self._clock = clock
        self._observers = observers
        self._turn = _Turn(store, clock)
        self.pruned: Counter[State] = Counter()
        """how many jobs of each state this one has removed"""

    async def work_off(self) -> int:
        """Remove what is overdue; how many jobs. Somebody else may be at it: then a single batch."""
        total = removed = await self._remove()
        if not removed or not await self._turn.take():
            return total
        began = self._clock.monotonic()
        try:
            while removed:
                if not await self._turn.keep():
                    break
                removed = await self._remove()
                total += removed
        finally:
            _log.info("pruned %d finished jobs in %.1f s", total, self._clock.monotonic() - began)
        await self._turn.give_up()
        return total

    async def _remove(self) -> int:
        """One batch, and the rest after it."""
        began = self._clock.monotonic()
        pruned = await self._store.prune(MAX_BATCH)
        took = self._clock.monotonic() - began
        self.pruned.update(pruned)
        if self._observers is not None:
            self._observers.pruned(pruned)
        removed = sum(pruned.values())
        if removed:
            await asyncio.sleep(rest_after(took))
        return removed


class _Turn:
    """The right to work off a backlog, which one worker of all has: a document that expires."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._version: int | None = None
        self._written = 0.0

    async def take(self) -> bool:
        return await self._write(0, TURN_SECONDS)

    async def keep(self) -> bool:
        """False when another has it: this worker was stopped for longer than it holds."""
        if self._clock.monotonic() - self._written < TURN_SECONDS / 3:
            return True
        return await self._write(self._version or 0, TURN_SECONDS)

    async def give_up(self) -> None:
        if self._version is not None:
            await self._write(self._version, 0.0)
            self._version = None

    async def _write(self, only_version: int, seconds: float) -> bool:
        expires_at = await self._store.now() + seconds_to_microseconds(seconds)
        document = NewDocument(TURN_KIND, TURN, b"{}", expires_at, only_version)
        [self._version] = await self._store.write_documents([document])
        self._written = self._clock.monotonic()
        return self._version is not None
