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
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import SettleResult, Store
from tidewheel.worker.active_jobs import ActiveJob, ActiveJobs
from tidewheel.worker.async_waits import wait_for_first
from tidewheel.worker.backoff import Backoff, RecoverySignal, delay_after_failures
from tidewheel.worker.callback_runner import CallbackRunner
from tidewheel.worker.observers import Observers

MAX_PENDING = 5 * MAX_BATCH
MAX_DRAIN_PAUSE_SECONDS = 0.2
"""Longest pause between tries once the worker is ending."""

_log = logging.getLogger("tidewheel.worker")

PendingSettlement = tuple[ActiveJob, Settlement]


@dataclass(slots=True)
class OutcomeCounts:
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
        active_jobs: ActiveJobs,
        on_settled: Callable[[Sequence[ActiveJob]], None],
        callbacks: CallbackRunner,
        clock: Clock,
        recovery: RecoverySignal,
        observers: Observers | None = None,
    ) -> None:
        self._store = store
        self._active_jobs = active_jobs
        self._on_settled = on_settled
        self._callbacks = callbacks
        self._clock = clock
        self._waiting: deque[PendingSettlement] = deque()
        self._rejected: deque[PendingSettlement] = deque()  # by a store that is there
        self._reject_backoff = 0  # times in a row that something was refused
        self._rejected_until = 0.0  # by the loop's clock: when to try those again
        self._changed = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._draining = asyncio.Event()  # the worker ends: no long pauses any more
        self._backoff = Backoff("settling finished jobs", recovery)
        self._observers = observers
        self.tally = OutcomeCounts()

    @property
    def full(self) -> bool:
        return len(self._waiting) + len(self._rejected) >= MAX_PENDING

    @property
    def idle(self) -> bool:
        return self._empty.is_set()

    def add(self, active: ActiveJob, settlement: Settlement) -> None:
        active.settling = True
        if not self._waiting:  # the others of a batch have nothing new to tell
            self._empty.clear()
            self._changed.set()
        self._waiting.append((active, settlement))

    def record_written(self, active: ActiveJob, settlement: Settlement, *, accepted: bool) -> None:
        """An outcome that the handler's own transaction has carried to the store."""
        self._settled(((active, settlement),), [accepted])

    async def run(self) -> None:
        """Write outcomes until cancelled."""
        while True:
            if not self._waiting and not self._rejected:
                self._empty.set()
                self._changed.clear()
                await self._changed.wait()
                # The claim that follows from the same news reaches the store now, and may share a commit.
                await asyncio.sleep(0)
            left = self._rejected_until - asyncio.get_running_loop().time()
            if self._rejected and left <= 0:
                await self._write(self._rejected, self._write_one_by_one)
            elif self._waiting:
                await self._write(self._waiting, self._write_together)
            else:
                self._changed.clear()
                await wait_for_first(self._changed.wait(), asyncio.sleep(left))

    async def _write(
        self,
        source: deque[PendingSettlement],
        write: Callable[[deque[PendingSettlement]], Coroutine[Any, Any, None]],
    ) -> None:
        """One batch, or a pause after a failure. ``write`` takes from the batch what is dealt with."""
        batch = deque(source.popleft() for _ in range(min(len(source), MAX_BATCH)))
        try:
            await write(batch)
        except (StoreUnavailable, UsedAfterFork) as error:
            self._waiting.extendleft(reversed(batch))
            delay = self._backoff.record_failure(error)
            if self._draining.is_set():
                await asyncio.sleep(min(delay, MAX_DRAIN_PAUSE_SECONDS))
            else:
                await wait_for_first(self._backoff.pause(delay), self._draining.wait())
        except asyncio.CancelledError:
            self._waiting.extendleft(reversed(batch))
            raise

    async def _write_together(self, batch: deque[PendingSettlement]) -> None:
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

    async def _write_one_by_one(self, batch: deque[PendingSettlement]) -> None:
        while batch:
            active, settlement = batch[0]
            try:
                answers = await self._store.settle([settlement])
            except (StoreUnavailable, UsedAfterFork):
                raise
            except StoreError as error:
                self._reject(active, settlement, error)
            except Exception:
                _log.exception(
                    "the outcome of job %s cannot be written; its lease will end", active.job.lease.job_id
                )
                self.drop_lost(active)
            else:
                self._settled((batch[0],), answers)
            batch.popleft()
        now = asyncio.get_running_loop().time()
        if not self._rejected:
            self._reject_backoff = 0
        elif now >= self._rejected_until:  # what was refused since must not put off what waits longer
            self._reject_backoff += 1
            pause = delay_after_failures(self._reject_backoff)
            self._rejected_until = now + (
                min(pause, MAX_DRAIN_PAUSE_SECONDS) if self._draining.is_set() else pause
            )

    def _reject(self, active: ActiveJob, settlement: Settlement, error: StoreError) -> None:
        """Try again later; not for ever, or the lease would be kept for ever, and the job stay running."""
        now = self._clock.monotonic()
        if active.first_rejected_at is None:
            active.first_rejected_at = now
            if not self._rejected:
                _log.error("an outcome was refused; trying again for as long as its job's lease: %s", error)
        if now - active.first_rejected_at <= active.job.lease_seconds:
            self._rejected.append((active, settlement))
            return
        _log.error(
            "the outcome of job %s (%s, attempt %d) was refused for a whole lease, which now ends: %s",
            active.job.lease.job_id,
            active.job.task or active.job.topic,
            active.job.attempt,
            error,
        )
        self.drop_lost(active)

    def _settled(self, batch: Collection[PendingSettlement], answers: list[bool]) -> None:
        self._backoff.record_success()
        self._active_jobs.remove([active for active, _ in batch])
        if isinstance(answers, SettleResult) and answers.replaced_outcomes:
            batch = _stored_outcomes(batch, answers)
        for (active, settlement), accepted in zip(batch, answers, strict=True):
            if accepted and type(settlement.outcome) is Completed:
                self.tally.completed += 1
            else:
                self._count(active, settlement, accepted=accepted)
        if self._observers is not None:
            self._observers.on_settled(batch, answers)
        if (
            self._callbacks.has_callbacks
        ):  # before the next: a worker that waits to be idle must see that they wait
            self._callbacks.on_settled(batch, answers)
        self._on_settled([active for active, _ in batch])

    async def drain(self, timeout: float) -> int:
        """Wait until everything is written; how many outcomes could not be, in that time."""
        self._draining.set()
        self._rejected_until = 0.0
        self._changed.set()
        try:
            await asyncio.wait_for(self._empty.wait(), timeout)
        except TimeoutError:
            return len(self._waiting) + len(self._rejected)
        return 0

    def drop_lost(self, active: ActiveJob) -> None:
        """Nothing can be written for this job any more."""
        self._active_jobs.remove((active,))
        self.tally.lost += 1
        self._on_settled((active,))

    def _count(self, active: ActiveJob, settlement: Settlement, *, accepted: bool) -> None:
        tally = self.tally
        if not accepted:
            tally.lost += 1
            _log.warning(
                "the outcome of job %s (%s, attempt %d) was refused: its lease had ended; the job runs again",
                active.job.lease.job_id,
                active.job.task or active.job.topic,
                active.job.attempt,
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


def _stored_outcomes(batch: Collection[PendingSettlement], answers: SettleResult) -> list[PendingSettlement]:
    """With the outcomes that were written in the place of others."""
    return [
        (active, replace(settlement, outcome=answers.replaced_outcomes.get(place, settlement.outcome)))
        for place, (active, settlement) in enumerate(batch)
    ]
