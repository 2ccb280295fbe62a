"""Extend the leases of running jobs, on a thread beside the handlers.

The keeper has its own thread, event loop and store connections, so neither a handler that blocks the worker's
loop nor a busy writer delays an extension. Only a C call that never releases the interpreter lock does; such
tasks belong in a process of their own. The keeper is also the watchdog: a lease counts as ended when its last
accepted extension was *sent* longer ago than the lease lasts. Its handler is then stopped.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol, TypeVar

from tidewheel.core.clock import Clock
from tidewheel.errors import ConfigurationError, StoreError
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import Store
from tidewheel.worker.active_jobs import ActiveJob, ActiveJobs, StopReason
from tidewheel.worker.async_waits import cancel_and_wait, with_store_timeout
from tidewheel.worker.backoff import Backoff, RecoverySignal
from tidewheel.worker.heartbeat import WorkerHeartbeat
from tidewheel.worker.stuck_handlers import StuckHandlers

MAX_TICK_SECONDS = 0.5
MIN_TICK_SECONDS = 0.05
MAX_RETRY_SECONDS = 1.0
"""While the store is away it is tried at least this often: leases are running out."""
OPEN_TIMEOUT_SECONDS = 5.0
"""How long connecting may take, before it is tried anew."""
RECORD_START_AFTER_SECONDS = 0.25
"""A handler that has run this long gets its start recorded; most are done before."""

_log = logging.getLogger("tidewheel.worker")

T = TypeVar("T")
StopHandler = Callable[[ActiveJob, StopReason], None]


class LeaseKeeper:
    """What one worker's keeper does: ``run`` on an event loop that is not the worker's."""

    def __init__(
        self,
        store: Store,
        active_jobs: ActiveJobs,
        clock: Clock,
        stop_handler: StopHandler,
        give_back: Callable[[ActiveJob], None],
        give_up: Callable[[ActiveJob], None],
        stuck_handlers: StuckHandlers,
        registrar: WorkerHeartbeat,
        recovery: RecoverySignal,
    ) -> None:
        self._store = store.sibling()
        self._active_jobs = active_jobs
        self._clock = clock
        self._stop_handler = stop_handler
        self._give_back = give_back
        self._give_up = give_up
        self._stuck = stuck_handlers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False  # written by ``stop`` alone, from whatever thread
        self._wake: asyncio.Event | None = None
        self._registrar = registrar
        self._backoff = Backoff("extending leases", recovery, MAX_RETRY_SECONDS)
        self._next_try = 0.0  # by the loop's clock
        self._opening: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Have ``run`` end soon. Does not block; from any thread."""
        self._stopped = True
        self.check_now()

    def check_now(self) -> None:
        """Look at the leases now instead of at the next tick. From any thread."""
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None:
            try:
                loop.call_soon_threadsafe(wake.set)
            except RuntimeError:
                if not loop.is_closed():  # closed: it has already ended
                    raise

    # -- on the keeper's own event loop ---------------------------------------------------------------------

    async def run(self) -> None:
        """Keep leases until ``stop``."""
        self._wake = asyncio.Event()
        loop = self._loop = asyncio.get_running_loop()
        try:
            while not self._stopped:  # read after the loop is known: a stop before that is seen here
                if loop.time() >= self._next_try:
                    try:
                        if self._registrar.started or await self._open():
                            await self._tick()
                    except (StoreError, ConfigurationError) as error:
                        # A store that was opened a moment ago for the worker itself cannot be misconfigured.
                        self._next_try = loop.time() + min(
                            self._backoff.record_failure(error), 2 * self._tick_seconds()
                        )
                self._stop_expired()  # also while the store is away, and then above all
                self._stuck.check()
                await self._pause()
        finally:
            if self._opening is not None:
                await cancel_and_wait((self._opening,))
            if self._registrar.started:
                await self._close()

    async def _open(self) -> bool:
        """Connect, however long it takes; the watchdog has its turns meanwhile. True once that is done."""
        if self._opening is None:
            self._opening = asyncio.create_task(with_store_timeout(OPEN_TIMEOUT_SECONDS, self._store.open()))
        await asyncio.wait((self._opening,), timeout=self._tick_seconds())
        if not self._opening.done():
            return False
        opening, self._opening = self._opening, None
        opening.result()
        self._registrar.start(self._store)
        return True

    async def _close(self) -> None:
        await self._registrar.stop(self._store)
        try:
            await self._store.close()
        except StoreError as error:
            _log.warning("the keeper's store could not be closed properly: %s", error)

    def _tick_seconds(self) -> float:
        return max(MIN_TICK_SECONDS, min(MAX_TICK_SECONDS, self._shortest_lease() / 8))

    def _shortest_lease(self) -> float:
        return min((active.job.lease_seconds for active in self._active_jobs.snapshot()), default=60.0)

    async def _pause(self) -> None:
        if self._wake is not None:
            try:
                await asyncio.wait_for(self._wake.wait(), self._tick_seconds())
            except TimeoutError:
                return
            self._wake.clear()

    async def _call_store(self, call: Awaitable[T]) -> T:
        """An answer of the store, in time for the next round: one that hangs must not stop the watchdog.

        Whoever the question is about: the watchdog looks after the shortest lease of all.
        """
        answer = await with_store_timeout(min(5.0, self._shortest_lease() / 4), call)
        self._backoff.record_success()
        return answer

    async def _tick(self) -> None:
        all_held = self._active_jobs.snapshot()
        if not all_held:
            return
        await self._extend(all_held)
        await self._record_starts(all_held)
        await self._pass_on_cancel_requests(all_held)

    async def _extend(self, all_held: list[ActiveJob]) -> None:
        now = self._clock.monotonic()
        by_length: defaultdict[float, list[ActiveJob]] = defaultdict(list)
        for active in all_held:
            if now < active.extend_at or active.stop_reason is StopReason.LOST:
                continue
            if active.handler is None and not active.settling and not active.awaits_capacity:
                # It has waited for a slot far longer than planned: somebody else may have one.
                self._give_back(active)
            elif _should_extend(active, now):
                by_length[active.job.lease_seconds].append(active)
        for lease_seconds, due in by_length.items():
            for part in _batches(due):
                sent = self._clock.monotonic()
                leases = [active.job.lease for active in part]
                answers = await self._call_store(self._store.extend(leases, lease_seconds))
                for active, kept in zip(part, answers, strict=True):
                    if kept:
                        active.record_extension(sent)
                    # While a settlement is on its way, its own answer says what became of the lease.
                    elif not active.settling and active in self._active_jobs:
                        self._stop_handler(active, StopReason.LOST)

    async def _record_starts(self, all_held: list[ActiveJob]) -> None:
        """Record the start of handlers that run for long, and which of them a crash is charged to."""
        now = self._clock.monotonic()
        running = [
            (active, started)
            for active in all_held
            if (started := active.started) is not None  # read once: the event loop may set it back
            and not active.start_recorded
            and not active.settling
            and now - started >= RECORD_START_AFTER_SECONDS
        ]
        for charged in (False, True):
            for part in _batches([item for item in running if item[0].counts_attempt_if_lost is charged]):
                now = self._clock.monotonic()
                run_seconds = [now - started for _, started in part]
                leases = [active.job.lease for active, _ in part]
                await self._call_store(
                    self._store.mark_started(leases, run_seconds=run_seconds, alone=charged)
                )
                for active, _ in part:
                    active.start_recorded = True

    async def _pass_on_cancel_requests(self, all_held: list[ActiveJob]) -> None:
        running = {
            active.job.lease: active
            for active in all_held
            if not active.settling and active.stop_reason is None
        }
        for leases in _batches(list(running)):
            for lease in await self._call_store(self._store.cancel_requests(leases)):
                self._stop_handler(running[lease], StopReason.CANCEL)

    def _stop_expired(self) -> None:
        now = self._clock.monotonic()
        for active in self._active_jobs.snapshot():
            if active.settling:
                continue
            overdue = active.stop_reason is None and _overdue(active, now)
            if active.stop_requested_at is None and (overdue or active.stop_reason is not None):
                active.stop_requested_at = now  # here, not on the loop: that may be what is blocked
            if active.stop_reason is not StopReason.LOST:
                if now >= active.deadline:
                    self._stop_handler(active, StopReason.LOST)
                elif overdue:
                    self._stop_handler(active, StopReason.TIMEOUT)
            if active.stop_requested_at is not None and active.handler is not None:
                self._stuck.track_handler(active, active.stop_requested_at)
                if not _has_time(active, now):
                    self._give_up(active)


