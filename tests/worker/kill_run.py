"""The kill run: producers and workers as real processes, workers killed again and again, then the books.

``python -m tests.worker.kill_run --jobs 10000 --kills 6`` is the full size; the suite runs a small one.
``--store postgres --restarts 2`` runs on a PostgreSQL of its own and crashes that, too, on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.patience import PATIENCE
from tests.servers import DURABLE, PostgresServer
from tests.worker.database_rows import Row, rows_of
from tests.worker.worker_processes import Site
from tidewheel import Tidewheel
from tidewheel.core.reports import Stats
from tidewheel.errors import StoreUnavailable


@dataclass
class Books:
    """What the run did, and what is wrong with it."""

    jobs: int
    states: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    restarts: int = 0
    refused_enqueues: int = 0
    victims: list[dict[str, int]] = field(default_factory=list)
    attempts: Counter[int] = field(default_factory=Counter)
    runs: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


async def kill_run(
    site: Site,
    *,
    jobs: int,
    callers: int,
    workers: int,
    kills: int,
    seed: int = 1,
    server: PostgresServer | None = None,
    restarts: int = 0,
    outage: float = 1.0,
    longest: float = 0.020,
) -> Books:
    """``callers`` concurrent enqueuers, ``workers`` processes, ``kills`` of them killed on the way.

    With a ``server`` that one is crashed ``restarts`` times, and stays away for ``outage`` seconds each time.
    A handler takes up to ``longest`` seconds; all of them together must outlast the troubles.
    """
    books = Books(jobs)
    choose = random.Random(seed)
    app = Tidewheel(site.url)

    @app.task(name="work")
    async def work(shortest: float = 0.005, longest: float = 0.020) -> None: ...

    deaths: dict[int, float] = {}
    async with app:
        with site.workers(workers) as processes:
            began = time.monotonic()
            accepted: list[UUID] = []
            replacing: list[asyncio.Task[None]] = []

            async def caller(number: int) -> None:
                for _ in range(number):
                    while True:
                        try:
                            job = await work.options(max_attempts=20).enqueue(longest=longest)
                            break
                        except StoreUnavailable:  # it may have been written all the same
                            books.refused_enqueues += 1
                            await asyncio.sleep(0.05)
                    accepted.append(job.id)

            async def replace() -> None:
                processes.append(await asyncio.to_thread(site.start))

            async def kill() -> None:
                await _kill_one(site, processes, choose, books, deaths)
                # Beside the next trouble: a process takes its time to start, and the jobs do not wait.
                replacing.append(asyncio.create_task(replace()))

            async def restart() -> None:
                assert server is not None
                await asyncio.to_thread(server.stop, "immediate")
                await asyncio.sleep(outage)
                await asyncio.to_thread(server.start)
                books.restarts += 1

            troubles: list[Callable[[], Coroutine[Any, Any, None]]] = [kill] * kills + [restart] * restarts
            choose.shuffle(troubles)
            share, rest = divmod(jobs, callers)
            producing = asyncio.gather(*(caller(share + (index < rest)) for index in range(callers)))
            for number, trouble in enumerate(troubles, 1):
                await _until_done(app, processes, jobs * number // (len(troubles) + 1))
                await trouble()
            await producing
            await _until_done(app, processes, jobs, nothing_left=True)
            await asyncio.gather(*replacing)
            books.seconds = time.monotonic() - began
        books.problems += await app.check()
    _check(site, books, await rows_of(site.url).all(), accepted, deaths)
    if server is not None:
        said = server.log.read_text("utf-8", "replace")
        books.problems += ["the server saw a deadlock"] * said.count("deadlock detected")
    return books


async def _until_done(
    app: Tidewheel, processes: Sequence[subprocess.Popen[str]], number: int, *, nothing_left: bool = False
) -> None:
    """Until so many jobs are completed, and none is outstanding if that is asked for, too."""
    deadline = time.monotonic() + PATIENCE
    stats: Stats | None = None
    while time.monotonic() < deadline:
        # Nobody restarts workers here, whatever the database does; only those we kill are replaced.
        if ended := [process.pid for process in processes if process.poll() is not None]:
            raise AssertionError(f"workers ended by themselves: {ended}")
        try:
            stats = await app.stats()
        except StoreUnavailable:
            await asyncio.sleep(0.1)
            continue
        if stats.completed >= number and not (nothing_left and stats.pending + stats.running):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{number} jobs should be completed by now: {stats}")


async def _kill_one(
    site: Site,
    processes: list[subprocess.Popen[str]],
    choose: random.Random,
    books: Books,
    deaths: dict[int, float],
) -> None:
    """Kill a worker while it holds started and unstarted jobs."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        victim = choose.choice(processes)
        # Frozen first, so that what it holds can be counted before it dies.
        victim.send_signal(signal.SIGSTOP)
        await asyncio.sleep(0.02)
        holds = await _holds(site, victim.pid)
        if holds["started"] and holds["unstarted"]:
            break
        victim.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.05)
    else:
        held = [await _holds(site, process.pid) for process in processes]
        raise AssertionError(f"no worker holds started and unstarted jobs at once: {held}")
    processes.remove(victim)
    victim.kill()
    victim.communicate()
    deaths[victim.pid] = time.monotonic()
    books.kills += 1
    books.victims.append(holds)


