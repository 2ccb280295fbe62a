"""Store maintenance: rescue jobs of dead workers, and prune finished jobs past their retention.

Each process with an open store does both about once a minute, the first time after a minute, so a short
script does nothing. A pass that finds nothing costs two statements. Workers, and servers that hand out jobs,
rescue more often. One process of all works off a backlog: after each batch the pruner pauses for 9 times the
batch's duration, at most 0.5 s. The duration is measured in this process, so on a busy database or event loop
the pauses are longer. The store limits how long one batch blocks other callers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from tidewheel.core.clock import Clock, seconds_to_microseconds
from tidewheel.core.jitter import jitter
from tidewheel.core.model import NewDocument, State
from tidewheel.errors import StoreError
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import Store
from tidewheel.worker.backoff import Backoff, RecoverySignal
from tidewheel.worker.observers import Observers

if TYPE_CHECKING:
    from tidewheel.telemetry.telemetry import Telemetry

MAX_BUSY_SHARE: Final = 0.1
"""Of the time, in which a pruner with a backlog is at work."""
MAX_REST_SECONDS: Final = 0.5
"""However busy everything is: jobs that finish meanwhile have to go some day, too."""
PRUNE_LOCK_SECONDS: Final = 60.0
"""After this a worker that died with the turn has lost it."""
LOCK_KIND: Final = "turn"
PRUNE_LOCK_ID: Final = "prune"

_log = logging.getLogger("tidewheel.worker")


def rest_after(seconds: float) -> float:
    """How long to leave the store to others after a batch that took so long."""
    return min(seconds * (1 / MAX_BUSY_SHARE - 1), MAX_REST_SECONDS)


class Pruner:
    """Removes what is overdue, for as long as it takes."""

    def __init__(self, store: Store, clock: Clock, observers: Observers | None = None) -> None:
        self._store = store
        self._clock = clock
        self._observers = observers
        self._turn = _PruneLock(store, clock)
        self.pruned: Counter[State] = Counter()
        """how many jobs of each state this one has removed"""

    async def prune_backlog(self) -> int:
        """Remove what is overdue; how many jobs. Somebody else may be at it: then a single batch."""
        total = removed = await self._remove()
        if not removed or not await self._turn.acquire():
            return total
        began = self._clock.monotonic()
        try:
            while removed:
                if not await self._turn.renew():
                    break
                removed = await self._remove()
                total += removed
        finally:
            _log.info("pruned %d finished jobs in %.1f s", total, self._clock.monotonic() - began)
        await self._turn.release()
        return total

    async def _remove(self) -> int:
        """One batch, and the rest after it."""
        began = self._clock.monotonic()
        pruned = await self._store.prune(MAX_BATCH)
        took = self._clock.monotonic() - began
        self.pruned.update(pruned)
        if self._observers is not None:
            self._observers.on_pruned(pruned)
        removed = sum(pruned.values())
        if removed:
            await asyncio.sleep(rest_after(took))
        return removed


class _PruneLock:
    """The right to work off a backlog, which one worker of all has: a document that expires."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._version: int | None = None
        self._written = 0.0

    async def acquire(self) -> bool:
        return await self._write(0, PRUNE_LOCK_SECONDS)

    async def renew(self) -> bool:
        """False when another has it: this worker was stopped for longer than it holds."""
        if self._clock.monotonic() - self._written < PRUNE_LOCK_SECONDS / 3:
            return True
        return await self._write(self._version or 0, PRUNE_LOCK_SECONDS)

    async def release(self) -> None:
        if self._version is not None:
            await self._write(self._version, 0.0)
            self._version = None

    async def _write(self, only_version: int, seconds: float) -> bool:
        expires_at = await self._store.now() + seconds_to_microseconds(seconds)
        document = NewDocument(LOCK_KIND, PRUNE_LOCK_ID, b"{}", expires_at, only_version)
        [self._version] = await self._store.write_documents([document])
        self._written = self._clock.monotonic()
        return self._version is not None


STORE_MAINTENANCE_SECONDS: Final = 60.0

_maintenance_log = logging.getLogger("tidewheel.maintenance")


class StoreMaintenance:
    """The upkeep that one event loop does for its store."""

    def __init__(self, store: Store, clock: Clock, telemetry: Telemetry, seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._seconds = seconds
        # A timer between two looks, and not a task: an event loop may end without a word.
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._failing = False
        self.start()

    def start(self) -> None:
        """Look in a minute or so; not all processes at once."""
        seconds = self._seconds * jitter(0.75, 1.25)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    async def close(self) -> None:
        """End it, in the middle of a backlog if need be."""
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait((self._running,))

    def _begin(self) -> None:
        self._running = asyncio.get_running_loop().create_task(self._run(), name="tidewheel-maintenance")

    async def _run(self) -> None:
        pruner = Pruner(self._store, self._clock, Observers(None, self._telemetry.metrics, self._clock))
        try:
            await self._store.rescue()
            await pruner.prune_backlog()
        except StoreError as error:
            if error.lacks_rights:
                _maintenance_log.debug(
                    "this role may not rescue and prune, and leaves it to others: %s", error
                )
                return
            if not self._failing:
                _maintenance_log.warning("rescuing and pruning failed, trying again in a minute: %s", error)
            self._failing = True
        except Exception:
            # A bug must not end the upkeep of this process: without it the store grows for ever.
            _maintenance_log.exception("rescuing and pruning failed, trying again in a minute")
        else:
            self._failing = False
        self.start()


RESCUE_INTERVAL_SECONDS = 0.5
"""At least this often somebody looks for ended leases; half of the promised second."""

_rescue_log = logging.getLogger("tidewheel.worker")


class Rescuer:
    """Runs beside the claims; they rescue too, so it only steps in when there are none."""

    def __init__(self, store: Store, poll_interval: float, clock: Clock, recovery: RecoverySignal) -> None:
        self._store = store
        self._every = min(RESCUE_INTERVAL_SECONDS, poll_interval)
        self._clock = clock
        self._last_claim = float("-inf")  # not yet
        self._backoff = Backoff("rescuing", recovery)

    @property
    def failing(self) -> bool:
        """Whether the store did not answer when it was last asked."""
        return self._backoff.failing

    def record_claim(self, at: float) -> None:
        """A claim that was answered at this moment, monotonic, has done the rescuing."""
        self._last_claim = at

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._every * jitter(0.75, 1.0))
            try:
                if self._clock.monotonic() - self._last_claim >= self._every:
                    rescued = await self._store.rescue()
                    if rescued.total:
                        _rescue_log.info("rescued %s", rescued)
            except StoreError as error:
                await self._backoff.pause_after_failure(error)
            else:
                self._backoff.record_success()
