"""What is measured of limits, one function each. The tests of faults use them with smaller numbers."""

from __future__ import annotations

import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidewheel import Rate, Tidewheel, TopicLimits
from tidewheel.client.sync.blocking_jobs import BlockingJob

TOPIC = "limited"
START_SECONDS = 60.0
BATCH = 5000


@dataclass(frozen=True)
class Run:
    """One job at work."""

    began: float
    ended: float
    tenant: str
    number: float


class Crew:
    """Worker processes that write to one journal."""

    def __init__(self, url: str, journal: Path, concurrency: int) -> None:
        self._words = [sys.executable, "-m", "bench.limits.worker", url, str(journal), str(concurrency)]
        self._journal = journal
        self._living: list[subprocess.Popen[str]] = []
        self._killed: dict[int, float] = {}  # when, by process

    def hire(self, number: int = 1) -> None:
        hired = [subprocess.Popen(self._words, stdout=subprocess.PIPE, text=True) for _ in range(number)]
        self._living += hired
        for worker in hired:
            assert worker.stdout is not None
            if worker.stdout.readline().strip() != "ready":
                raise RuntimeError("a worker did not start")

    def kill_one(self) -> None:
        """The way the kernel does it, and another one comes in its place."""
        worker = self._living.pop(random.randrange(len(self._living)))  # noqa: S311 - spreads trouble
        self._killed[worker.pid] = time.time()
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        self.hire()

    def dismiss(self) -> None:
        for worker in self._living:
            worker.terminate()
        for worker in self._living:
            worker.communicate(timeout=30)
        self._living.clear()

    def runs(self) -> list[Run]:
        """What was run so far; what a killed worker had begun ended when it was killed."""
        begun: dict[tuple[str, str], tuple[float, str]] = {}
        done: list[Run] = []
        for line in self._journal.read_text().splitlines() if self._journal.exists() else ():
            sign, moment, process, tenant, number = line.split()
            if sign == "+":
                begun[process, number] = (float(moment), tenant)
            else:
                began, tenant = begun.pop((process, number))
                done.append(Run(began, float(moment), tenant, float(number)))
        now = time.time()
        for (process, number), (began, tenant) in begun.items():
            done.append(Run(began, self._killed.get(int(process), now), tenant, float(number)))
        return sorted(done, key=lambda run: run.began)

    def finished(self) -> int:
        """How many jobs were run to their end."""
        text = self._journal.read_text() if self._journal.exists() else ""
        return text.count("\n-") + text.startswith("-")


@contextmanager
def crew(url: str, directory: Path, workers: int, concurrency: int) -> Iterator[Crew]:
    made = Crew(url, directory / f"journal-{time.time_ns()}", concurrency)
    try:
        made.hire(workers)
        yield made
    finally:
        made.dismiss()


def most_at_once(runs: list[Run]) -> int:
    """How many were at work at one moment, at most."""
    steps = sorted([(run.began, 1) for run in runs] + [(run.ended, -1) for run in runs])
    most = current = 0
    for _, step in steps:
        current += step
        most = max(most, current)
    return most


def burst_of(moments: list[float], rate: float) -> float:
    """The largest number of starts beyond what the rate allows, over every stretch of time."""
    largest, lowest = 0.0, float("inf")
    for position, moment in enumerate(sorted(moments)):
        # position - rate * moment is how far ahead of the rate it is by then.
        ahead = position - rate * moment
        lowest = min(lowest, ahead)
        largest = max(largest, ahead - lowest + 1)
    return largest


def enqueue(
    app: Tidewheel, number: int, seconds: float, *, tenant: str | None = None, key: str | None = None
) -> None:
    for start in range(0, number, BATCH):
        payloads = [
            {"number": position, "seconds": seconds} for position in range(start, min(number, start + BATCH))
        ]
        app.sync.enqueue_many(TOPIC, payloads, tenant=tenant, limit_key=key, max_attempts=None)


def concurrency(
    url: str, directory: Path, *, jobs: int, limit: int, seconds: float, workers: int, kills: int
) -> tuple[int, float]:
    """At most how many ran at once, and the share of what the slots allow that was reached."""
    app = Tidewheel(url)
    app.sync.open()
    app.sync.limits.set(TOPIC, TopicLimits(key_concurrency=limit))
    try:
        with crew(url, directory, workers, limit) as at_work:
            # Bystanders of other keys and of another topic do not exist: only the limit is in the way.
            enqueue(app, jobs, seconds, key="the-key")
            began = time.time()
            ideal = jobs * seconds / limit
            for number in range(1, kills + 1):
                time.sleep(max(0.0, began + ideal * number / (kills + 1) - time.time()))
                at_work.kill_one()
            wait_for(lambda: app.sync.count(state="completed").total >= jobs, 10 * ideal + START_SECONDS)
            runs = at_work.runs()
    finally:
        app.sync.close()
    return most_at_once(runs), ideal / (max(run.ended for run in runs) - runs[0].began)


def rate(
    url: str, directory: Path, *, count: int, burst: int, seconds: float, workers: int
) -> tuple[float, float, float]:
    """The largest burst of grants and of starts that was seen, and the share of the rate that was used."""
    app = Tidewheel(url)
    app.sync.open()
    app.sync.limits.set(TOPIC, TopicLimits(rate=Rate(count, 1.0, burst)))
    try:
        with crew(url, directory, workers, count) as at_work:
            enqueue(app, int(count * seconds * 1.5) + burst, 0.001)
            time.sleep(seconds + 2)
            runs = at_work.runs()
        starts = [run.began for run in runs]
        within = [moment for moment in starts if moment <= starts[0] + seconds]
        claimed = [moment for job in jobs_of(app) if (moment := job.record.claimed_at) is not None]
    finally:
        app.sync.close()
    granted = burst_of([moment / 1e6 for moment in claimed], count)
    return granted, burst_of(starts, count), len(within) / (burst + count * seconds)


def fair_share(
    url: str, directory: Path, *, many: int, few: int, seconds: float, slots: int, workers: int
) -> tuple[float, float]:
    """The 95th percentile of how long the jobs of the small tenant waited, and the throughput beside that of
    the large tenant alone.
    """
    app = Tidewheel(url)
    app.sync.open()
    app.sync.limits.set(TOPIC, TopicLimits(fair=True))
    try:
        enqueue(app, many, 0.01, tenant="large")
        with crew(url, directory, workers, slots // workers) as at_work:
            time.sleep(2)
            alone = _throughput(at_work, seconds)
            arrived = time.time()
            enqueue(app, few, 0.01, tenant="small")
            both = _throughput(at_work, seconds)
            runs = at_work.runs()
    finally:
        app.sync.close()
    waits = [run.began - arrived for run in runs if run.tenant == "small"]
    if len(waits) < few:
        raise RuntimeError(f"only {len(waits)} of {few} jobs of the small tenant were run in {seconds} s")
    return statistics.quantiles(waits, n=20)[-1], both / alone


def _throughput(at_work: Crew, seconds: float) -> float:
    began, before = time.time(), at_work.finished()
    time.sleep(seconds)
    return (at_work.finished() - before) / (time.time() - began)


def jobs_of(app: Tidewheel) -> Iterator[BlockingJob[Any]]:
    cursor = None
    while True:
        page = app.sync.jobs(limit=200, cursor=cursor)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return


def wait_for(met: Callable[[], bool], seconds: float) -> None:
    deadline = time.time() + seconds
    while not met():
        if time.time() > deadline:
            raise TimeoutError(f"not done after {seconds:.0f} s")
        time.sleep(0.05)
