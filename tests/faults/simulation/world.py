"""One run from a seed: workers, producers and faults, until everything is settled, and the verdict."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast
from uuid import UUID

import msgspec

from tests.faults.simulation.connection import LossyStore, Network, Weather
from tests.faults.simulation.faults import Faults
from tests.faults.simulation.handlers import TASKS, registry
from tests.faults.simulation.loop import Timeline
from tests.faults.simulation.process import EPOCH, OwnClock, Process, SimulatedThread
from tests.faults.simulation.producers import Producer
from tests.faults.simulation.promises import Known, broken_promises
from tests.faults.simulation.scheduler import Scheduler, TooManySteps
from tidewheel.core.clock import MICROSECONDS, Clock
from tidewheel.core.jitter import GENERATOR
from tidewheel.errors import StoreUnavailable, WorkerStuck
from tidewheel.schedules.scheduler import Scheduler as ScheduleRunner
from tidewheel.settings import Settings
from tidewheel.stores.memory import MemoryStore
from tidewheel.stores.protocol import Store
from tidewheel.verification.checker import CheckReport, Violation, check_history
from tidewheel.verification.history import (
    Event,
    FaultInjected,
    JobsCounted,
    StoredJob,
    WorkloadDrained,
    encode,
)
from tidewheel.verification.recording_store import RecordingStore
from tidewheel.worker import Worker

QUIET_WITHIN = 90.0
"""Simulated seconds after which everything must have ended, once all faults are over."""
STOP_WITHIN = 45.0
"""Simulated seconds a worker may take to stop when nothing is wrong any more."""
HALF_A_DAY = 43_200.0

MakeStore = Callable[[Clock], MemoryStore]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave."""

    seed: int
    events: list[Event]
    report: CheckReport
    problems: list[str]  # which no rule is about: something died, hung, or is inconsistent
    steps: int
    seconds: float  # simulated

    @property
    def good(self) -> bool:
        return not self.problems and not self.report.violations

    def history(self) -> str:
        return "\n".join(encode(event) for event in self.events)

    def findings(self) -> list[Violation]:
        return [*self.report.violations, *(Violation("simulation", problem) for problem in self.problems)]


