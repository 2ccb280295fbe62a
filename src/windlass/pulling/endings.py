"""How jobs end that were pulled by hand: many callers, one write.

Whoever ends a job waits for the write to be durable. What comes in while one batch is being written is the
next one, so a hundred clients who end a job each share a handful of commits.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine

from windlass.errors import StoreError, StoreUnavailable
from windlass.model import Settlement
from windlass.pulling.listing import Listing
from windlass.pulling.rounds import Rounds
from windlass.stores.protocol import MAX_BATCH, Store

_Waiting = tuple[Settlement, "asyncio.Future[bool]", frozenset[str] | None]


class Endings:
    """Settlements on their way to the store. Lives on one event loop, next to its store."""

    def __init__(
        self,
        store: Store,
        rounds: Rounds,
        listing: Listing,
        claim_ahead: Callable[[frozenset[str], int], Coroutine[None, None, None]],
    ) -> None:
        self._store = store
        self._rounds = rounds
        self._listing = listing
        self._claim_ahead = claim_ahead
        self._claiming: set[asyncio.Task[None]] = set()
        self._waiting: deque[_Waiting] = deque()
        self._writing: asyncio.Task[None] | None = None

    def settle(self, settlement: Settlement, then: frozenset[str] | None = None) -> asyncio.Future[bool]:
        """End this lease; False when it is no longer held. The write goes on when nobody waits for it."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((settlement, answer, then))
        self._rounds.called()
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="windlass-endings")
        return answer

    async def written(self) -> None:
        """When all that waits for the next write is written, well or badly."""
        if self._waiting:
            await asyncio.wait((self._waiting[-1][1],))

    async def close(self) -> None:
        """Wait until everything that was handed in is written."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        if self._claiming:
            await asyncio.wait(self._claiming)

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._rounds.gather()
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]
                await self._write_together(batch)
                self._rounds.answered(len(batch))
        finally:
            self._writing = None
            while self._waiting:  # only when this was cancelled: the event loop ends
                self._waiting.popleft()[1].cancel()

    async def _write_together(self, batch: list[_Waiting]) -> None:
        # Two tasks that begin one right after the other, so that SQLite's writer gets both at once.
        settlements = [settlement for settlement, _, _ in batch]
        writing = asyncio.create_task(self._store.settle(settlements))
        self._begin_claiming(batch)
        try:
            answers = await writing
        except asyncio.CancelledError:
            for _, answer, _ in batch:
                answer.cancel()
            raise
        except Exception as error:
            if len(batch) > 1 and isinstance(error, StoreError) and not isinstance(error, StoreUnavailable):
                # Something the store will not take: its neighbours must not suffer for it.
                for one in batch:
                    await self._write_together([one])
                return
            for _, answer, _ in batch:
                if not answer.done():
                    answer.set_exception(error)
        else:
            for (settlement, answer, _), held in zip(batch, answers, strict=True):
                self._listing.let_go(settlement.lease, held=held)
                if not answer.done():
                    answer.set_result(held)

    def _begin_claiming(self, batch: list[_Waiting]) -> None:
        """For those who will ask for the next job, if all of them will ask for the same topics."""
        expected = Counter(then for _, _, then in batch if then is not None)
        if len(expected) == 1:
            claiming = asyncio.create_task(self._claim_ahead(*expected.popitem()))
            self._claiming.add(claiming)
            claiming.add_done_callback(self._claiming.discard)
