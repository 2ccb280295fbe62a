"""First figures of the core: ``python -m bench.core NAME…`` (or ``all``), one JSON line each.

On SQLite unless told ``--store postgres``: that starts a server of its own for each figure.
Not a test: figures depend on the machine and its mood. Compare two of them only from one run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench.backlog import late, urgent
from bench.ground import STORES, Ground, ground, make_app
from bench.showing import percentiles, show
from windlass.ids import new_id
from windlass.model import ClaimRequest, Lane, NewJob, Settlement
from windlass.outcome import Completed
from windlass.stores import create_store
from windlass.stores.protocol import Store

PAYLOAD = {"x": "y" * 90}


async def drain(where: Ground, number: int = 100_000) -> None:
    """One worker process, no-op jobs, concurrency 100, history kept."""
    app = make_app(where)

    @app.task
    async def noop(x: str) -> None: ...

    async with app:
        began = time.perf_counter()
        await noop.enqueue_many([PAYLOAD] * number)
        enqueued = time.perf_counter() - began
        cpu = time.process_time()
        began = time.perf_counter()
        await app.run_until_idle(concurrency=100)
        elapsed = time.perf_counter() - began
        stats = await app.stats()
        show(
            "drain",
            store=where.store,
            jobs=stats.completed,
            jobs_per_second=round(number / elapsed),
            cpu_us_per_job=round((time.process_time() - cpu) / number * 1e6, 1),
            bulk_enqueue_per_second=round(number / enqueued),
        )


async def enqueue(where: Ground, callers: int = 100, each: int = 300) -> None:
    """Concurrent callers that each wait for their own durable commit; then a single one."""
    app = make_app(where)

    @app.task
    async def noop(x: str) -> None: ...

    async with app:

        async def caller(number: int, times: list[float]) -> None:
            for _ in range(number):
                began = time.perf_counter()
                await noop.enqueue(**PAYLOAD)
                times.append(time.perf_counter() - began)

        await caller(100, [])
        times: list[float] = []
        began = time.perf_counter()
        await asyncio.gather(*(caller(each, times) for _ in range(callers)))
        rate = callers * each / (time.perf_counter() - began)
        show(
            "enqueue, concurrent callers",
            store=where.store,
            callers=callers,
            jobs_per_second=round(rate),
            **percentiles(times),
        )
        times = []
        await caller(2000, times)
        show("enqueue, one caller", store=where.store, **percentiles(times))


PICKUP_WORKER = """
import asyncio, os, sys, time
from windlass import Windlass
app = Windlass(sys.argv[1])

@app.task
async def stamp() -> int:
    return time.monotonic_ns()

async def main():
    async with app:
        print(os.getpid(), flush=True)
        await app.run_worker()

asyncio.run(main())
"""


async def pickup(where: Ground, number: int = 300, idle_seconds: float = 10.0) -> None:
    """From the call of enqueue to the start of the handler in another, idle process; what idling costs."""
    app = make_app(where)
    async with app:
        worker = subprocess.Popen(
            [sys.executable, "-c", PICKUP_WORKER, app.settings.url], stdout=subprocess.PIPE, text=True
        )
        assert worker.stdout is not None
        worker.stdout.readline()
        await (await app.enqueue("stamp")).result(timeout=10)
        times = []
        for _ in range(number):
            began = time.monotonic_ns()
            job = await app.enqueue("stamp")
            times.append((await job.result(timeout=10) - began) / 1e9)
            await asyncio.sleep(0.02)
        await asyncio.sleep(1)
        before = _cpu_seconds(worker.pid)
        await asyncio.sleep(idle_seconds)
        idle = (_cpu_seconds(worker.pid) - before) / idle_seconds
        worker.terminate()
        worker.wait()
        show(
            "pick-up by an idle worker in another process",
            store=where.store,
            **percentiles(times),
            idle_cpu_percent=round(100 * idle, 2),
        )


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


MEMORY_WORKER = """
import asyncio, resource, sys, time
began = time.monotonic()
from windlass import Windlass
app = Windlass(sys.argv[1])
first = []
ran = 0

@app.task
async def noop(x: str) -> None:
    global ran
    if not first:
        first.append(time.monotonic() - began)
    ran += 1

def rss():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() / 1e6

