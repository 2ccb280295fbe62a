"""How jobs end that were pulled by hand: many callers, one write.

Whoever ends a job waits for the write to be durable. What comes in while one batch is being written is the
next one, so a hundred clients who end a job each share a handful of commits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from windlass.errors import StoreError, StoreUnavailable
from windlass.model import Settlement
from windlass.pulling.listing import Listing
from windlass.pulling.rounds import Rounds
from windlass.stores.protocol import MAX_BATCH, Store


class _Ending(NamedTuple):
    settlement: Settlement
    answer: asyncio.Future[bool]
    quick: bool  # its holder will call again at once


class Endings:
    """Settlements on their way to the store. Lives on one event loop, next to its store."""

    def __init__(
        self,
        store: Store,
        rounds: Rounds,
        listing: Listing,
        claim_alongside: Callable[[], None],
    ) -> None:
        self._store = store
        self._rounds = rounds
        self._listing = listing
        self._claim_alongside = claim_alongside
        self._waiting: deque[_Ending] = deque()
        self._writing: asyncio.Task[None] | None = None

    def settle(self, settlement: Settlement, *, quick: bool) -> asyncio.Future[bool]:
        """End this lease; False when it is no longer held. The write goes on when nobody waits for it."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Ending(settlement, answer, quick))
        self._rounds.called()
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="windlass-endings")
        return answer

    async def written(self) -> None:
        """When all that waits for the next write is written, well or badly."""
        if self._waiting:
            await asyncio.wait((self._waiting[-1].answer,))

    async def close(self) -> None:
        """Wait until everything that was handed in is written."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._rounds.gather()
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]
                await self._write_together(batch)
                self._rounds.answered(sum(ending.quick for ending in batch))
        finally:
            self._writing = None
            while self._waiting:  # only when this was cancelled: the event loop ends
                self._waiting.popleft().answer.cancel()

    async def _write_together(self, batch: list[_Ending]) -> None:
        # Two tasks that begin one right after the other, so that SQLite's writer gets both at once.
        settlements = [ending.settlement for ending in batch]
        writing = asyncio.create_task(self._store.settle(settlements))
        self._claim_alongside()
        try:
            answers = await writing
        except asyncio.CancelledError:
            for ending in batch:
                ending.answer.cancel()
            raise
        except Exception as error:
            if len(batch) > 1 and isinstance(error, StoreError) and not isinstance(error, StoreUnavailable):
                # Something the store will not take: its neighbours must not suffer for it.
                for one in batch:
                    await self._write_together([one])
                return
            for ending in batch:
                if not ending.answer.done():
                    ending.answer.set_exception(error)
        else:
            for ending, held in zip(batch, answers, strict=True):
                self._listing.let_go(ending.settlement.lease, held=held)
                if not ending.answer.done():
                    ending.answer.set_result(held)
