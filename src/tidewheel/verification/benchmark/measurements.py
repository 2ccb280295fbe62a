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
from tidewheel.stores import Scratch
from tidewheel.verification.benchmark.report import Figure, Measurement, rate, timed
from tidewheel.verification.benchmark.worker_process import worker_beside, worker_here
from tidewheel.verification.benchmark.workload import (
    FLOW_TOPIC,
    NOTHING_TOPIC,
    STAMP_TOPIC,
    BenchApp,
)

WATCH_SECONDS: Final = 0.2
"""How often the watcher is told."""

Watcher = Callable[[Measurement, float], None]
"""Told which measurement runs, and how many seconds of the run are over, a few times a second."""


class Stretch:
    """The time one measurement has, counted from ``begin``."""

    def __init__(self, seconds: float, measurement: Measurement, before: float, watch: Watcher) -> None:
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

    def over(self) -> bool:
        """Asked between two jobs, where a word to the watcher delays neither."""
        now = time.perf_counter()
        elapsed = now - self._began
        if now - self._watched > WATCH_SECONDS:
            self._watched = now
            self._watch(self._measurement, self._before + min(elapsed, self.seconds))
        return elapsed >= self.seconds


CALLERS: Final = 100
BATCH: Final = 1000
"""Jobs of one ``enqueue_many``."""
MOST_JOBS: Final = 300_000
MOST_BYTES: Final = 256 * 1024 * 1024
"""What one measurement may write: a fast store or a long run is not to fill the disk."""
ROW_BYTES: Final = 500
"""What a job takes beside its payload, roughly."""
WARM_UP: Final = 5
"""Calls before the clock starts: the first ones open connections and prepare statements."""
IDLE_SECONDS: Final = 0.02
"""A worker that was not given anything for this long is idle."""
JOBS_A_POLL: Final = 20
LOOK_SECONDS: Final = 0.1
"""How often to look at a worker's progress."""
PICK_UP_SECONDS: Final = 60.0
"""When to give up on a job that nobody picks up."""


