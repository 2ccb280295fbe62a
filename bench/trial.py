"""One measurement of one system: an empty place, a producer, workers, and what they say."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.environments import Environment
from bench.grounds import Place
from bench.machine import total_cpu_seconds
from bench.program import Program
from bench.systems import System

Figures = dict[str, float]
"""What a measurement found, by name; the unit is the end of the name."""

CONCURRENCY = 100
"""Handlers in flight."""

PAYLOAD = 100
"""Bytes of a payload where nothing else is said."""

POLL = 0.02
"""Seconds between two looks at the workers' counts."""

SLACK = 60.0
"""Seconds beyond what is expected before a system is given up."""


class JobsLost(Exception):
    """A system accepted jobs and did not run each of them."""


@dataclass
class Trial:
    """What a workload works with."""

    system: System
    environment: Environment
    place: Place
    log: Path
    scale: float
    stack: contextlib.ExitStack
    options: dict[str, Any] = field(default_factory=dict)
    producer: Program = field(init=False)
    workers: list[Program] = field(default_factory=list)

    def jobs(self, full: int, seconds: float = 8.0, pace: float = 1.0) -> int:
        """How many of the full number this system does in about so many seconds; ``pace`` times its usual."""
        return max(100, int(min(full, self.system.pace * pace * seconds) * self.scale))

    def seconds(self, full: float) -> float:
        return max(1.0, full * min(1.0, self.scale))

    # -- programs ---------------------------------------------------------------------------------------

    def open(self, kind: str = "noop", **options: Any) -> Program:
        """Start the producer, which makes the schema. ``options`` are for workers, too."""
        self.options = {**self.system.options, "kind": kind, **options}
        self.producer = self._start()
        self.producer.ask("setup")
        return self.producer

    def add_workers(self, number: int = 1) -> None:
        """Start worker processes that are ready to work and do not yet."""
        self.workers = [self._start() for _ in range(number)]

    def _start(self) -> Program:
        program = self.stack.enter_context(Program(self.environment, self.log))
        program.ask("open", url=self.place.url, options=self.options)
        return program

    def work(self) -> None:
        for worker in self.workers:
            worker.ask("work", concurrency=CONCURRENCY)

    def fill(self, jobs: int, payload: int = PAYLOAD) -> dict[str, Any]:
        return self.producer.ask("fill", patience=600, jobs=jobs, payload=payload)

    # -- looking ----------------------------------------------------------------------------------------

    def counts(self) -> list[dict[str, Any]]:
        return [worker.ask("count") for worker in self.workers]

    def ran(self) -> int:
        return sum(count["ran"] for count in self.counts())

    def wait_for(self, jobs: int, patience: float) -> list[dict[str, Any]]:
        """The workers' reports once all jobs ran; a minute without any progress means that some are lost."""
        deadline = time.monotonic() + patience
        moved, before = time.monotonic(), 0
        while True:
            counts = self.counts()
            ran = sum(count["ran"] for count in counts)
            if ran >= jobs:
                return counts
            if ran > before:
                moved, before = time.monotonic(), ran
            if time.monotonic() > min(deadline, moved + SLACK):
                raise JobsLost(f"{ran:,} of {jobs:,} jobs ran, then none for a while")
            time.sleep(POLL)

    def wait_until_recorded(self, jobs: int) -> float:
        """When the store said that all is done. Raises ``JobsLost`` when it does not have all of them."""
        deadline = time.monotonic() + SLACK
        while (left := self.producer.ask("left"))["unfinished"]:
            if time.monotonic() > deadline:
                raise JobsLost(f"all {jobs:,} jobs ran, {left['unfinished']:,} are not recorded as done")
            time.sleep(POLL / 2)
        now = time.monotonic()
        completed = left["completed"]
        if completed is not None and completed != jobs:
            raise JobsLost(f"{jobs:,} jobs ran, {completed:,} are recorded as completed")
        return now

    @contextlib.contextmanager
    def cpu(self, figures: Figures) -> Iterator[None]:
        """Put the processor time of workers and server into ``figures``; ``per_job`` makes it µs a job.

        And how busy the whole machine was: with all cores busy, more processes cannot be faster.
        """
        busy, total = total_cpu_seconds()
        server = self.place.server_cpu_seconds()
        workers = sum(count["cpu_seconds"] for count in self.counts())
        yield
        figures["worker_cpu"] = sum(count["cpu_seconds"] for count in self.counts()) - workers
        busy_after, total_after = total_cpu_seconds()
        if total_after > total:
            figures["machine_busy_percent"] = 100 * (busy_after - busy) / (total_after - total)
        if server is not None:
            figures["server_cpu"] = (self.place.server_cpu_seconds() or 0.0) - server


def per_job(figures: Figures, jobs: int) -> Figures:
    """Processor seconds as microseconds a job."""
    return {
        **{name: value for name, value in figures.items() if not name.endswith("_cpu")},
        **{
            f"{name}_us": 1e6 * value / max(1, jobs)
            for name, value in figures.items()
            if name.endswith("_cpu")
        },
    }
