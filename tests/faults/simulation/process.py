"""A simulated process: two event loops, a clock that is off, a name nobody else ever has."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from tests.faults.simulation.loop import SimulatedLoop, Timeline
from tidewheel.core.clock import MICROSECONDS
from tidewheel.verification.history import Event, ProcessEnded, ProcessFrozen, ProcessResumed
from tidewheel.worker.lease_keeper import LeaseKeeper, OnDeath

EPOCH = 1_767_225_600 * MICROSECONDS
"""When simulated time begins, by the store's clock: the first of January 2026."""


class OwnClock:
    """A clock of one process (or of the store, which is right by definition)."""

    def __init__(self, timeline: Timeline, wrong_by: float = 0.0, started: float = 0.0) -> None:
        self._timeline = timeline
        self._epoch = EPOCH + int(wrong_by * MICROSECONDS)
        self._started = started

    def step(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self._epoch += int(seconds * MICROSECONDS)

    def now(self) -> int:
        return self._epoch + round(self._timeline.now * MICROSECONDS)

    def monotonic(self) -> float:
        return self._timeline.now + self._started


class Process:
    """What is killed, frozen and started as one. Its events are no longer kept once it is gone."""

    def __init__(
        self,
        name: str,
        timeline: Timeline,
        keep: Callable[[Event], None],
        report: Callable[[str], None],
        clock: OwnClock,
    ) -> None:
        self.name = name
        self.clock = clock
        self.alive = True
        self.frozen = False
        self.numbers = itertools.count(1)
        self.report = report
        self.finished: dict[
            tuple[UUID, str], int
        ] = {}  # the fence under which a step was done; of all processes
        self.main = SimulatedLoop(f"{name}.main", timeline, report, self)  # type: ignore[abstract] # complete enough
        self.keeper = SimulatedLoop(f"{name}.keeper", timeline, report, self)  # type: ignore[abstract] # complete enough
        self._timeline = timeline
        self._keep = keep
        self.when_gone: Callable[[], None] = lambda: None

    # -- a recorder of its own (tidewheel.verification.history.Recorder) -------------------------------------

    def now(self) -> float:
        return self._timeline.now

    def write(self, event: Event) -> None:
        if self.alive:
            self._keep(event)

    # -- what befalls it ------------------------------------------------------------------------------------

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.main.create_task(work)

    def kill(self) -> None:
        """As by SIGKILL: not one more instruction of it is run, no ``finally`` either."""
        if self.alive:
            self.write(ProcessEnded(at=self.now(), process=self.name))
            self.alive = False
            self.main.drop()
            self.keeper.drop()
            self.when_gone()

    def freeze(self) -> None:
        """As by SIGSTOP, or a laptop's lid."""
        if self.alive and not self.frozen:
            self.write(ProcessFrozen(at=self.now(), process=self.name))
            self.frozen = self.main.frozen = self.keeper.frozen = True

    def thaw(self) -> None:
        if self.alive and self.frozen:
            self.write(ProcessResumed(at=self.now(), process=self.name))
            self.frozen = self.main.frozen = self.keeper.frozen = False

    def bury(self) -> None:
        """After the run: end what a killed process left behind, which would otherwise end when collected."""
        for loop in (self.main, self.keeper):
            loop.bury()


class SimulatedThread:
    """In the place of ``LeaseKeeperThread``: the keeper on the other loop of the process that starts it."""

    def __init__(self, keeper: LeaseKeeper, on_death: OnDeath) -> None:
        self._keeper = keeper
        self._on_death = on_death
        self._process = here()
        self._ended = self._process.main.create_future()

    def start(self) -> None:
        self._process.keeper.create_task(self._run())

    async def join(self) -> None:
        await asyncio.shield(self._ended)

    async def _run(self) -> None:
        try:
            await self._keeper.run()
        except Exception as error:
            self._on_death(error)
        self._process.main.call_soon_threadsafe(self._ended.set_result, None)


def here() -> Process:
    """The process whose code is running."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    process = loop.owner
    assert isinstance(process, Process)
    return process
