"""Outcomes on their way to the store, in batches.

Whatever gathers while one batch is being written makes the next one. When the store cannot be reached the
outcomes stay here, their leases are kept alive by the keeper if it gets through, and they are settled when
the store is back. ``full`` is the back-pressure: no new handlers start while too much waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windlass.errors import StoreError
from windlass.model import Settlement
from windlass.outcome import Cancelled, Completed, Failed, Released, Retried
from windlass.stores.protocol import MAX_BATCH, Store
from windlass.worker.backoff import Backoff
from windlass.worker.held import Held, HeldJobs
from windlass.worker.waiting import Recovery, first_of

FULL = 5 * MAX_BATCH
HURRIED_SECONDS = 0.2
"""Longest pause between tries once the worker is ending."""

_log = logging.getLogger("windlass.worker")


@dataclass(slots=True)
class Tally:
    """What this worker has settled so far."""

    completed: int = 0
    retried: int = 0
    failed: int = 0
    cancelled: int = 0
    released: int = 0
    lost: int = 0

    @property
    def ran(self) -> int:
        """Attempts that were run and whose outcome was accepted."""
        return self.completed + self.retried + self.failed + self.cancelled


class Settler:
    """Collects outcomes and writes them."""

    def __init__(
        self,
        store: Store,
        held: HeldJobs,
        on_settled: Callable[[Sequence[Held]], None],
        recovery: Recovery,
    ) -> None:
        self._store = store
        self._held = held
        self._on_settled = on_settled
        self._waiting: deque[tuple[Held, Settlement]] = deque()
        self._news = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._hurry = asyncio.Event()  # the worker ends: no long pauses any more
        self._backoff = Backoff("settling finished jobs", recovery)
        self.tally = Tally()

    @property
    def full(self) -> bool:
        return len(self._waiting) >= FULL

    @property
    def idle(self) -> bool:
        return self._empty.is_set()

    def add(self, held: Held, settlement: Settlement) -> None:
        held.settling = True
        self._waiting.append((held, settlement))
        self._empty.clear()
        self._news.set()

    async def run(self) -> None:
        """Write outcomes until cancelled."""
        while True:
            if not self._waiting:
                self._empty.set()
                self._news.clear()
                await self._news.wait()
            await self.write_some()

    async def write_some(self) -> None:
        """One batch, or a pause after a failure."""
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]
        try:
            answers = await self._store.settle([settlement for _, settlement in batch])
        except StoreError as error:
            self._waiting.extendleft(reversed(batch))
            delay = self._backoff.failed(error)
            if self._hurry.is_set():
                await asyncio.sleep(min(delay, HURRIED_SECONDS))
            else:
                await first_of(self._backoff.pause(delay), self._hurry.wait())
        except asyncio.CancelledError:
            self._waiting.extendleft(reversed(batch))
            raise
        except Exception:
            # Some outcome the store cannot take, which is a bug. Its neighbours must not suffer for it.
            _log.exception("a batch of %d outcomes could not be written", len(batch))
            await self._write_one_by_one(batch)
        else:
            self._backoff.reset()
            self._settled(batch, answers)

    async def _write_one_by_one(self, batch: list[tuple[Held, Settlement]]) -> None:
        for held, settlement in batch:
            try:
                answers = await self._store.settle([settlement])
            except StoreError:
                self._waiting.append((held, settlement))
            except Exception:
                _log.exception(
                    "the outcome of job %s cannot be written; its lease will end", held.job.lease.job_id
                )
                self.lost(held)
            else:
                self._settled([(held, settlement)], answers)

    def _settled(self, batch: list[tuple[Held, Settlement]], answers: list[bool]) -> None:
        for (held, settlement), accepted in zip(batch, answers, strict=True):
            self._held.drop(held)
            self._count(held, settlement, accepted=accepted)
        self._on_settled([held for held, _ in batch])

    async def drain(self, timeout: float) -> int:
        """Wait until everything is written; how many outcomes could not be, in that time."""
        self._hurry.set()
        try:
            await asyncio.wait_for(self._empty.wait(), timeout)
        except TimeoutError:
            return len(self._waiting)
        return 0

    def lost(self, held: Held) -> None:
        """Nothing can be written for this job any more."""
        self._held.drop(held)
        self.tally.lost += 1
        self._on_settled((held,))

    def _count(self, held: Held, settlement: Settlement, *, accepted: bool) -> None:
        tally = self.tally
        if not accepted:
            tally.lost += 1
            _log.warning(
                "the outcome of job %s (%s, attempt %d) was refused: its lease had ended; the job runs again",
                held.job.lease.job_id,
                held.job.task or held.job.topic,
                held.job.attempt,
            )
        else:
            match settlement.outcome:
                case Completed():
                    tally.completed += 1
                case Retried():
                    tally.retried += 1
                case Failed():
                    tally.failed += 1
                case Cancelled():
                    tally.cancelled += 1
                case Released():
                    tally.released += 1
