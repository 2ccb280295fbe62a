"""Run one worker of the command line: wait for its store, run until stopped, print a summary.

A process with half of its slots stuck restarts in place, because only a new process ends a stuck thread. It
keeps its process id, so that a shell, systemd or a container sees no change. On systems that cannot replace a
process, or if jobs are in its memory, a new worker takes over inside the process instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from typing import Any, Final, NoReturn

from tidewheel.__about__ import __version__
from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.child_process import ParentLink, StopRequests
from tidewheel.cli.error_output import EXIT_DEGRADED, EXIT_FAILED
from tidewheel.core.urls import redact_url
from tidewheel.errors import StoreUnavailable, WorkerStuck
from tidewheel.telemetry.telemetry import Telemetry
from tidewheel.verification.startup_check import run_startup_check
from tidewheel.worker import Worker
from tidewheel.worker.async_waits import wait_for_first
from tidewheel.worker.backoff import delay_after_failures
from tidewheel.worker.health import WorkerHealth, starting_health
from tidewheel.worker.signals import stop_signals
from tidewheel.worker.supervisor import MAX_STUCK_PREDECESSORS, WorkerSupervisor

_log = logging.getLogger("tidewheel.cli")


class ProcessReplacement:
    """The command of this process as it was started. Made before the user's code can change it."""

    def __init__(self) -> None:
        self._directory = os.getcwd()
        self._program = sys.executable
        self._arguments = [self._program, *sys.orig_argv[1:]]

    @property
    def is_possible(self) -> bool:
        """Windows would end the process its parent knows; a frozen program has no command."""
        return sys.platform != "win32" and bool(self._program)

    def replace(self) -> NoReturn:
        """Start anew; ``OSError`` when the interpreter is gone, say, because it is being replaced."""
        _log.warning("this process starts anew: half the slots of its worker are stuck")
        _flush()
        os.chdir(self._directory)
        os.execv(self._program, self._arguments)  # noqa: S606 - our own command line, as it was given

    def replace_or_exit(self, *, supervised: bool) -> NoReturn:
        """The same without an event loop, which is blocked for good: nothing here will ever end properly.

        A supervised process ends, and its parent starts another.
        """
        if supervised:
            _flush()
            os._exit(EXIT_DEGRADED)
        try:
            self.replace()
        except OSError as error:
            _log.critical("this process cannot start anew, and ends: %s", error)
            _flush()
            os._exit(EXIT_FAILED)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()


REPEAT_LOG_SECONDS: Final = 10.0
"""A store that stays away is mentioned again before pauses as long as this."""