def _batches(items: list[T]) -> Iterator[list[T]]:
    return (items[start : start + MAX_BATCH] for start in range(0, len(items), MAX_BATCH))


def _should_extend(active: ActiveJob, now: float) -> bool:
    return active.settling or _has_time(active, now)


def _has_time(active: ActiveJob, now: float) -> bool:
    """False for a handler that has ignored its stop for longer than a lease: the job can do without it."""
    asked = active.stop_requested_at
    return asked is None or now - asked <= active.job.lease_seconds


def _overdue(active: ActiveJob, now: float) -> bool:
    timeout, started = active.job.timeout, active.started
    return timeout is not None and started is not None and now - started >= timeout


OnDeath = Callable[[BaseException], None]


class BackgroundThread(Protocol):
    """Something that runs beside the worker's event loop: a thread, or what a simulation has for one."""

    def start(self) -> None:
        """Begin."""

    async def join(self) -> None:
        """Wait, without blocking the event loop, until it has ended."""


class LeaseKeeperThread:
    """One thread per worker, with an event loop of its own."""

    def __init__(self, keeper: LeaseKeeper, on_death: OnDeath) -> None:
        self._keeper = keeper
        self._on_death = on_death
        self._thread = threading.Thread(target=self._run, name="tidewheel-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def join(self) -> None:
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            asyncio.run(self._keeper.run())
        except BaseException as error:  # told to the worker: without its keeper it would lose every lease
            self._on_death(error)
