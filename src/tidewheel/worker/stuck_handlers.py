"""Handlers that were told to stop and go on.

Nothing can end a thread, nor a coroutine that waits for something that does not end: each of them keeps its
slot. A worker with any is degraded; once half its slots are held like that it makes way for a fresh one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from msgspec import Struct

from tidewheel.core.clock import Clock
from tidewheel.worker.active_jobs import ActiveJob
from tidewheel.worker.health import LoopLag

STUCK_AFTER_SECONDS = 5.0
"""How long after it was told to stop a handler counts as stuck. Most obey at once, or when they next look."""

_log = logging.getLogger("tidewheel.worker")


class _StoppedRun(Struct, frozen=True):
    """A run that was told to stop."""

    job_id: UUID
    task: str
    stop_requested_at: float  # monotonic
    has_ended: Callable[[], bool]


class StuckHandlers:
    """Who was told to stop, since when. Told by any thread; ``check`` is the keeper's.

    ``on_half`` is called at every look at which half the slots are stuck.
    """

    def __init__(self, worker: str, slots: int, clock: Clock, on_half: Callable[[], None]) -> None:
        self._worker = worker
        self._slots = slots
        self._clock = clock
        self._on_half = on_half
        self._stopped: dict[int, _StoppedRun] = {}  # by the run's identity; it is kept alive by ``is_over``
        self.lag: LoopLag | None = None  # of the event loop that handlers run on
        self.count = 0  # of those that are stuck, as of the last look

    def track_handler(self, active: ActiveJob, at: float) -> None:
        """The handler of this job was told to stop; forgotten when its slot is done with it."""
        if id(active) not in self._stopped:
            self._add(active, active, at, lambda: _has_ended(active))

    def track_callback(self, active: ActiveJob, call: object, is_over: Callable[[], bool]) -> None:
        """A callback of this job was given up, and goes on."""
        self._add(call, active, self._clock.monotonic(), is_over)

    def _add(self, run: object, active: ActiveJob, at: float, is_over: Callable[[], bool]) -> None:
        self._stopped[id(run)] = _StoppedRun(active.job.lease.job_id, active.task.name, at, is_over)

    def is_stuck(self, active: ActiveJob) -> bool:
        """Whether this handler has had its time to stop."""
        told = self._stopped.get(id(active))
        return told is not None and self._clock.monotonic() - told.stop_requested_at >= STUCK_AFTER_SECONDS

    def any_running(self) -> bool:
        """Whether anything that was told to stop still runs."""
        return any(not one.has_ended() for one in list(self._stopped.values()))

    def check(self) -> None:
        """Count those that are stuck, and say so when that is news."""
        for run, lingering in list(self._stopped.items()):
            if lingering.has_ended():
                self._stopped.pop(run, None)
        now = self._clock.monotonic()
        stuck = [
            one for one in list(self._stopped.values()) if now - one.stop_requested_at >= STUCK_AFTER_SECONDS
        ]
        # One that blocks the event loop holds up every slot: none of them can start or end anything.
        blocked = stuck and self.lag is not None and self.lag.silent_seconds() >= STUCK_AFTER_SECONDS
        before, self.count = self.count, self._slots if blocked else len(stuck)
        if stuck and not before:
            _log.warning(
                "worker %s is degraded: %d of its %d slots held by what was told to stop and goes on "
                "(job %s, %s)",
                self._worker,
                self.count,
                self._slots,
                stuck[0].job_id,
                stuck[0].task,
            )
        elif before and not stuck:
            _log.info("worker %s is no longer degraded: all its slots are free to work", self._worker)
        if 2 * self.count >= self._slots:
            self._on_half()


def _has_ended(active: ActiveJob) -> bool:
    """A slot forgets its handler when that is over; a worker that ends lets go of slots before that."""
    handler, thread = active.handler, active.thread
    return handler is None or (handler.done() and (thread is None or thread.done()))
