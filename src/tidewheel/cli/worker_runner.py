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
from tidewheel.cli.child_process import Leash, StopRequests
from tidewheel.cli.error_output import FAILED, WORN
from tidewheel.core.urls import shown_url
from tidewheel.errors import StoreUnavailable, WorkerStuck
from tidewheel.telemetry.telemetry import Telemetry
from tidewheel.verification.startup_check import look_after_start
from tidewheel.worker import Worker
from tidewheel.worker.async_waits import first_of
from tidewheel.worker.backoff import pause_after
from tidewheel.worker.health import WorkerHealth, starting
from tidewheel.worker.signals import stop_signals
from tidewheel.worker.supervisor import MOST_LEFT_BEHIND, Succession

_log = logging.getLogger("tidewheel.cli")


class Replacement:
    """The command of this process as it was started. Made before the user's code can change it."""

    def __init__(self) -> None:
        self._directory = os.getcwd()
        self._program = sys.executable
        self._arguments = [self._program, *sys.orig_argv[1:]]

    @property
    def possible(self) -> bool:
        """Windows would end the process its parent knows; a frozen program has no command."""
        return sys.platform != "win32" and bool(self._program)

    def start(self) -> NoReturn:
        """Start anew; ``OSError`` when the interpreter is gone, say, because it is being replaced."""
        _log.warning("this process starts anew: half the slots of its worker are stuck")
        _flush()
        os.chdir(self._directory)
        os.execv(self._program, self._arguments)  # noqa: S606 - our own command line, as it was given

    def force(self, *, supervised: bool) -> NoReturn:
        """The same without an event loop, which is blocked for good: nothing here will ever end properly.

        A supervised process ends, and its parent starts another.
        """
        if supervised:
            _flush()
            os._exit(WORN)
        try:
            self.start()
        except OSError as error:
            _log.critical("this process cannot start anew, and ends: %s", error)
            _flush()
            os._exit(FAILED)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()


SAID_AGAIN_SECONDS: Final = 10.0
"""A store that stays away is mentioned again before pauses as long as this."""


class Run:
    """One worker, from the first try to open its store to its last words."""

    def __init__(self, options: dict[str, Any], leash: Leash | None, replacement: Replacement) -> None:
        self.begun = False
        self.worn = False  # half the slots are stuck, and this process is to be replaced
        self._replacement = replacement
        self._options = {**options, "handle_signals": False}
        self._leash = leash
        self._heeded = 0  # how urgently it has been asked to stop so far
        self._asked = asyncio.Event()
        self._app: Tidewheel | None = None
        self._workers: Succession | None = None

    @property
    def lingers(self) -> bool:
        """Whether handlers are left that do not end."""
        return self._workers is not None and self._workers.lingers

    def health(self) -> WorkerHealth:
        """How its worker is doing; from any thread."""
        workers = self._workers
        return starting(self._options["name"] or "") if workers is None else workers.worker.health()

    def telemetry(self) -> Telemetry | None:
        """What its process counts, once its app is there; from any thread."""
        return None if self._app is None else self._app.telemetry

    async def main(self, app: Tidewheel) -> None:
        loop = asyncio.get_running_loop()
        self._app = app

        def asked() -> None:
            try:
                loop.call_soon_threadsafe(self._heed, stop)
            except RuntimeError:
                if not loop.is_closed():  # closed: it has stopped already
                    raise

        stop = StopRequests(asked)
        # From the first moment on: also a worker that waits for its store can be stopped.
        with stop_signals(stop.by_signal, enabled=True):
            if self._leash is not None:
                self._leash.listen(stop)
            if not await self._open(app):
                return
            try:
                replaceable = self._can_be_replaced(app)
                self._workers = workers = Succession(
                    lambda: self._make(app),
                    most_left_behind=0 if replaceable else MOST_LEFT_BEHIND,
                    beside=lambda: look_after_start(app),
                )
                self.begun = True
                if self._leash is not None:
                    self._leash.works()
                started = time.monotonic()
                # Called once the worker waits for the first time: who reads this line finds it at work.
                loop.call_soon(_announce, app, workers.worker)
                if self._asked.is_set():
                    workers.stop()
                try:
                    await workers.run()
                except WorkerStuck:
                    if not replaceable:
                        raise
                    self.worn = True
                _sum_up(workers.worker, time.monotonic() - started)
            finally:
                await app.close()

    def _can_be_replaced(self, app: Tidewheel) -> bool:
        """Jobs in memory would not survive this process."""
        possible = self._leash is not None or self._replacement.possible
        in_memory = app.settings.url.startswith("memory:") or not all(task.durable for task in app.registry)
        return possible and not in_memory

    def _make(self, app: Tidewheel) -> Worker:
        worker = app.worker(**self._options)
        if self._can_be_replaced(app):
            supervised = self._leash is not None
            worker.when_blocked = lambda: self._replacement.force(supervised=supervised)
        return worker

    async def _open(self, app: Tidewheel) -> bool:
        """Open the store, however long that takes; False when asked to stop before it was there."""
        tries = 0
        while not self._asked.is_set():
            opening = asyncio.ensure_future(app.open())
            await first_of(asyncio.wait((opening,)), self._asked.wait())
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
        pause = pause_after(tries)
        if tries == 1 or pause > SAID_AGAIN_SECONDS:
            _log.error("the store is not available, trying until it is: %s", error)
        await first_of(self._asked.wait(), asyncio.sleep(pause))

    def _heed(self, stop: StopRequests) -> None:
        """Asked to stop: the first time gracefully, the second at once."""
        self._asked.set()
        while self._heeded < stop.urgency():
            self._heeded += 1
            if self._app is not None and self._heeded == 1:
                # One grace period for both: the lane is closed after the worker has ended.
                asyncio.get_running_loop().call_later(self._app.settings.shutdown_grace, self._app.lane.hurry)
            elif self._app is not None:
                self._app.lane.hurry()
            if self._workers is not None:
                self._workers.stop()


def _announce(app: Tidewheel, running: Worker) -> None:
    topics = sorted({lane.topic for lane in running.lanes})
    _log.info(
        "tidewheel %s: worker %s on %s, %s, %s %s, concurrency %d; Ctrl-C stops",
        __version__,
        running.name,
        shown_url(app.settings.url),
        formats.plural(len(app.registry), "task"),
        "topic" if len(topics) == 1 else "topics",
        ", ".join(topics[:8]) + (f" and {len(topics) - 8} more" if len(topics) > 8 else ""),
        running.concurrency,
    )


def _sum_up(running: Worker, seconds: float) -> None:
    tally = running.tally
    parts = [f"ran {tally.ran:,}"]
    parts += [
        f"{name} {getattr(tally, name):,}"
        for name in ("completed", "retried", "failed", "cancelled", "released", "lost")
        if getattr(tally, name) or name in {"completed", "retried", "failed"}
    ]
    _log.info("worker %s stopped after %s: %s", running.name, formats.duration(seconds), ", ".join(parts))
