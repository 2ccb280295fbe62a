"""The lane of non-durable tasks: jobs in this process's memory, run where they were enqueued.

Nothing of it exists before the first such job. Then there is a store in memory
(``stores/memory/local_store.py``) that every thread and event loop of the process shares, and a worker on a
thread of its own (``worker/local_queue_worker.py``), until the app is closed for the last time or the process
ends.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tidewheel.client.connections import LoopConnections
from tidewheel.core.model import State
from tidewheel.core.security_context import require_system_context
from tidewheel.errors import WrongState
from tidewheel.stores import local_store

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.stores.memory.local_store import LocalStore
    from tidewheel.worker.local_queue_worker import LocalQueueWorker

IDLE_POLL_SECONDS: Final = 0.05
"""How often the lane is asked whether it is idle, when no hint comes."""


@dataclass(frozen=True, slots=True)
class LaneStats:
    """The lane of this process. Counts begin when it starts, with the first non-durable job."""

    waiting: int  # delayed ones and those between two attempts included; at most ``capacity`` are let in
    running: int
    completed: int
    failed: int
    cancelled: int
    refused: int  # jobs that were not taken in, with ``Backpressure``
    capacity: int
    concurrency: int


class LocalQueue:
    """The non-durable jobs of an app in this process. Made by the app, as ``app.lane``."""

    def __init__(
        self,
        app: Tidewheel,
        connections: LoopConnections,
        load_worker: Callable[[], type[LocalQueueWorker]],
        *,
        by_hand: bool = False,
    ) -> None:
        """``load_worker`` imports the lane's worker, which programs without such tasks do not need."""
        self._app = app
        self._connections = connections
        self._load_worker = load_worker
        self._starting = threading.Lock()
        self._started: LocalQueueWorker | None = None
        self.manual = by_hand
        _local_queues.add(self)

    # -- for users --------------------------------------------------------------------------------------

    def stats(self) -> LaneStats:
        """How it is doing now. Cheap, and never waits for the lane's thread."""
        require_system_context("lane.stats")
        started, settings = self._started, self._app.settings
        if started is None:
            return LaneStats(0, 0, 0, 0, 0, 0, settings.lane_capacity, settings.lane_concurrency)
        waiting, running, ended, refused = started.store.counts()
        return LaneStats(
            waiting,
            running,
            ended[State.COMPLETED],
            ended[State.FAILED],
            ended[State.CANCELLED],
            refused,
            settings.lane_capacity,
            settings.lane_concurrency,
        )

    def __repr__(self) -> str:
        return "<Lane, not started>" if self._started is None else "<Lane>"

    # -- for the app ------------------------------------------------------------------------------------

    def preload(self) -> None:
        """Import now, when a task is registered, what its first job would have to wait for."""
        self._load_worker()
        local_store()

    def open(self) -> LocalStore:
        """Where a non-durable job goes; the first one starts the lane. ``NotOpen`` unless the app is open."""
        started = self._started
        if started is None or asyncio.get_running_loop() is not started.loop:
            self._connections.current()  # but not for its own handlers: they need no database for this
        if started is None or started.ended:
            started = self._start()
        return started.store

    def store_with(self, job_id: UUID) -> LocalStore | None:
        """The lane's store, for a job that is in it."""
        started = self._started
        return started.store if started is not None and job_id in started.store else None

    @property
    def claim_count(self) -> int:
        """How often a job was granted so far: the same number twice means that nothing ran meanwhile."""
        return 0 if self._started is None else self._started.store.granted

    async def run_until_idle(self) -> int:
        """Wait until nothing runs and nothing is due; or run it here, by hand. How many attempts ran here."""
        started = self._started
        if started is None:
            return 0
        if self.manual:
            return await started.run_by_hand()
        if asyncio.get_running_loop() is started.loop:
            raise WrongState("run_until_idle in a handler of a non-durable task would wait for that handler")
        store = started.store
        async with store.wakeups(topics=None, finished=True) as hints:
            store.wake_claimers()
            while not store.idle():
                await hints.wait(IDLE_POLL_SECONDS)
        return 0

    def set_manual(self, by_hand: bool) -> None:
        """Whether jobs run where ``run_until_idle`` is called, and not on the lane's thread: inline mode."""
        self.manual = by_hand
        started = self._started
        if started is not None:
            started.store.set_manual(by_hand)
            if not by_hand:
                started.start()

    async def before_close(self) -> None:
        """The app is about to be closed on this event loop: the last who has it open ends the lane first."""
        started = self._started
        if started is not None and self._connections.is_open_here():
            await self._end(started, users=1)

    async def after_close(self) -> None:
        """It was closed: where two did that at the same time, neither was the last before."""
        if self._started is not None:
            await self._end(self._started, users=0)

    async def _end(self, started: LocalQueueWorker, users: int) -> None:
        if asyncio.get_running_loop() is started.loop or self._connections.count_users(started.loop) != users:
            return
        await started.stop()
        if self._started is started:
            self._started = None

    def stop_now(self) -> None:
        """Whoever closes the app has waited long enough. From any thread."""
        if self._started is not None:
            self._started.request_stop(now=True)

    def abandon(self) -> None:
        """Let go without waiting: handlers that still run are told to stop."""
        started, self._started = self._started, None
        if started is not None:
            started.request_stop(now=True)

    def reset_after_fork(self) -> None:
        """In a forked child: thread, jobs and whatever held a lock are the parent's."""
        _parent_workers.append(self._started)
        self._starting = threading.Lock()
        self._started = None

    def _start(self) -> LocalQueueWorker:
        with self._starting:
            started = self._started
            if started is None or started.ended:
                started = self._started = self._load_worker()(self._app, self._connections)
                started.store.set_manual(self.manual)
                if not self.manual:
                    started.start()
            return started


_local_queues: weakref.WeakSet[LocalQueue] = weakref.WeakSet()
_parent_workers: list[object] = []
"""Kept in a forked child: an event loop that is thrown away closes what it shares with the parent."""


def _reset_all_after_fork() -> None:
    for lane in list(_local_queues):
        lane.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all_after_fork)
