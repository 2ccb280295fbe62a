"""Keeping a worker on the list of workers.

Runs on the keeper's thread: a worker whose event loop is blocked goes on beating, and its lag shows.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from tidewheel.__about__ import __version__
from tidewheel.core.clock import Clock, seconds_to_microseconds
from tidewheel.core.jitter import jitter
from tidewheel.core.model import Lane, WorkerRecord
from tidewheel.core.names import MAX_NAME_LENGTH
from tidewheel.errors import StoreError
from tidewheel.stores.protocol import Store
from tidewheel.worker.active_jobs import ActiveJobs
from tidewheel.worker.async_waits import cancel_and_wait, with_store_timeout
from tidewheel.worker.backoff import Backoff, RecoverySignal
from tidewheel.worker.health import LoopLag
from tidewheel.worker.settler import OutcomeCounts
from tidewheel.worker.stuck_handlers import StuckHandlers

HEARTBEAT_SECONDS = 5.0
FIRST_HEARTBEAT_SECONDS = 0.2
"""A run that is over sooner is on no list: short scripts and tests write nothing more for it."""
LAG_PROBE_SECONDS = 0.5
"""How often the event loop is asked how late it is."""
STORE_TIMEOUT_SECONDS = 2.0
"""Longest wait for the store: the connection is the one that extends leases."""
MAX_LANES = 200
"""Most lanes a worker tells about; of the others it tells the number."""

_log = logging.getLogger("tidewheel.worker")


class WorkerHeartbeat:
    """Tells the store every few seconds who this worker is and how it is doing."""

    def __init__(
        self,
        name: str,
        lanes: tuple[Lane, ...],
        concurrency: int,
        active_jobs: ActiveJobs,
        tally: Callable[[], OutcomeCounts],
        lag: LoopLag,
        stuck_handlers: StuckHandlers,
        watched: Store,
        clock: Clock,
        recovery: RecoverySignal,
    ) -> None:
        self._name = name
        self._lanes = lanes
        self._concurrency = concurrency
        self._active_jobs = active_jobs
        self._tally = tally
        self._lag = lag
        self._stuck = stuck_handlers
        self._worker_store = watched  # the store of the worker, not the one that beats
        self._clock = clock
        self._recovery = recovery
        self._backoff = Backoff("listing this worker", recovery, HEARTBEAT_SECONDS)
        self._host = socket.gethostname()[:MAX_NAME_LENGTH]
        self._started = clock.monotonic()
        self._started_at: int | None = None  # the same by the store's clock; None before the first beat
        self._running: asyncio.Task[None] | None = None
        self._beating = asyncio.Lock()

    @property
    def started(self) -> bool:
        return self._running is not None

    @property
    def failing(self) -> bool:
        """Whether the last beat did not get through."""
        return self._backoff.failing

    def start(self, store: Store) -> None:
        """Beat from now on, on the running event loop."""
        self._running = asyncio.create_task(self._run(store))

    async def stop(self, store: Store) -> None:
        """Beat no more, and take the worker off the list if the store can be told so quickly."""
        if self._running is not None:
            async with self._beating:  # a beat that is cut off would cost its connection
                self._running.cancel()
            await cancel_and_wait((self._running,))
        if self._started_at is not None:
            try:
                await with_store_timeout(
                    STORE_TIMEOUT_SECONDS, store.deregister_worker(self._name, self._started_at)
                )
            except StoreError as error:
                _log.warning("worker %s stays listed until it is forgotten: %s", self._name, error)

    async def _run(self, store: Store) -> None:
        """Whatever goes wrong here is no reason to disturb a job."""
        now = asyncio.get_running_loop().time
        next_beat = now() + FIRST_HEARTBEAT_SECONDS * jitter(0.5, 1.0)
        while True:
            self._lag.probe()
            if now() >= next_beat:
                async with self._beating:
                    next_beat = now() + await self._try_to_send(store)
            if await self._recovery.sleep(min(LAG_PROBE_SECONDS, max(0.0, next_beat - now()))):
                next_beat = now()

    async def _try_to_send(self, store: Store) -> float:
        """Seconds until the next beat."""
        try:
            await with_store_timeout(STORE_TIMEOUT_SECONDS, self._send(store))
        except StoreError as error:
            # Never rarer than usual: who beats is also who notices first that the store is back.
            return self._backoff.record_failure(error)
        except Exception:
            _log.exception(
                "worker %s could not be listed, which is a bug; it goes on all the same", self._name
            )
        else:
            self._backoff.record_success()
        # Not all workers of a deployment at once.
        return HEARTBEAT_SECONDS * jitter(0.8, 1.0)

    async def _send(self, store: Store) -> None:
        if self._started_at is None:
            # The store's clock, not this machine's, which may be off by a day.
            running_for = seconds_to_microseconds(self._clock.monotonic() - self._started)
            self._started_at = await store.now() - running_for
        await store.heartbeat(self._describe(self._started_at))

    def _describe(self, started_at: int) -> WorkerRecord:
        in_hand = [active for active in self._active_jobs.snapshot() if not active.settling]
        running = sum(active.handler is not None for active in in_hand)
        tally = self._tally()
        return WorkerRecord(
            name=self._name,
            host=self._host,
            pid=os.getpid(),
            version=__version__,
            started_at=started_at,
            lanes=self._lanes[:MAX_LANES],
            more_lanes=max(0, len(self._lanes) - MAX_LANES),
            concurrency=self._concurrency,
            running=running,
            claimed=len(in_hand) - running,
            stuck=self._stuck.count,
            loop_lag_seconds=round(self._lag.take_max(), 6),
            polling=self._worker_store.notifications_down,
            clock_step_seconds=self._worker_store.clock_step_seconds,
            ran=tally.ran,
            completed=tally.completed,
            failed=tally.failed,
            lost=tally.lost,
        )
