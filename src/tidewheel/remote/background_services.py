"""What workers do for all, done by a process that hands jobs out to workers elsewhere.

They reach no store, so none of them can bring back jobs of the dead at once, fire schedules or write down
what tasks declare about their topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from tidewheel.core.model import Lane
from tidewheel.errors import StoreError
from tidewheel.schedules.scheduler import Scheduler
from tidewheel.worker.async_waits import cancel_and_wait
from tidewheel.worker.backoff import RecoverySignal
from tidewheel.worker.declared_limits import limits_of_tasks, write_declared_limits
from tidewheel.worker.store_maintenance import Rescuer

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

IDLE_SECONDS: Final = 300.0
"""Whom nobody has asked for work for so long has no workers elsewhere to do it for."""

DECLARE_TIMEOUT_SECONDS: Final = 10.0
"""How long the first worker may be kept until the limits of its topics are written."""

_log = logging.getLogger("tidewheel.remote")


class BackgroundServices:
    """Begins with the first worker elsewhere, and ends some time after the last."""

    def __init__(self, app: Tidewheel) -> None:
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._asked_at = 0.0  # by the loop's clock
        self._declared = asyncio.Event()

    def record_request(self) -> None:
        """A worker elsewhere was here."""
        loop = asyncio.get_running_loop()
        self._asked_at = loop.time()
        if self._task is None:
            self._task = loop.create_task(self._run(), name="tidewheel-housekeeping")

    async def wait_until_declared(self) -> None:
        """When the limits that tasks declare are written, which the first claim is to obey. A store that does
        not answer is waited for as long as a claim would; that says what is the matter with it.
        """
        if not self._declared.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DECLARE_TIMEOUT_SECONDS):
                    await self._declared.wait()

    async def close(self) -> None:
        """End it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _run(self) -> None:
        app, recovery = self._app, RecoverySignal()
        store, settings, clock = app.store, app.settings, app.clock
        parts = (
            self._declare(recovery),
            Rescuer(store, settings.poll_interval, clock, recovery).run(),
            Scheduler(store, app.registry, settings, clock, recovery, app.telemetry).run(),
        )
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await self._until_idle(tasks)
        finally:
            await cancel_and_wait(tasks)
            if self._task is asyncio.current_task():
                self._task = None

    async def _declare(self, recovery: RecoverySignal) -> None:
        registry = self._app.registry
        limits = limits_of_tasks(registry, [Lane(task.topic) for task in registry])
        try:
            await write_declared_limits(self._app.store, limits, recovery, asyncio.Event())
        except StoreError as error:
            _log.error("the limits that tasks declare are not written: %s", error)
        self._declared.set()

    async def _until_idle(self, tasks: list[asyncio.Task[None]]) -> None:
        loop = asyncio.get_running_loop()
        while (left := self._asked_at + IDLE_SECONDS - loop.time()) > 0:
            ended, going = await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
            for task in ended:
                if (error := task.exception()) is not None:
                    _log.critical("a part of the housekeeping died, which is a bug", exc_info=error)
                    return  # the next worker that asks begins it anew
            tasks = list(going)
            if not tasks:
                return
