"""The thread behind the lane: an event loop, the app opened on it, and a worker on the lane's own store.

The app imports this module when the first non-durable task is registered, so that the first job does not
wait for the import of the worker.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import os
import socket
import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidewheel.client.connections import LoopConnections
from tidewheel.core.clock import DAY
from tidewheel.core.model import JobError
from tidewheel.core.model import Lane as TopicAndTask
from tidewheel.errors import TidewheelError
from tidewheel.stores import local_store
from tidewheel.tasks.registry import Registry
from tidewheel.worker.async_waits import cancel_and_wait, wait_for_first
from tidewheel.worker.backoff import Backoff, RecoverySignal
from tidewheel.worker.supervisor import WorkerSupervisor
from tidewheel.worker.worker import Worker

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.stores.memory.local_store import LocalStore

STOP_SECONDS: Final = 10.0
"""How long after the grace period whoever closes the app waits for the lane's thread."""
MAX_OPEN_SECONDS: Final = 5.0
"""How long jobs wait for the app to be opened on this thread, so that handlers can enqueue; then they run."""

DROPPED_ERROR: Final = JobError(
    "job_canceled", "the app was closed before this job had finished; it is not durable", retryable=False
)

BROKEN_ERROR: Final = JobError(
    "job_canceled", "the lane it waited in broke down; it is not durable", retryable=False
)

_log = logging.getLogger("tidewheel.lane")


class LocalQueueWorker:
    """Runs the lane's jobs from ``start`` to ``stop``. A daemon: a program that ends does not wait for it."""

    def __init__(self, app: Tidewheel, connections: LoopConnections) -> None:
        self.store: LocalStore = local_store()(clock=app.clock, capacity=app.settings.lane_capacity)
        self.loop = asyncio.new_event_loop()
        self._app = app
        self._clock = app.clock  # of now: a test gives the app another one for a while
        self._connections = connections
        self._begun = threading.Lock()
        self._stop = asyncio.Event()
        self._stop_now_event = asyncio.Event()
        self._stop_now = False
        self._dropped = 0
        self._workers = 0  # made so far
        self._end: concurrent.futures.Future[None] = concurrent.futures.Future()

    def make_worker(self, store: LocalStore) -> Worker:
        """A worker for the lane's jobs, on the running event loop."""
        # Schedules are in the store where all other jobs are, and workers there look after them.
        settings = replace(self._app.settings, schedules=False)
        self._workers += 1
        worker = Worker(
            store,
            _LocalTaskRegistry(self._app.registry),
            settings,
            name=f"{socket.gethostname()[:150]}:{os.getpid()}:lane-{self._workers}",
            concurrency=settings.lane_concurrency,
            prefetch=0,  # so that a job waits in the store, where it is counted, until it starts
            lease=DAY,  # nobody else could run them: a process that was stopped for a while goes on
            handle_signals=False,
            isolate=False,
            clock=self._clock,
            telemetry=self._app.telemetry,
        )
        worker.samples_queue = False  # what it sees is the lane, and not the queue
        return worker

    async def run_by_hand(self) -> int:
        """Run the lane's jobs on this event loop until none is due; how many attempts that took."""
        return await WorkerSupervisor(lambda: self.make_worker(self.store)).run_until_idle()

    def start(self) -> None:
        """Start the thread, unless somebody has. Does not wait for it."""
        if self._begun.acquire(blocking=False):
            # Context variables of whoever happened to come first are not for all the jobs to come.
            run = contextvars.Context().run
            try:
                threading.Thread(target=run, args=(self._serve,), name="tidewheel-lane", daemon=True).start()
            except BaseException:  # no thread to be had, or the interpreter ends: no job may wait for it
                self.loop.close()
                self._finish()
                raise

    @property
    def ended(self) -> bool:
        return self._end.done()

    def request_stop(self, *, now: bool = False) -> None:
        """Take no more jobs, drop those that wait, and have the running ones finish. From any thread."""
        self._stop_now |= now
        self._dropped += self.store.drop_waiting(DROPPED_ERROR)
        if self._begun.acquire(blocking=False):  # it never ran
            self.loop.close()
            self._finish()
            return
        try:
            self.loop.call_soon_threadsafe(self._stop.set)
            if now:
                self.loop.call_soon_threadsafe(self._stop_now_event.set)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    async def stop(self) -> None:
        """The same, and wait until that is done."""
        self.request_stop()
        ended = asyncio.wrap_future(self._end)
        await asyncio.wait((ended,), timeout=self._app.settings.shutdown_grace + STOP_SECONDS)
        if not ended.done():
            _log.critical("a handler blocks the lane's event loop; it is left behind, with its thread")
            self._connections.forget_loop(self.loop)

    # -- on the thread ------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.run(self._main())
        except Exception:
            _log.exception("the lane of non-durable tasks broke; the next such job starts another one")
            self._finish(BROKEN_ERROR)
        finally:
            self._finish()

    async def _main(self) -> None:
        opening = asyncio.create_task(self._open_app())
        try:
            await wait_for_first(asyncio.wait((opening,)), self._stop.wait(), asyncio.sleep(MAX_OPEN_SECONDS))
            store = self.store.sibling()
            store.is_manual = True
            # A stuck worker makes way for a fresh one: what waits here is lost with nobody but the process.
            workers = WorkerSupervisor(lambda: self.make_worker(store))
            running = asyncio.create_task(workers.run())
            await wait_for_first(asyncio.wait((running,)), self._stop.wait())
            workers.stop(now=self._stop_now)
            await wait_for_first(asyncio.wait((running,)), self._stop_now_event.wait())
            if not running.done():
                workers.stop(now=True)
            await running
        finally:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await self._connections.close()
            else:
                await cancel_and_wait((opening,))
            # Before the loop is closed: that waits for threads that handlers may have left behind.
            self._finish(DROPPED_ERROR if self._stop.is_set() else BROKEN_ERROR)

    async def _open_app(self) -> None:
        """Handlers use the app as they do on any worker. The lane itself needs no database."""
        backoff = Backoff("opening the app for handlers of the lane", RecoverySignal())
        while True:
            try:
                await self._connections.open()
            except TidewheelError as error:
                await backoff.pause_after_failure(error)
            else:
                backoff.record_success()
                return

    def _finish(self, reason: JobError = DROPPED_ERROR) -> None:
        if self._end.done():
            return
        self._dropped += self.store.drop_waiting(reason)
        if self._dropped:
            why = "the app was closed" if reason is DROPPED_ERROR else "their lane broke down"
            _log.warning("%d jobs of non-durable tasks were dropped unfinished: %s", self._dropped, why)
        self._end.set_result(None)


class _LocalTaskRegistry(Registry):
    """The app's tasks as the lane's worker sees them: those registered later, too."""

    def __init__(self, tasks: Registry) -> None:
        self._tasks, self._names, self._by_topic = tasks._tasks, tasks._names, tasks._by_topic
        self._with_callbacks = tasks._with_callbacks
        self._schedules = {}  # they make durable jobs, which are no affair of the lane's
        self.schedule_changes = tasks.schedule_changes
        self.middleware = tasks.middleware

    def lanes(
        self,
        topics: Iterable[str] | None = None,  # noqa: ARG002 - the store grants whatever is in it
        exclude: Collection[str] = (),  # noqa: ARG002
    ) -> tuple[TopicAndTask, ...]:
        return tuple(TopicAndTask(task.topic, task.name) for task in self if not task.durable)