class WorkerRunner:
    """One worker, from the first try to open its store to its last words."""

    def __init__(
        self, options: dict[str, Any], parent_link: ParentLink | None, replacement: ProcessReplacement
    ) -> None:
        self.has_started = False
        self.needs_replacement = False  # half the slots are stuck, and this process is to be replaced
        self._replacement = replacement
        self._options = {**options, "handle_signals": False}
        self._parent_link = parent_link
        self._handled_urgency = 0  # how urgently it has been asked to stop so far
        self._stop_requested = asyncio.Event()
        self._app: Tidewheel | None = None
        self._workers: WorkerSupervisor | None = None

    @property
    def has_stuck_handlers(self) -> bool:
        """Whether handlers are left that do not end."""
        return self._workers is not None and self._workers.has_stuck_handlers

    def health(self) -> WorkerHealth:
        """How its worker is doing; from any thread."""
        workers = self._workers
        return starting_health(self._options["name"] or "") if workers is None else workers.worker.health()

    def telemetry(self) -> Telemetry | None:
        """What its process counts, once its app is there; from any thread."""
        return None if self._app is None else self._app.telemetry

    async def main(self, app: Tidewheel) -> None:
        loop = asyncio.get_running_loop()
        self._app = app

        def asked() -> None:
            try:
                loop.call_soon_threadsafe(self._handle_stop, stop)
            except RuntimeError:
                if not loop.is_closed():  # closed: it has stopped already
                    raise

        stop = StopRequests(asked)
        # From the first moment on: also a worker that waits for its store can be stopped.
        with stop_signals(stop.count_signal, enabled=True):
            if self._parent_link is not None:
                self._parent_link.listen(stop)
            if not await self._open(app):
                return
            try:
                replaceable = self._can_be_replaced(app)
                self._workers = workers = WorkerSupervisor(
                    lambda: self._make(app),
                    most_left_behind=0 if replaceable else MAX_STUCK_PREDECESSORS,
                    beside=lambda: run_startup_check(app),
                )
                self.has_started = True
                if self._parent_link is not None:
                    self._parent_link.report_ready()
                started = time.monotonic()
                # Called once the worker waits for the first time: who reads this line finds it at work.
                loop.call_soon(_log_start, app, workers.worker)
                if self._stop_requested.is_set():
                    workers.stop()
                try:
                    await workers.run()
                except WorkerStuck:
                    if not replaceable:
                        raise
                    self.needs_replacement = True
                _log_summary(workers.worker, time.monotonic() - started)
            finally:
                await app.close()

    def _can_be_replaced(self, app: Tidewheel) -> bool:
        """Jobs in memory would not survive this process."""
        possible = self._parent_link is not None or self._replacement.is_possible
        in_memory = app.settings.url.startswith("memory:") or not all(task.durable for task in app.registry)
        return possible and not in_memory

    def _make(self, app: Tidewheel) -> Worker:
        worker = app.worker(**self._options)
        if self._can_be_replaced(app):
            supervised = self._parent_link is not None
            worker.on_blocked = lambda: self._replacement.replace_or_exit(supervised=supervised)
        return worker

    async def _open(self, app: Tidewheel) -> bool:
        """Open the store, however long that takes; False when asked to stop before it was there."""
        tries = 0
        while not self._stop_requested.is_set():
            opening = asyncio.ensure_future(app.open())
            await wait_for_first(asyncio.wait((opening,)), self._stop_requested.wait())
            if not opening.done():
                opening.cancel()
            try:
                await opening
            except asyncio.CancelledError:
                continue
            except StoreUnavailable as error:
                if error.lacks_rights:
                    raise
                tries += 1
                await self._wait_for_store(error, tries)
            else:
                if tries:
                    _log.warning("the store is there, after %d failed tries", tries)
                return True
        _log.info("stopped before the store was there")
        return False

    async def _wait_for_store(self, error: StoreUnavailable, tries: int) -> None:
        pause = delay_after_failures(tries)
        if tries == 1 or pause > REPEAT_LOG_SECONDS:
            _log.error("the store is not available, trying until it is: %s", error)
        await wait_for_first(self._stop_requested.wait(), asyncio.sleep(pause))

    def _handle_stop(self, stop: StopRequests) -> None:
        """Asked to stop: the first time gracefully, the second at once."""
        self._stop_requested.set()
        while self._handled_urgency < stop.urgency():
            self._handled_urgency += 1
            if self._app is not None and self._handled_urgency == 1:
                # One grace period for both: the lane is closed after the worker has ended.
                asyncio.get_running_loop().call_later(
                    self._app.settings.shutdown_grace, self._app.lane.stop_now
                )
            elif self._app is not None:
                self._app.lane.stop_now()
            if self._workers is not None:
                self._workers.stop()


def _log_start(app: Tidewheel, running: Worker) -> None:
    topics = sorted({lane.topic for lane in running.lanes})
    _log.info(
        "tidewheel %s: worker %s on %s, %s, %s %s, concurrency %d; Ctrl-C stops",
        __version__,
        running.name,
        redact_url(app.settings.url),
        formats.plural(len(app.registry), "task"),
        "topic" if len(topics) == 1 else "topics",
        ", ".join(topics[:8]) + (f" and {len(topics) - 8} more" if len(topics) > 8 else ""),
        running.concurrency,
    )


def _log_summary(running: Worker, seconds: float) -> None:
    tally = running.tally
    parts = [f"ran {tally.ran:,}"]
    parts += [
        f"{name} {getattr(tally, name):,}"
        for name in ("completed", "retried", "failed", "cancelled", "released", "lost")
        if getattr(tally, name) or name in {"completed", "retried", "failed"}
    ]
    _log.info("worker %s stopped after %s: %s", running.name, formats.duration(seconds), ", ".join(parts))
