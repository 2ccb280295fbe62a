"""What the sessions of one server have in common."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidewheel.beanstalkd.tubes import Tubes
from tidewheel.core.clock import MAX_SECONDS
from tidewheel.errors import StoreError

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.core.clock import Clock
    from tidewheel.tasks.options import JobTemplate

DEFAULT_MAX_JOB_SIZE: Final = 2**16 - 1
"""As in beanstalkd: what a body may have without -z."""
_MAX_TEMPLATES: Final = 1000
_RESCUE_DELAYS: Final = (0.005, 0.02, 0.08)
"""Seconds. Time to run is counted from when a job was asked for; for the store it began a moment later."""

_log = logging.getLogger("tidewheel.beanstalkd")

BINLOG_FILE_BYTES: Final = 10 * 2**20
"""What beanstalkd tells without -s."""


@dataclass(slots=True)
class ServerCounters:
    """What happened since the start of this process."""

    clock: Clock
    max_job_size: int
    binlog_max_size: int = BINLOG_FILE_BYTES
    commands: Counter[str] = field(default_factory=Counter)
    timeouts: int = 0
    total_jobs: int = 0
    connections: int = 0
    producers: int = 0
    workers: int = 0
    waiting: int = 0
    total_connections: int = 0
    draining: bool = False
    instance: str = field(default_factory=lambda: secrets.token_hex(8))
    started: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock.monotonic()


class ServerState:
    """One server's queue, its tubes, and what it counts."""

    def __init__(
        self,
        app: Tidewheel,
        *,
        max_job_size: int = DEFAULT_MAX_JOB_SIZE,
        binlog_max_size: int = BINLOG_FILE_BYTES,
    ) -> None:
        self.app = app
        self.queue = app.queue.on_wire()
        self.tubes = Tubes()
        self.counters = ServerCounters(app.clock, max_job_size, binlog_max_size)
        self.stopping = asyncio.Event()
        self._templates: dict[tuple[str, int, int, int], JobTemplate] = {}
        self._rescuing: asyncio.Task[None] | None = None
        self._store_failing = False
        self._stranger_logged = False

    def template(self, tube: str, priority: int, delay: int, ttr: int) -> JobTemplate:
        """What jobs have in common that are put like this. Most clients put all of theirs alike."""
        wanted = (tube, priority, delay, ttr)
        template = self._templates.get(wanted)
        if template is None:
            if len(self._templates) >= _MAX_TEMPLATES:
                self._templates.clear()
            template = self._templates[wanted] = self.queue.template(
                tube, clamp_seconds(ttr), {"priority": -priority, "delay": clamp_seconds(delay)}
            )
        return template

    def rescue_soon(self) -> None:
        """A job's time to run is over: let others have it."""
        if self._rescuing is None:
            self._rescuing = asyncio.get_running_loop().create_task(self._rescue())

    async def _rescue(self) -> None:
        try:
            for pause in _RESCUE_DELAYS:
                await asyncio.sleep(pause)
                if await self.queue.rescue():
                    return
        except StoreError as error:
            self.record_store_failure(error)  # whoever claims or tidies next does it
        finally:
            self._rescuing = None

    async def close(self) -> None:
        """Before the app is closed."""
        if self._rescuing is not None:
            self._rescuing.cancel()
            await asyncio.wait((self._rescuing,))

    async def sleep_until_stopped(self, seconds: float) -> None:
        """Wait so long, or until the server stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stopping.wait()

    def hung_up_on_stranger(self, start: str) -> None:
        """Log it, the first time as a warning: a browser, or a health check that comes every few seconds."""
        level = logging.DEBUG if self._stranger_logged else logging.WARNING
        self._stranger_logged = True
        _log.log(level, "hung up on a client whose first line is no command: %s", start)

    def record_store_failure(self, error: StoreError) -> None:
        """The store did not do what a client wanted. Said once, not for each of its commands."""
        if not self._store_failing:
            self._store_failing = True
            _log.warning("clients are told OUT_OF_MEMORY, because the store cannot be used: %s", error)

    def record_store_success(self) -> None:
        """The store did what a client wanted."""
        if self._store_failing:
            self._store_failing = False
            _log.warning("the store can be used again")


def clamp_seconds(wanted: int) -> int:
    """As many as a job can be kept waiting for: the wire allows 136 years."""
    return min(wanted, int(MAX_SECONDS))