async def _holds(site: Site, pid: int) -> dict[str, int]:
    """How many jobs a process runs, and how many it holds that have not started."""
    running: set[int] = set()
    for event in site.events():
        if event["pid"] == pid:
            (running.add if event["event"] == "start" else running.discard)(event["fence"])
    fences = await rows_of(site.url).held_by(pid)
    return {"started": len(fences & running), "unstarted": len(fences - running)}


def _check(
    site: Site, books: Books, rows: Sequence[Row], accepted: Sequence[UUID], deaths: dict[int, float]
) -> None:
    """Nothing lost, nothing run by two at once, every attempt accounted for."""
    books.states.update(row.state_name for row in rows)
    books.attempts.update(row.attempt for row in rows)
    stored = {row.id for row in rows}
    if len(stored) != len(rows):
        books.problems.append(f"{len(rows) - len(stored)} jobs are stored twice")
    if lost := set(accepted) - stored:
        books.problems.append(f"{len(lost)} accepted jobs are gone")
    if len(set(accepted)) != books.jobs:
        books.problems.append(f"{len(set(accepted))} jobs were accepted instead of {books.jobs}")
    # An enqueue whose answer was lost may have left its job; nothing else may leave one.
    if not books.jobs <= len(stored) <= books.jobs + books.refused_enqueues:
        books.problems.append(f"{len(stored)} jobs are stored, {books.refused_enqueues} calls were refused")
    runs: defaultdict[str, list[tuple[float, float, int]]] = defaultdict(list)
    open_runs: dict[int, dict[str, Any]] = {}
    fences: set[int] = set()
    for event in site.events():
        if event["event"] == "start":
            if event["fence"] in fences:
                books.problems.append(f"fence {event['fence']} was used twice")
            fences.add(event["fence"])
            open_runs[event["fence"]] = event
            books.runs += 1
        elif event["event"] == "end":
            start = open_runs.pop(event["fence"])
            runs[event["job"]].append((start["at"], event["at"], event["fence"]))
    ended = {fence for spans in runs.values() for _, _, fence in spans}
    if unearned := [row for row in rows if row.state == 3 and row.fence not in ended]:
        books.problems.append(f"{len(unearned)} jobs completed under a fence whose run never ended")
    for fence, start in open_runs.items():
        end = deaths.get(start["pid"])
        if end is None:
            books.problems.append(f"the run under fence {fence} neither ended nor died")
        else:
            runs[start["job"]].append((start["at"], end, fence))
    for job, spans in runs.items():
        spans.sort()
        for (_, ended_at, fence), (began, _, later) in pairwise(spans):
            if began < ended_at:
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
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    where.add_argument("--url", help="an empty store that is already there")
    parser.add_argument("--restarts", type=int, default=0, help="crashes of the PostgreSQL server on the way")
    parser.add_argument("--outage", type=float, default=1.0, help="seconds it stays away each time")
    parser.add_argument(
        "--longest", type=float, help="seconds a handler takes at most; 0.02, PostgreSQL 0.15"
    )
    options = vars(parser.parse_args())
    store, url = options.pop("store"), options.pop("url")
    # With shorter ones everything is done before a server is back and a killed worker replaced.
    options["longest"] = options["longest"] or (0.15 if store == "postgres" or url else 0.02)
    if options["restarts"] and store != "postgres":
        parser.error("--restarts needs a server of our own: --store postgres")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if store == "postgres":
            options["server"] = stack.enter_context(PostgresServer(settings=DURABLE))
            url = options["server"].url()
        books = asyncio.run(kill_run(Site(directory, store_url=url), **options))
    print(json.dumps({**vars(books)}, indent=2, default=dict))
    raise SystemExit(bool(books.problems))


if __name__ == "__main__":
    main()