async def main():
    async with app:
        before = rss()
        most = before
        opened = time.monotonic()
        worker = asyncio.create_task(app.run_until_idle(concurrency=100))
        while not worker.done():
            most = max(most, rss())
            await asyncio.sleep(0.01)
        print(first[0], first[0] - (opened - began), before, most, ran)

asyncio.run(main())
"""


async def memory(where: Ground, number: int = 100_000) -> None:
    """100,000 waiting jobs of 10 kB: what a worker's memory grows by, and how soon it starts the first."""
    app = make_app(where)

    @app.task
    async def noop(x: str) -> None: ...

    async with app:
        for _ in range(0, number, 1000):
            await noop.enqueue_many([{"x": "y" * 10_000}] * 1000)
    output = subprocess.run(
        [sys.executable, "-c", MEMORY_WORKER, app.settings.url], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    since_start, since_open, before, most, ran = map(float, output.split())
    show(
        "100,000 waiting jobs of 10 kB",
        store=where.store,
        ran=int(ran),
        first_job_after_process_start_s=round(since_start, 3),
        first_job_after_open_s=round(since_open, 3),
        rss_before_mb=round(before, 1),
        rss_growth_mb=round(most - before, 1),
    )


async def flat(where: Ground, number: int = 1_000_000, batch: int = 100, rounds: int = 100) -> None:
    """A claim of 100 in an empty store and beside a million each of finished, waiting and delayed jobs.

    The two are measured in turn, so that the machine's mood is the same for both.
    """
    stores = {}
    for name in ("empty", "full"):
        stores[name] = create_store(where.url(name))
        await stores[name].open()
        await stores[name].migrate()
    began = time.perf_counter()
    await _fill(stores["full"], number)
    filled = time.perf_counter() - began
    await where.rest()
    times: dict[str, list[float]] = {"empty": [], "full": []}
    for round_ in range(rounds):
        for name, store in stores.items():
            elapsed = await _claim_time(store, batch)
            if round_ >= rounds // 5:  # the first ones warm up
                times[name].append(elapsed)
    began = time.perf_counter()
    stats = await stores["full"].stats(window_seconds=3600)
    stats_seconds = time.perf_counter() - began
    for store in stores.values():
        await store.close()
    empty, full = (statistics.median(times[name]) for name in ("empty", "full"))
    show(
        "claim of 100",
        store=where.store,
        empty_ms=round(1000 * empty, 3),
        full_ms=round(1000 * full, 3),
        ratio=round(full / empty, 2),
        finished=stats.completed + stats.cancelled,
        pending=stats.pending,
        delayed=stats.delayed,
        stats_ms=round(1000 * stats_seconds, 1),
        fill_seconds=round(filled),
        disk_mb=await where.megabytes("full"),
    )


async def _claim_time(store: Store, batch: int) -> float:
    await store.enqueue([_new("hot") for _ in range(batch)])
    began = time.perf_counter()
    claim = await store.claim(ClaimRequest("bench", (Lane("hot", "noop"),), batch, 60))
    elapsed = time.perf_counter() - began
    assert len(claim.jobs) == batch
    await store.settle([Settlement(job.lease, Completed(), 0.0) for job in claim.jobs])
    return elapsed


async def _fill(store: Store, number: int) -> None:
    size = 10_000
    for _ in range(0, number, size):
        await store.enqueue([_new("other") for _ in range(size)])
        await store.enqueue([_new("hot", delay=86_400) for _ in range(size)])
        done = [_new("finished") for _ in range(size)]
        await store.enqueue(done)
        for start in range(0, size, 1000):
            await store.cancel([job.id for job in done[start : start + 1000]])


def _new(topic: str, delay: float = 0.0) -> NewJob:
    return NewJob(id=new_id(), topic=topic, task="noop", payload=b'{"x":1}', delay=delay, retention=1e6)


FIGURES: dict[str, Callable[[Ground], Coroutine[Any, Any, None]]] = {
    "drain": drain,
    "enqueue": enqueue,
    "pickup": pickup,
    "memory": memory,
    "flat": flat,
    "urgent": urgent,
    "late": late,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="+", choices=[*FIGURES, "all"])
    parser.add_argument("--store", choices=STORES, default="sqlite")
    options = parser.parse_args()
    chosen = options.figures
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    for name, measure in FIGURES.items():
        if name in chosen or "all" in chosen:
            with ground(options.store) as where:
                asyncio.run(measure(where))


if __name__ == "__main__":
    main()
