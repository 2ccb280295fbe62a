"""How soon a running job ends after somebody in another process has cancelled it.

``python -m tests.worker.cancellation_latency [--number 20] [--store sqlite] [--task waits]`` prints a line
for each. It exits with 1 when a 95th percentile is not below a second. In memory the worker is on
another thread.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE
from tests.servers import DURABLE, PostgresServer
from tests.worker import cancellable_worker
from tests.worker.helpers import until
from tests.worker.worker_processes import Site, stop
from tidewheel import JobCancelled

STORES = ("memory", "sqlite", "postgres")
LIMIT = 1.0
"""Seconds within which a cancellation reaches a worker in another process."""


@dataclass(frozen=True)
class Times:
    """Seconds from the call of ``cancel`` until ``job.result()`` said so, of every job."""

    seconds: Sequence[float]

    def percentile(self, part: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


async def measure(task: str, number: int) -> Times:
    """Cancel so many jobs, one after the other, by the app of ``cancellable_worker`` as it is open."""
    app = cancellable_worker.app
    seconds: list[float] = []
    for turn in range(number):
        job = await app.enqueue(task)

        async def begun() -> bool:
            return (await job.refresh()).progress is not None  # noqa: B023 - awaited before the next turn

        await until(begun)
        await asyncio.sleep(0.05 * (turn % 10))  # at any point between two looks of the worker
        asked = time.monotonic()
        assert await app.cancel(job.id) is False
        with contextlib.suppress(JobCancelled):
            await job.result(timeout=PATIENCE)
        seconds.append(time.monotonic() - asked)
    return Times(seconds)


async def measure_here(tasks: Sequence[str], number: int) -> dict[str, Times]:
    """In memory: the worker is on a thread of this process."""
    with cancellable_worker.app.on_store("memory://"):
        async with cancellable_worker.app, cancellable_worker.app.worker_thread(concurrency=50):
            return {task: await measure(task, number) for task in tasks}


async def measure_beside(site: Site, tasks: Sequence[str], number: int) -> dict[str, Times]:
    """With the worker in a process of its own."""
    worker = site.start()
    try:
        with cancellable_worker.app.on_store(site.url):
            async with cancellable_worker.app:
                return {task: await measure(task, number) for task in tasks}
    finally:
        stop(worker)


@contextlib.contextmanager
def site_of(store: str) -> Iterator[Site]:
    """An empty queue with all its durability."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = None
        if store == "postgres":
            url = stack.enter_context(PostgresServer(settings=DURABLE)).url()
        yield Site(directory, lease=60.0, store_url=url, program="tests.worker.cancellable_worker")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.worker.cancellation_latency", description=__doc__)
    parser.add_argument("--number", type=int, default=20, help="jobs of each task on each store")
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--task", action="append", choices=cancellable_worker.NAMES)
    options = parser.parse_args()
    tasks, too_late = options.task or cancellable_worker.NAMES, False
    logging.getLogger("tidewheel.worker").setLevel(logging.ERROR)  # one line for each that ignores it
    print(f"{'store':<10}{'handler':<10}{'p50':>8}{'p95':>8}{'longest':>9}   of {options.number}, in seconds")
    for store in options.store or STORES:
        if store == "memory":
            times = asyncio.run(measure_here(tasks, options.number))
        else:
            with site_of(store) as site:
                times = asyncio.run(measure_beside(site, tasks, options.number))
        for task, one in times.items():
            p50, p95 = one.percentile(0.5), one.percentile(0.95)
            too_late |= p95 >= LIMIT
            print(f"{store:<10}{task:<10}{p50:>8.3f}{p95:>8.3f}{max(one.seconds):>9.3f}", flush=True)
    return int(too_late)


if __name__ == "__main__":
    sys.exit(main())