class World:
    """Everything there is in one run."""

    def __init__(self, seed: int, make_store: MakeStore, trace: bool) -> None:
        self.chance = random.Random(seed)
        self.timeline = Timeline()
        self.events: list[Event] = []
        self.problems: list[str] = []
        self.lease = self.chance.choice((2.0, 2.0, 2.0, 3.0, 5.0))
        stalls = self.chance.choice((0.0, 0.0, 0.0, 0.002, 0.01))
        self.scheduler = Scheduler(self.timeline, random.Random(self.chance.random()), stalls)
        self.store_clock = OwnClock(self.timeline)
        store = make_store(self.store_clock)
        self.network = Network(
            self.timeline,
            store,
            random.Random(self.chance.random()),
            self.trouble,
            patience=self.chance.choice((3.0, 12.0)),
        )
        self.network._carry_out("open", (), {})
        self.workers: list[Workplace] = []
        self.producers: list[Producer] = []
        self.processes: list[Process] = []
        self.finished_steps: dict[tuple[UUID, str], int] = {}
        self.ending = False
        self._trace = trace
        self._stalls = stalls > 0

    # -- what others use ----------------------------------------------------------------------------------

    def keep(self, event: Event) -> None:
        self.events.append(event)
        if self._trace:
            print(f"{event.at:10.6f} {encode(event)}")

    def trouble(self, kind: str) -> None:
        self.keep(FaultInjected(at=self.timeline.now, kind=kind))

    def report(self, problem: str) -> None:
        self.problems.append(problem)

    def new_process(self, kind: str) -> tuple[Process, Weather, Store]:
        """A process with a clock that is off by up to half a day either way, and its way to the store."""
        chance = self.chance
        clock = OwnClock(
            self.timeline, chance.uniform(-HALF_A_DAY, HALF_A_DAY), started=chance.uniform(0.0, 1e6)
        )
        name = f"{kind}{len(self.processes) + 1}"
        process = Process(name, self.timeline, self.keep, self.report, clock)
        process.finished = self.finished_steps
        self.processes.append(process)
        self.scheduler.loops += [process.main, process.keeper]
        weather = Weather()
        weather.slowest = chance.choice((0.0, 0.002, 0.02, 0.3))
        weather.ever_bad = weather.slowest > 0.02
        store = cast("Store", LossyStore(self.network, weather))
        return process, weather, cast("Store", RecordingStore(store, process, process.numbers))

    def start_worker(self, name: str) -> None:
        """Another worker process; one that is gone is followed by the next, under the same worker's name."""
        self.workers.append(Workplace(self, name))

    def follow(self, name: str, seconds: float) -> None:
        """Somebody starts a process in the place of one that is gone."""
        if not self.ending:
            self.timeline.after(seconds, lambda: None if self.ending else self.start_worker(name))

    # -- the run --------------------------------------------------------------------------------------------

    def run(self) -> None:
        for number in range(self.chance.randint(1, 4)):
            self.start_worker(f"host-{number}")
        for _ in range(self.chance.randint(1, 2)):
            Producer(self)
        faults = Faults(self)
        over = [False]

        def heal() -> None:
            faults.heal()
            self.start_worker("host-fresh")
            over[0] = True

        self.timeline.at(faults.length, heal)
        table = self.network.store._table

        def settled() -> bool:
            return (
                over[0]
                and not self.network.under_way
                and len(table.finished) + len(table.kept_for_ever) == len(table.jobs)
                and all(producer.done for producer in self.producers)
            )

        if not self.scheduler.run(settled, until=faults.length + QUIET_WITHIN):
            left = [
                f"{job.id} {job.state} {job.payload!r}" for job in table.jobs.values() if not job.state.final
            ]
            self.report(f"not settled {QUIET_WITHIN:g} s after the last fault: {left}")
        self.ending = True
        for one in self.workers:
            one.stop()
        stopped_by = self.timeline.now + STOP_WITHIN
        if not self.scheduler.run(lambda: not any(one.process.alive for one in self.workers), stopped_by):
            names = [one.process.name for one in self.workers if one.process.alive]
            self.report(f"workers that do not stop: {', '.join(names)}")

    def dump(self) -> None:
        """Everything that is stored, as the end of the history."""
        now, network = self.timeline.now, self.network
        for job in network.store._table.jobs.values():
            error = job.error_summary
            self.keep(
                StoredJob(
                    at=now,
                    id=job.id,
                    topic=job.topic,
                    tenant=job.tenant,
                    task=job.task,
                    key=job.key,
                    state=job.state.value,
                    attempt=job.attempt,
                    max_attempts=job.max_attempts,
                    fence=job.fence,
                    ended=None if job.finished_at is None else (job.finished_at - EPOCH) / MICROSECONDS,
                    error=None if error is None else error.partition(":")[0],
                )
            )
        topics, _ = network._carry_out("topics", (), {})
        for topic in topics:
            states = ("pending", "running", "completed", "failed", "cancelled")
            counts = {state: getattr(topic, state) for state in states}
            self.keep(JobsCounted(at=now, topic=topic.topic, states=counts))
        damage, _ = network._carry_out("check", (), {})
        self.problems += damage
        self.keep(WorkloadDrained(at=now))

    def broken_promises(self) -> list[str]:
        jobs = self.network.store._table.jobs.values()
        places: list[Workplace | Producer] = [*self.workers, *self.producers]
        known = Known(
            plans={job.id: str(msgspec.json.decode(job.payload)["plan"]) for job in jobs},
            impatient={job.id for job in jobs if job.timeout is not None},
            well_connected={one.process.name for one in places if not one.weather.ever_bad},
            stalls=self._stalls,
        )
        return list(broken_promises(self.events, known))

    def close(self) -> None:
        self.ending = True
        for process in self.processes:
            process.kill()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what they would still have awaited
            for process in self.processes:
                process.bury()


