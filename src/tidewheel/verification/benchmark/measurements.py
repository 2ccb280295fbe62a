"""The measurements of a benchmark, one function each, and the time that each one has.

Each measurement ends when its time is over, however many jobs it has made by then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from tidewheel.client.job_handle import Job
from tidewheel.core.jitter import jitter
from tidewheel.stores import TemporaryStore
from tidewheel.verification.benchmark.report import (
    Measurement,
    MeasurementResult,
    make_latency_result,
    make_rate_result,
)
from tidewheel.verification.benchmark.worker_process import worker_in_process, worker_on_loop
from tidewheel.verification.benchmark.workload import (
    NOOP_TOPIC,
    PICK_UP_TOPIC,
    THROUGHPUT_TOPIC,
    BenchApp,
)

PROGRESS_INTERVAL_SECONDS: Final = 0.2
"""How often the watcher is told."""

ProgressCallback = Callable[[Measurement, float], None]
"""Told which measurement runs, and how many seconds of the run are over, a few times a second."""


class MeasurementTimer:
    """The time one measurement has, counted from ``begin``."""

    def __init__(
        self, seconds: float, measurement: Measurement, before: float, watch: ProgressCallback
    ) -> None:
        self.seconds = seconds
        self._measurement = measurement
        self._before = before
        self._watch = watch
        self._began = self._watched = time.perf_counter()
        watch(measurement, before)

    def begin(self) -> None:
        """Everything is ready: time counts from now."""
        self._began = time.perf_counter()

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._began

    def expired(self) -> bool:
        """Asked between two jobs, where a word to the watcher delays neither."""
        now = time.perf_counter()
        elapsed = now - self._began
        if now - self._watched > PROGRESS_INTERVAL_SECONDS:
            self._watched = now
            self._watch(self._measurement, self._before + min(elapsed, self.seconds))
        return elapsed >= self.seconds


CALLERS: Final = 100
BATCH_JOBS: Final = 1000
"""Jobs of one ``enqueue_many``."""
MAX_JOBS: Final = 300_000
MAX_BYTES: Final = 256 * 1024 * 1024
"""What one measurement may write: a fast store or a long run is not to fill the disk."""
ROW_BYTES: Final = 500
"""What a job takes beside its payload, roughly."""
WARM_UP_CALLS: Final = 5
"""Calls before the clock starts: the first ones open connections and prepare statements."""
IDLE_SECONDS: Final = 0.02
"""A worker that was not given anything for this long is idle."""
JOBS_PER_POLL: Final = 20
PROGRESS_POLL_SECONDS: Final = 0.1
"""How often to look at a worker's progress."""
PICK_UP_SECONDS: Final = 60.0
"""When to give up on a job that nobody picks up."""


