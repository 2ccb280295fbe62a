"""The kill run: producers and workers as real processes, workers killed again and again, then the books.

``python -m tests.worker.killing --jobs 10000 --kills 6`` is the full size; the suite runs a small one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.worker.processes import Site
from windlass import Windlass


@dataclass
class Books:
    """What the run did, and what is wrong with it."""

    jobs: int
    states: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    victims: list[dict[str, int]] = field(default_factory=list)
    attempts: Counter[int] = field(default_factory=Counter)
    runs: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


async def kill_run(site: Site, *, jobs: int, callers: int, workers: int, kills: int, seed: int = 1) -> Books:
    """``callers`` concurrent enqueuers, ``workers`` processes, ``kills`` of them killed on the way."""
    books = Books(jobs)
    choose = random.Random(seed)
    app = Windlass(site.url)

    @app.task(name="work")
    async def work(shortest: float = 0.005, longest: float = 0.020) -> None: ...

    deaths: dict[int, float] = {}
    async with app:
        with site.workers(workers) as processes:
            began = time.monotonic()
            accepted: list[Any] = []

            async def caller(number: int) -> None:
                for _ in range(number):
                    job = await work.options(max_attempts=20).enqueue()
                    accepted.append(job.id)

            share, rest = divmod(jobs, callers)
            producing = asyncio.gather(*(caller(share + (index < rest)) for index in range(callers)))
            for kill in range(kills):
                await _until_done(app, jobs * (kill + 1) // (kills + 2))
                await _kill_one(site, processes, choose, books, deaths)
            await producing
            await _until_done(app, jobs)
            books.seconds = time.monotonic() - began
        books.problems += await app.check()
    _check(site, books, accepted, deaths)
    return books


async def _until_done(app: Windlass, number: int, patience: float = 120.0) -> None:
    deadline = time.monotonic() + patience
    while (await app.stats()).completed < number:
        if time.monotonic() > deadline:
            raise AssertionError(
                f"only {(await app.stats()).completed} of {number} jobs completed: {await app.stats()}"
            )
        await asyncio.sleep(0.02)


async def _kill_one(
    site: Site,
    processes: list[subprocess.Popen[str]],
    choose: random.Random,
    books: Books,
    deaths: dict[int, float],
) -> None:
    """Kill a worker while it holds started and unstarted jobs; start another in its place."""
    while True:
        index = choose.randrange(len(processes))
        victim = processes[index]
        # Frozen first, so that what it holds can be counted before it dies.
        victim.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.02)
        holds = _holds(site, victim.pid)
        if holds["started"] and holds["unstarted"]:
            break
        victim.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.05)
    victim.kill()
    victim.communicate()
    deaths[victim.pid] = time.monotonic()
    books.kills += 1
    books.victims.append(holds)
    processes[index] = await asyncio.to_thread(site.start)


def _holds(site: Site, pid: int) -> dict[str, int]:
    """How many jobs a process runs, and how many it holds that have not started."""
    running: set[int] = set()
    for event in site.events():
        if event["pid"] == pid:
            (running.add if event["event"] == "start" else running.discard)(event["fence"])
    with sqlite3.connect(site.directory / "jobs.db") as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        held = connection.execute(
            "SELECT fence FROM windlass_jobs WHERE state = 2 AND worker LIKE ?", (f"%:{pid}:%",)
        ).fetchall()
    connection.close()
    fences = {row[0] for row in held}
    return {"started": len(fences & running), "unstarted": len(fences - running)}


def _check(site: Site, books: Books, accepted: Sequence[Any], deaths: dict[int, float]) -> None:
    """Nothing lost, nothing run by two at once, every attempt accounted for."""
    with sqlite3.connect(site.directory / "jobs.db") as connection:
        rows = connection.execute("SELECT id, state, attempt, fence FROM windlass_jobs").fetchall()
    connection.close()
    names = {3: "completed", 4: "failed", 5: "cancelled"}
    books.states.update(names.get(state, "unfinished") for _, state, _, _ in rows)
    books.attempts.update(attempt for _, _, attempt, _ in rows)
    stored = {row[0] for row in rows}
    if lost := [job for job in accepted if job.bytes not in stored]:
        books.problems.append(f"{len(lost)} accepted jobs are gone")
    runs: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
    open_runs: dict[int, dict[str, Any]] = {}
    for event in site.events():
        if event["event"] == "start":
            if event["fence"] in open_runs:
                books.problems.append(f"fence {event['fence']} was used twice")
            open_runs[event["fence"]] = event
            books.runs += 1
        elif event["event"] == "end":
            start = open_runs.pop(event["fence"])
            runs[event["job"]].append((start["at"], event["at"], event["fence"]))
    for fence, start in open_runs.items():
        end = deaths.get(start["pid"])
        if end is None:
            books.problems.append(f"the run under fence {fence} neither ended nor died")
        else:
            runs[start["job"]].append((start["at"], end, fence))
    for job, spans in runs.items():
        spans.sort()
        for (_, ended, fence), (began, _, later) in pairwise(spans):
            if began < ended:
                books.problems.append(f"job {job}: the runs under fences {fence} and {later} overlap")
            if later <= fence:
                books.problems.append(f"job {job}: fence {later} came after {fence}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--callers", type=int, default=100)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        books = asyncio.run(kill_run(Site(Path(directory)), **vars(options)))
    print(json.dumps({**vars(books)}, indent=2, default=dict))
    raise SystemExit(bool(books.problems))


if __name__ == "__main__":
    main()