class Workplace:
    """A worker and the process it runs in."""

    def __init__(self, world: World, name: str) -> None:
        chance = world.chance
        self.process, self.weather, store = world.new_process("worker")
        self._world = world
        self._store = store
        self._worker = Worker(
            store,
            registry(),
            Settings(lease=world.lease, shutdown_grace=chance.choice((0.0, 3.0))),
            name=name,
            concurrency=chance.randint(1, 5),
            topics=None if chance.random() < 0.8 or name == "host-fresh" else chance.sample(TASKS, 2),
            topic_concurrency={"alpha": 1} if chance.random() < 0.2 else None,
            handle_signals=False,
            isolate=False,
            clock=self.process.clock,
            keeper_thread=SimulatedThread,
            make_scheduler=ScheduleRunner,
        )
        self._revival = chance.uniform(0.0, 1.5)  # seconds after its death until another one starts
        self._on_its_way_out = False
        self.process.when_gone = lambda: world.follow(name, self._revival)
        work = self.process.start(self._work())
        work.add_done_callback(self._ended)

    def stop(self, *, now: bool = False) -> None:
        """As by SIGTERM."""
        if self.process.alive:
            self._on_its_way_out = True
            self._worker.stop(now=now)

    async def _work(self) -> None:
        while True:
            try:
                await self._store.open()
                break
            except StoreUnavailable:
                await asyncio.sleep(0.5)
        try:
            await self._worker.run()
        except WorkerStuck:
            self._on_its_way_out = True  # for another process, as the command line does it

    def _ended(self, work: asyncio.Task[None]) -> None:
        error = work.exception()
        if error is not None:
            self._world.report(f"{self.process.name} ended with {error!r}")
        elif not self._on_its_way_out:
            self._world.report(f"{self.process.name} ended though nobody asked it to")
        self.process.kill()


class _Complaints(logging.Handler):
    """What a worker logs with an exception is a bug of its own, and a finding."""

    def __init__(self, world: World, trace: bool) -> None:
        super().__init__(logging.DEBUG if trace else logging.ERROR)
        self._world = world
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        if self._trace:
            print(f"{self._world.timeline.now:10.6f} {record.levelname}: {record.getMessage()}")
        if record.exc_info:
            self._world.report(f"{record.getMessage()}: {record.exc_info[1]!r}")


def simulate(seed: int, make_store: MakeStore | None = None, *, trace: bool = False) -> Outcome:
    """The run of this seed, from its first step to the verdict. The same seed gives the same, always."""
    with _undisturbed(seed):
        world = World(seed, make_store or _sound_store, trace)
        log = logging.getLogger("tidewheel.worker")
        complaints = _Complaints(world, trace)
        log.addHandler(complaints)
        log.setLevel(complaints.level)
        try:
            try:
                world.run()
            except TooManySteps as error:
                world.report(str(error))
            world.dump()
            report = check_history(world.events)
            world.problems += world.broken_promises()
        finally:
            log.removeHandler(complaints)
            log.setLevel(logging.CRITICAL + 1)  # of what follows nothing is said: it happens to the dead
            world.close()
    seconds = round(world.timeline.now, 6)
    return Outcome(seed, world.events, report, world.problems, world.scheduler.steps, seconds)


@contextmanager
def _undisturbed(seed: int) -> Iterator[None]:
    """Nothing from outside gets into a run, and what it changes outside is put back."""
    log = logging.getLogger("tidewheel.worker")
    level, propagate = log.level, log.propagate
    state, collecting = GENERATOR.getstate(), gc.isenabled()
    GENERATOR.seed(seed)
    log.propagate = False
    gc.disable()  # what it finalises, and when, would depend on everything that ran before
    try:
        yield
    finally:
        log.setLevel(level)
        log.propagate = propagate
        GENERATOR.setstate(state)
        if collecting:
            gc.enable()


def _sound_store(clock: Clock) -> MemoryStore:
    return MemoryStore(clock=clock)
