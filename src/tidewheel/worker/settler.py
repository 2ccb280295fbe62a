"""Outcomes on their way to the store, in batches.

Whatever gathers while one batch is being written makes the next one. When the store cannot be reached the
outcomes stay here, their leases are kept alive by the keeper if it gets through, and they are settled when
the store is back. One that the store refuses though it is there is tried again apart from the others, for as
long as a lease. ``full`` is the back-pressure: no new handlers start while too much waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from tidewheel.core.clock import Clock
from tidewheel.core.model import Cancelled, Completed, Failed, Released, Retried, Settlement
from tidewheel.errors import StoreError, StoreUnavailable, UsedAfterFork
from tidewheel.stores.protocol import MAX_BATCH, Answers, Store
from tidewheel.worker.active_jobs import Held, HeldJobs
from tidewheel.worker.async_waits import Recovery, first_of
from tidewheel.worker.backoff import Backoff, pause_after
from tidewheel.worker.callback_runner import CallbackRunner
from tidewheel.worker.observers import Observers

FULL = 5 * MAX_BATCH
HURRIED_SECONDS = 0.2
"""Longest pause between tries once the worker is ending."""

_log = logging.getLogger("tidewheel.worker")

Outgoing = tuple[Held, Settlement]


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
        callbacks: CallbackRunner,
        clock: Clock,
        recovery: Recovery,
        observers: Observers | None = None,
    ) -> None:
        self._store = store
        self._held = held
        self._on_settled = on_settled
        self._callbacks = callbacks
        self._clock = clock
        self._waiting: deque[Outgoing] = deque()
        self._refused: deque[Outgoing] = deque()  # by a store that is there
        self._refusals = 0  # times in a row that something was refused
        self._refused_until = 0.0  # by the loop's clock: when to try those again
        self._news = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._hurry = asyncio.Event()  # the worker ends: no long pauses any more
        self._backoff = Backoff("settling finished jobs", recovery)
        self._observers = observers
        self.tally = Tally()

    @property
    def full(self) -> bool:
        return len(self._waiting) + len(self._refused) >= FULL

    @property
    def idle(self) -> bool:
        return self._empty.is_set()

    def add(self, held: Held, settlement: Settlement) -> None:
        held.settling = True
        if not self._waiting:  # the others of a batch have nothing new to tell
            self._empty.clear()
            self._news.set()
        self._waiting.append((held, settlement))

    def written(self, held: Held, settlement: Settlement, *, accepted: bool) -> None:
        """An outcome that the handler's own transaction has carried to the store."""
        self._settled(((held, settlement),), [accepted])

    async def run(self) -> None:
        """Write outcomes until cancelled."""
        while True:
            if not self._waiting and not self._refused:
                self._empty.set()
                self._news.clear()
                await self._news.wait()
                # The claim that follows from the same news reaches the store now, and may share a commit.
                await asyncio.sleep(0)
            left = self._refused_until - asyncio.get_running_loop().time()
            if self._refused and left <= 0:
                await self._write(self._refused, self._write_one_by_one)
            elif self._waiting:
                await self._write(self._waiting, self._write_together)
            else:
                self._news.clear()
                await first_of(self._news.wait(), asyncio.sleep(left))

    async def _write(
        self, source: deque[Outgoing], write: Callable[[deque[Outgoing]], Coroutine[Any, Any, None]]
    ) -> None:
        """One batch, or a pause after a failure. ``write`` takes from the batch what is dealt with."""
        batch = deque(source.popleft() for _ in range(min(len(source), MAX_BATCH)))
        try:
            await write(batch)
        except (StoreUnavailable, UsedAfterFork) as error:
            self._waiting.extendleft(reversed(batch))
            delay = self._backoff.failed(error)
            if self._hurry.is_set():
                await asyncio.sleep(min(delay, HURRIED_SECONDS))
            else:
                await first_of(self._backoff.pause(delay), self._hurry.wait())
        except asyncio.CancelledError:
            self._waiting.extendleft(reversed(batch))
            raise

    async def _write_together(self, batch: deque[Outgoing]) -> None:
        try:
            answers = await self._store.settle([settlement for _, settlement in batch])
        except (StoreUnavailable, UsedAfterFork):
            raise
        except Exception as error:
            # Some outcome the store will not take. Its neighbours must not suffer for it.
            if not isinstance(error, StoreError):  # which is a bug
                _log.exception("a batch of %d outcomes could not be written", len(batch))
            await self._write_one_by_one(batch)
        else:
            self._settled(batch, answers)
            batch.clear()

    async def _write_one_by_one(self, batch: deque[Outgoing]) -> None:
        while batch:
            held, settlement = batch[0]
            try:
                answers = await self._store.settle([settlement])
            except (StoreUnavailable, UsedAfterFork):
                raise
            except StoreError as error:
                self._refuse(held, settlement, error)
            except Exception:
                _log.exception(
                    "the outcome of job %s cannot be written; its lease will end", held.job.lease.job_id
                )
                self.lost(held)
            else:
                self._settled((batch[0],), answers)
            batch.popleft()
        now = asyncio.get_running_loop().time()
        if not self._refused:
            self._refusals = 0
        elif now >= self._refused_until:  # what was refused since must not put off what waits longer
            self._refusals += 1
            pause = pause_after(self._refusals)
            self._refused_until = now + (min(pause, HURRIED_SECONDS) if self._hurry.is_set() else pause)

    def _refuse(self, held: Held, settlement: Settlement, error: StoreError) -> None:
        """Try again later; not for ever, or the lease would be kept for ever, and the job stay running."""
        now = self._clock.monotonic()
        if held.refused_at is None:
            held.refused_at = now
            if not self._refused:
                _log.error("an outcome was refused; trying again for as long as its job's lease: %s", error)
        if now - held.refused_at <= held.job.lease_seconds:
            self._refused.append((held, settlement))
            return
        _log.error(
            "the outcome of job %s (%s, attempt %d) was refused for a whole lease, which now ends: %s",
            held.job.lease.job_id,
            held.job.task or held.job.topic,
            held.job.attempt,
            error,
        )
        self.lost(held)

    def _settled(self, batch: Collection[Outgoing], answers: list[bool]) -> None:
        self._backoff.reset()
        self._held.drop([held for held, _ in batch])
        if isinstance(answers, Answers) and answers.instead:
            batch = _as_written(batch, answers)
        for (held, settlement), accepted in zip(batch, answers, strict=True):
            if accepted and type(settlement.outcome) is Completed:
                self.tally.completed += 1
            else:
                self._count(held, settlement, accepted=accepted)
        if self._observers is not None:
            self._observers.settled(batch, answers)
        if self._callbacks.wanted:  # before the next: a worker that waits to be idle must see that they wait
            self._callbacks.settled(batch, answers)
        self._on_settled([held for held, _ in batch])

    async def drain(self, timeout: float) -> int:
        """Wait until everything is written; how many outcomes could not be, in that time."""
        self._hurry.set()
        self._refused_until = 0.0
        self._news.set()
        try:
            await asyncio.wait_for(self._empty.wait(), timeout)
        except TimeoutError:
            return len(self._waiting) + len(self._refused)
        return 0

    def lost(self, held: Held) -> None:
        """Nothing can be written for this job any more."""
        self._held.drop((held,))
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


def _as_written(batch: Collection[Outgoing], answers: Answers) -> list[Outgoing]:
    """With the outcomes that were written in the place of others."""
    return [
        (held, replace(settlement, outcome=answers.instead.get(place, settlement.outcome)))
        for place, (held, settlement) in enumerate(batch)
    ]