@dataclass(frozen=True, slots=True)
class MeasurementSetup:
    """What the measurements of one run share."""

    bench: BenchApp
    scratch: TemporaryStore
    text: str
    payload_bytes: int

    @property
    def max_jobs(self) -> int:
        """That one measurement may make."""
        return min(MAX_JOBS, MAX_BYTES // (self.payload_bytes + ROW_BYTES))

    def worker(self, topic: str, first: Job[Any]) -> AbstractAsyncContextManager[None]:
        """One worker for this topic, in a process of its own where the store can be reached from there."""
        if self.scratch.profile.shared:
            return worker_in_process(self.bench, topic, first)
        return worker_on_loop(self.bench, topic)


async def round_trip(course: MeasurementSetup, timer: MeasurementTimer) -> MeasurementResult | None:
    """A question to the server that it need not think about."""
    return await _answers(course.scratch.measure_round_trip, timer)


async def commit(course: MeasurementSetup, timer: MeasurementTimer) -> MeasurementResult | None:
    """The smallest durable transaction, without Tidewheel."""
    return await _answers(course.scratch.measure_commit, timer)


async def pick_up(course: MeasurementSetup, timer: MeasurementTimer) -> MeasurementResult:
    """From the call of enqueue to the first line of the handler, in a worker that had nothing to do."""
    bench = course.bench
    times: list[float] = []
    if course.scratch.profile.wakeups:
        jobs, longest_pause = 1, 2 * IDLE_SECONDS
    else:  # somewhere between two polls, as jobs of a real program come; one a poll would be too few
        jobs, longest_pause = JOBS_PER_POLL, bench.app.settings.poll_interval

    async def sample() -> None:
        await asyncio.sleep(jitter(IDLE_SECONDS, longest_pause))
        called = time.monotonic_ns()
        job = await bench.pick_up.enqueue(text=course.text)
        times.append((await job.result(PICK_UP_SECONDS) - called) / 1e9)

    first = await bench.pick_up.enqueue(text=course.text)
    async with course.worker(PICK_UP_TOPIC, first):
        timer.begin()
        while not times or not timer.expired():
            await _all(sample() for _ in range(jobs))
        return make_latency_result(times, timer.elapsed, with_rate=False)


async def enqueue_one(course: MeasurementSetup, timer: MeasurementTimer) -> MeasurementResult:
    """One caller that awaits each job's commit."""
    for _ in range(WARM_UP_CALLS):
        await course.bench.noop.enqueue(text=course.text)
    timer.begin()
    times: list[float] = []
    await _call(course, timer, times)
    return make_latency_result(times, timer.elapsed, with_rate=True)


async def enqueue_callers(course: MeasurementSetup, timer: MeasurementTimer) -> MeasurementResult:
    """Many such callers at once, as in a web server."""
    times: list[float] = []
    timer.begin()
    await _all(_call(course, timer, times) for _ in range(CALLERS))
    return make_latency_result(times, timer.elapsed, with_rate=True)


async def enqueue_many(course: MeasurementSetup, timer: MeasurementTimer) -> MeasurementResult:
    """Jobs handed over a thousand at a time."""
    payloads = [{"text": course.text}] * BATCH_JOBS
    count = 0
    timer.begin()
    while count == 0 or (not timer.expired() and count < course.max_jobs):
        await course.bench.noop.enqueue_many(payloads)
        count += BATCH_JOBS
    return make_rate_result(count, timer.elapsed)


async def drain(course: MeasurementSetup, timer: MeasurementTimer) -> MeasurementResult:
    """One worker in this process, with nothing else to do than what has piled up."""
    worker = course.bench.app.worker(topics=[NOOP_TOPIC], handle_signals=False)
    timer.begin()
    working = asyncio.create_task(worker.run_until_idle())
    try:
        while not working.done() and not (timer.expired() and worker.tally.completed):
            await asyncio.wait({working}, timeout=min(PROGRESS_POLL_SECONDS, timer.seconds))
        figure = make_rate_result(worker.tally.completed, timer.elapsed)
    finally:
        worker.stop(now=True)
        await working
    return figure


async def enqueue_and_drain(course: MeasurementSetup, timer: MeasurementTimer) -> MeasurementResult:
    """Callers here, the worker elsewhere: what is completed while others come in."""
    bench = course.bench
    first = await bench.throughput.enqueue(text=course.text)
    async with course.worker(THROUGHPUT_TOPIC, first):
        completed = (await bench.app.stats()).completed
        left = course.max_jobs
        timer.begin()

        async def call() -> None:
            nonlocal left
            while not timer.expired() and left > 0:
                left -= 1
                await bench.throughput.enqueue(text=course.text)
                await asyncio.sleep(0)  # a store in memory answers at once, and nobody else would get a turn

        await _all(call() for _ in range(CALLERS))
        while True:
            seconds = timer.elapsed
            count = (await bench.app.stats()).completed - completed
            if count or seconds > timer.seconds + PICK_UP_SECONDS:
                return make_rate_result(count, seconds)
            # In a very short run the first jobs may still be under way.
            await asyncio.sleep(PROGRESS_POLL_SECONDS)


MEASUREMENTS: Final[
    Mapping[Measurement, Callable[[MeasurementSetup, MeasurementTimer], Awaitable[MeasurementResult | None]]]
] = {
    Measurement.ROUND_TRIP: round_trip,
    Measurement.COMMIT: commit,
    Measurement.PICK_UP: pick_up,
    Measurement.ENQUEUE_ONE: enqueue_one,
    Measurement.ENQUEUE_CALLERS: enqueue_callers,
    Measurement.ENQUEUE_MANY: enqueue_many,
    Measurement.DRAIN: drain,
    Measurement.TOGETHER: enqueue_and_drain,
}


async def _answers(
    ask: Callable[[], Awaitable[float | None]], timer: MeasurementTimer
) -> MeasurementResult | None:
    for _ in range(WARM_UP_CALLS):
        if await ask() is None:
            return None
    times: list[float] = []
    timer.begin()
    while not times or not timer.expired():
        times.append(await ask() or 0.0)
    return make_latency_result(times, timer.elapsed, with_rate=False)


async def _call(course: MeasurementSetup, timer: MeasurementTimer, times: list[float]) -> None:
    enqueue = course.bench.noop.enqueue
    most = course.max_jobs
    while not timer.expired() and len(times) < most:
        began = time.perf_counter()
        await enqueue(text=course.text)
        times.append(time.perf_counter() - began)


async def _all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them; the first that fails ends the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