@dataclass(frozen=True, slots=True)
class Course:
    """What the measurements of one run share."""

    bench: BenchApp
    scratch: Scratch
    text: str
    payload_bytes: int

    @property
    def most_jobs(self) -> int:
        """That one measurement may make."""
        return min(MOST_JOBS, MOST_BYTES // (self.payload_bytes + ROW_BYTES))

    def worker(self, topic: str, first: Job[Any]) -> AbstractAsyncContextManager[None]:
        """One worker for this topic, in a process of its own where the store can be reached from there."""
        if self.scratch.ground.shared:
            return worker_beside(self.bench, topic, first)
        return worker_here(self.bench, topic)


async def round_trip(course: Course, stretch: Stretch) -> Figure | None:
    """A question to the server that it need not think about."""
    return await _answers(course.scratch.round_trip, stretch)


async def commit(course: Course, stretch: Stretch) -> Figure | None:
    """The smallest durable transaction, without Tidewheel."""
    return await _answers(course.scratch.commit, stretch)


async def pick_up(course: Course, stretch: Stretch) -> Figure:
    """From the call of enqueue to the first line of the handler, in a worker that had nothing to do."""
    bench = course.bench
    times: list[float] = []
    if course.scratch.ground.hints:
        jobs, longest_pause = 1, 2 * IDLE_SECONDS
    else:  # somewhere between two polls, as jobs of a real program come; one a poll would be too few
        jobs, longest_pause = JOBS_A_POLL, bench.app.settings.poll_interval

    async def sample() -> None:
        await asyncio.sleep(jitter(IDLE_SECONDS, longest_pause))
        called = time.monotonic_ns()
        job = await bench.stamp.enqueue(text=course.text)
        times.append((await job.result(PICK_UP_SECONDS) - called) / 1e9)

    first = await bench.stamp.enqueue(text=course.text)
    async with course.worker(STAMP_TOPIC, first):
        stretch.begin()
        while not times or not stretch.over():
            await _all(sample() for _ in range(jobs))
        return timed(times, stretch.elapsed, with_rate=False)


async def enqueue_one(course: Course, stretch: Stretch) -> Figure:
    """One caller that awaits each job's commit."""
    for _ in range(WARM_UP):
        await course.bench.nothing.enqueue(text=course.text)
    stretch.begin()
    times: list[float] = []
    await _call(course, stretch, times)
    return timed(times, stretch.elapsed, with_rate=True)


async def enqueue_callers(course: Course, stretch: Stretch) -> Figure:
    """Many such callers at once, as in a web server."""
    times: list[float] = []
    stretch.begin()
    await _all(_call(course, stretch, times) for _ in range(CALLERS))
    return timed(times, stretch.elapsed, with_rate=True)


async def enqueue_many(course: Course, stretch: Stretch) -> Figure:
    """Jobs handed over a thousand at a time."""
    payloads = [{"text": course.text}] * BATCH
    count = 0
    stretch.begin()
    while count == 0 or (not stretch.over() and count < course.most_jobs):
        await course.bench.nothing.enqueue_many(payloads)
        count += BATCH
    return rate(count, stretch.elapsed)


async def drain(course: Course, stretch: Stretch) -> Figure:
    """One worker in this process, with nothing else to do than what has piled up."""
    worker = course.bench.app.worker(topics=[NOTHING_TOPIC], handle_signals=False)
    stretch.begin()
    working = asyncio.create_task(worker.run_until_idle())
    try:
        while not working.done() and not (stretch.over() and worker.tally.completed):
            await asyncio.wait({working}, timeout=min(LOOK_SECONDS, stretch.seconds))
        figure = rate(worker.tally.completed, stretch.elapsed)
    finally:
        worker.stop(now=True)
        await working
    return figure


async def together(course: Course, stretch: Stretch) -> Figure:
    """Callers here, the worker elsewhere: what is completed while others come in."""
    bench = course.bench
    first = await bench.flow.enqueue(text=course.text)
    async with course.worker(FLOW_TOPIC, first):
        completed = (await bench.app.stats()).completed
        left = course.most_jobs
        stretch.begin()

        async def call() -> None:
            nonlocal left
            while not stretch.over() and left > 0:
                left -= 1
                await bench.flow.enqueue(text=course.text)
                await asyncio.sleep(0)  # a store in memory answers at once, and nobody else would get a turn

        await _all(call() for _ in range(CALLERS))
        while True:
            seconds = stretch.elapsed
            count = (await bench.app.stats()).completed - completed
            if count or seconds > stretch.seconds + PICK_UP_SECONDS:
                return rate(count, seconds)
            await asyncio.sleep(LOOK_SECONDS)  # in a very short run the first jobs may still be under way


MEASURES: Final[Mapping[Measurement, Callable[[Course, Stretch], Awaitable[Figure | None]]]] = {
    Measurement.ROUND_TRIP: round_trip,
    Measurement.COMMIT: commit,
    Measurement.PICK_UP: pick_up,
    Measurement.ENQUEUE_ONE: enqueue_one,
    Measurement.ENQUEUE_CALLERS: enqueue_callers,
    Measurement.ENQUEUE_MANY: enqueue_many,
    Measurement.DRAIN: drain,
    Measurement.TOGETHER: together,
}


async def _answers(ask: Callable[[], Awaitable[float | None]], stretch: Stretch) -> Figure | None:
    for _ in range(WARM_UP):
        if await ask() is None:
            return None
    times: list[float] = []
    stretch.begin()
    while not times or not stretch.over():
        times.append(await ask() or 0.0)
    return timed(times, stretch.elapsed, with_rate=False)


async def _call(course: Course, stretch: Stretch, times: list[float]) -> None:
    enqueue = course.bench.nothing.enqueue
    most = course.most_jobs
    while not stretch.over() and len(times) < most:
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
