"""``python -m bench.retention``: what it costs others that finished jobs are pruned beside them.

A store full of jobs whose time is over. In turn, without and with somebody who prunes them: drains, by a
worker that prunes as well; then single enqueues and claims, each of them timed, beside a process that prunes.
On a machine that others use, too, the processor time of a drain tells more than its rate.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

from bench.figures import percentile
from bench.grounds import Grounds, Place
from bench.machine import load_average
from bench.retention.filling import fill
from tidewheel import Tidewheel
from tidewheel.core.ids import new_id
from tidewheel.core.model import ClaimRequest, Completed, Lane, NewJob, Settlement
from tidewheel.worker.store_maintenance import LOCK_KIND, PRUNE_LOCK_ID, Pruner

BULK: Final = 10_000
PAUSE_SECONDS: Final = 0.002
PROBE: Final = "probe"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.retention", description=__doc__)
    parser.add_argument(
        "--finished",
        type=int,
        default=5_000_000,
        metavar="N",
        help="jobs past their retention, on PostgreSQL",
    )
    parser.add_argument("--finished-sqlite", type=int, default=1_000_000, help="the same, SQLite")
    parser.add_argument("--jobs", type=int, default=100_000, help="of each drain")
    parser.add_argument("--rounds", type=int, default=6, help="an even number: who begins changes in turn")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement of single calls")
    parser.add_argument("--only", choices=("postgres", "sqlite"))
    options = parser.parse_args()
    with Grounds() as grounds:
        for ground, finished in (("postgres", options.finished), ("sqlite", options.finished_sqlite)):
            if options.only in (None, ground):
                with grounds.place(ground) as place:
                    asyncio.run(measure(ground, place, finished, options))


async def measure(ground: str, place: Place, finished: int, options: argparse.Namespace) -> None:
    app = Tidewheel(place.url)

    @app.task(name="noop")
    async def noop(number: int) -> None: ...

    async with app:
        began = time.monotonic()
        await asyncio.to_thread(fill, place.url, finished)
        await asyncio.to_thread(place.vacuum)  # what the filling left to do is not what is measured
        await asyncio.to_thread(place.rest)
        told(ground, f"{finished:,} finished jobs in {time.monotonic() - began:.0f} s", await size(place))
        rates: dict[bool, list[float]] = {False: [], True: []}
        costs: dict[bool, list[float]] = {False: [], True: []}
        pruned, seconds = 0, 0.0
        for number in range(options.rounds):
            for beside in (False, True) if number % 2 else (True, False):
                for start in range(0, options.jobs, BULK):
                    await noop.enqueue_many([{"number": one} for one in range(start, start + BULK)])
                pruner = Pruner(app.store, app.clock)
                work = asyncio.create_task(pruner.prune_backlog()) if beside else None
                began, cpu = time.monotonic(), await cpu_seconds(place)
                await app.worker(concurrency=100).run_until_idle()
                took = time.monotonic() - began
                costs[beside].append((await cpu_seconds(place) - cpu) / options.jobs * 1e6)
                rates[beside].append(options.jobs / took)
                if work is not None:
                    work.cancel()
                    await asyncio.wait([work])
                    await app.store.remove_document(LOCK_KIND, PRUNE_LOCK_ID)
                    pruned, seconds = pruned + sum(pruner.pruned.values()), seconds + took
        told(ground, f"drains of {options.jobs:,} jobs, jobs/s", compared(rates))
        told(ground, f"{pruned / seconds:,.0f} pruned/s meanwhile")
        told(ground, "processor time of both sides, µs a job", compared(costs))
        for beside in (False, True):
            with pruning(place.url, wanted=beside) as removed:
                times = await probe(app, options.seconds)
            for name, values in times.items():
                p50, p99, worst = (percentile(values, part) * 1000 for part in (0.5, 0.99, 1.0))
                what = f"{len(values):,} single {name}, {'beside pruning' if beside else 'alone'}"
                told(ground, f"{what}, ms: p50 {p50:.2f}, p99 {p99:.2f}, worst {worst:.2f}")
        told(ground, f"{removed[0] / options.seconds:,.0f} pruned/s meanwhile", await size(place))


def compared(values: dict[bool, list[float]]) -> str:
    """Beside pruning and alone. Who goes first in a round has it easier: take an even number of rounds."""
    ratios = [both / alone for alone, both in zip(values[False], values[True], strict=True)]
    alone, both = (statistics.median(values[beside]) for beside in (False, True))
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"{both:,.1f} beside pruning, {alone:,.1f} alone; {statistics.geometric_mean(ratios):.3f} ({each})"


async def cpu_seconds(place: Place) -> float:
    """Of this process and of the database's, vacuum included."""
    of_server: float | None = await asyncio.to_thread(place.server_cpu_seconds)
    return time.process_time() + (of_server or 0.0)


def told(ground: str, *words: str) -> None:
    print(f"{ground}: {', '.join(words)} (load {load_average()})", flush=True)


async def size(place: Place) -> str:
    return f"{await asyncio.to_thread(place.megabytes) or 0:,.0f} MB"


async def probe(app: Tidewheel, seconds: float) -> dict[str, list[float]]:
    """How long each single enqueue takes, and each claim of what was enqueued."""
    times: dict[str, list[float]] = {"enqueues": [], "claims": []}
    store, until = app.store, time.monotonic() + seconds
    while time.monotonic() < until:
        new = NewJob(id=new_id(), topic=PROBE, task=PROBE, payload=b"{}", retention=86_400.0)
        began = time.perf_counter()
        await store.enqueue([new])
        times["enqueues"].append(time.perf_counter() - began)
        began = time.perf_counter()
        claim = await store.claim(ClaimRequest(PROBE, (Lane(PROBE, PROBE),), 1, 60.0))
        times["claims"].append(time.perf_counter() - began)
        await store.settle([Settlement(job.lease, Completed()) for job in claim.jobs])
        await asyncio.sleep(PAUSE_SECONDS)
    return times


@contextlib.contextmanager
def pruning(url: str, *, wanted: bool) -> Iterator[list[int]]:
    """A process that prunes meanwhile; how many it has, once it is over."""
    removed = [0]
    if not wanted:
        yield removed
        return
    command = [sys.executable, "-m", "bench.retention.pruning", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield removed
        process.stdin.close()
        removed[0] = int(process.stdout.readline())


if __name__ == "__main__":
    main()
