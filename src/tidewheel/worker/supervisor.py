"""One worker after another inside a program: a fresh one takes over when half the slots of one are stuck.

A program that is not ours cannot be started anew for a handler that does not stop. What the worker before it
left running stays until it ends by itself; the fresh one has slots of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from tidewheel.errors import WorkerStuck
from tidewheel.worker.signals import stop_signals

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.tasks.options import WorkerOptions
    from tidewheel.worker import Worker

MAX_STUCK_PREDECESSORS: Final = 5
"""Workers that may be left behind with handlers that still run; what they leave is threads and memory."""

_log = logging.getLogger("tidewheel.worker")


class WorkerSupervisor:
    """Runs the workers that ``make`` makes, until one is told to stop or is idle.

    ``most_left_behind``: so many predecessors may have handlers that still run; ``WorkerStuck`` is raised
    instead of leaving behind one more. ``beside`` is run beside them while they ``run``, and cancelled then.
    """

    def __init__(
        self,
        make: Callable[[], Worker],
        *,
        handle_signals: bool = False,
        most_left_behind: int = MAX_STUCK_PREDECESSORS,
        beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.worker = make()
        self._make = make
        self._handle_signals = handle_signals
        self._most_left_behind = most_left_behind
        self._beside = beside
        self._predecessors: list[Worker] = []
        self._ran = 0  # by workers before this one
        self._stop_requested = False

    @property
    def has_stuck_handlers(self) -> bool:
        """Whether handlers of any of them were told to stop and still run."""
        return any(worker.lingers for worker in (*self._predecessors, self.worker))

    def stop(self, *, now: bool = False) -> None:
        """As ``Worker.stop``; from any thread."""
        self._stop_requested = True
        self.worker.stop(now=now)

    async def run(self) -> None:
        """Run jobs until stopped."""
        beside = None if self._beside is None else asyncio.ensure_future(self._beside())
        try:
            await self._run(lambda worker: worker.run())
        finally:
            if beside is not None:
                beside.cancel()
                await asyncio.wait((beside,))

    async def run_until_idle(self) -> int:
        """Run jobs until none is due; how many attempts that took."""
        await self._run(lambda worker: worker.run_until_idle())
        return self._ran + self.worker.tally.ran

    async def _run(self, run: Callable[[Worker], Awaitable[Any]]) -> None:
        with stop_signals(self.stop, enabled=self._handle_signals):
            while True:
                try:
                    await run(self.worker)
                except WorkerStuck as error:
                    if self._stop_requested:  # when it was as good as over
                        return
                    self._replace(error)
                else:
                    return

    def _replace(self, error: WorkerStuck) -> None:
        before = self.worker
        self._predecessors = [worker for worker in (*self._predecessors, before) if worker.lingers]
        number = len(self._predecessors)
        if number > self._most_left_behind:
            if self._most_left_behind:
                _log.critical("no fresh worker takes over: %d before it are stuck and still run", number)
            raise error
        self._ran += before.tally.ran
        self.worker = self._make()
        _log.warning("worker %s takes over from %s: %s", self.worker.name, before.name, error)
        if self._stop_requested:  # meanwhile, from another thread
            self.worker.stop()


def make_supervisor(
    app: Tidewheel, options: WorkerOptions, startup_check: Callable[[], Coroutine[Any, Any, None]]
) -> WorkerSupervisor:
    """The workers of an app, one after another. ``startup_check`` begins with the first."""
    inner: WorkerOptions = {**options, "handle_signals": False}
    return WorkerSupervisor(
        lambda: app.worker(**inner),
        handle_signals=options.get("handle_signals", True),
        beside=startup_check,
    )
