"""A crowd of workers on one PostgreSQL: who gets what stays clear, and nobody waits for anybody in a circle.

``python -m tests.stores.postgres.many_workers --connections 100 --jobs 50000 [--pgbouncer]`` is the full
size. The suite runs a small one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from tests.servers import DURABLE, PgBouncer, PostgresServer
from tests.worker.database_rows import rows_of, split_schema
from tidewheel import Tidewheel

ROOT = Path(__file__).parents[3]
PATIENCE = 600.0
ROOM: dict[str, str] = {"max_connections": "1000"}
"""A hundred workers have a few connections each; without a pooler all of them reach the server."""


@dataclass
class Books:
    """What the crowd did, and what is wrong with it."""

    jobs: int
    workers: int
    processes: int
    through: str = "directly"
    seconds: float = 0.0
    jobs_per_second: int = 0
    most_connections: int = 0  # of the server, as it counts them itself
    most_active: int = 0
    workers_that_ran: int = 0
    runs: int = 0
    lost: int = 0
    states: Counter[str] = field(default_factory=Counter)
    server_errors: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


async def crowd_run(
    server: PostgresServer, url: str, directory: Path, *, jobs: int, workers: int, processes: int
) -> Books:
    """All workers claim at once while jobs come in; ``url`` leads to ``server``, one way or another."""
    books = Books(jobs, workers, processes)
    log_began = server.log.stat().st_size
    events = directory / "events.txt"
    async with Tidewheel(url) as app:
        shares = [workers // processes + (index < workers % processes) for index in range(processes)]
        members = [_start(url, events, share) for share in shares]
        try:
            watching = asyncio.create_task(_watch(server, books))
            began = time.monotonic()
            for start in range(0, jobs, 5000):
                await app.enqueue_many("work", [{}] * min(5000, jobs - start), max_attempts=20)
            while (await app.stats()).completed < jobs:
                if time.monotonic() > began + PATIENCE:
                    raise AssertionError(f"not done after {PATIENCE:.0f} s: {await app.stats()}")
                if any(member.poll() is not None for member in members):
                    raise AssertionError("a worker process ended by itself")
                await asyncio.sleep(0.05)
            books.seconds = round(time.monotonic() - began, 2)
            books.jobs_per_second = round(jobs / books.seconds)
            watching.cancel()
            tallies = [await asyncio.to_thread(_stop, member, books) for member in members]
        finally:
            for member in members:
                if member.poll() is None:
                    member.kill()
                    member.communicate()
        books.problems += await app.check()
    await _check(books, url, events, tallies)
    _read_log(server, log_began, books)
    return books


def _start(url: str, events: Path, number: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.postgres.many_workers_process", str(number)],
        env={**os.environ, "TIDEWHEEL_URL": url, "EVENTS": str(events), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        raise RuntimeError(f"the workers did not start: {process.communicate()[1]}")
    return process


def _stop(member: subprocess.Popen[str], books: Books) -> dict[str, int]:
    """Let a process finish; what its workers settled."""
    member.send_signal(signal.SIGTERM)
    output, errors = member.communicate(timeout=60)
    books.complaints += errors.splitlines()
    if member.returncode != 0:
        books.problems.append(f"process {member.pid} ended with {member.returncode}")
        return {}
    tally: dict[str, int] = json.loads(output)
    return tally


async def _watch(server: PostgresServer, books: Books) -> None:
    """How many connections the server has, from a connection that is none of the crowd's."""
    connection = await asyncpg.connect(server.url())
    try:
        while True:
            row = await connection.fetchrow(
                "SELECT count(*) AS connections, count(*) FILTER (WHERE state = 'active') AS active"
                " FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            books.most_connections = max(books.most_connections, row["connections"])
            books.most_active = max(books.most_active, row["active"])
            await asyncio.sleep(0.05)
    finally:
        connection.terminate()


async def _check(books: Books, url: str, events: Path, tallies: Sequence[dict[str, int]]) -> None:
    """Every job completed once, under a fence of its own, by the run that holds it."""
    rows = await rows_of(url).all()
    books.states.update(row.state_name for row in rows)
    if len({row.id for row in rows}) != len(rows):
        books.problems.append("a job is stored twice")
    if books.states != {"completed": books.jobs}:
        books.problems.append(f"{books.jobs} jobs should be completed: {dict(books.states)}")
    runs = [line.split() for line in events.read_text().splitlines()]
    books.runs = len(runs)
    fences = Counter(int(fence) for _, fence in runs)
    if twice := [fence for fence, number in fences.items() if number > 1]:
        books.problems.append(f"{len(twice)} fences were granted twice")
    ran = {(job, int(fence)) for job, fence in runs}
    if unearned := [row for row in rows if (str(row.id), row.fence) not in ran]:
        books.problems.append(f"{len(unearned)} jobs completed under a fence nobody ran under")
    completed = sum(tally.get("completed", 0) for tally in tallies)
    books.lost = sum(tally.get("lost", 0) for tally in tallies)
    if completed != books.jobs:
        books.problems.append(f"{completed} completions were accepted for {books.jobs} jobs")
    books.workers_that_ran = await _workers_that_ran(url)


async def _workers_that_ran(url: str) -> int:
    address, schema = split_schema(url)
    connection = await asyncpg.connect(address, statement_cache_size=0)
    try:
        number: int = await connection.fetchval(
            f'SELECT count(DISTINCT worker) FROM "{schema}".finished_jobs'  # noqa: S608 - our own schema
        )
        return number
    finally:
        await connection.close()


def _read_log(server: PostgresServer, start: int, books: Books) -> None:
    with server.log.open("rb") as log:
        log.seek(start)
        said = log.read().decode("utf-8", "replace")
    books.server_errors.update(re.findall(r"(?:ERROR|FATAL|PANIC):\s+(.*)", said))
    deadlocks = said.count("deadlock detected") + sum("deadlock" in line for line in books.complaints)
    if deadlocks:
        books.problems.append(f"{deadlocks} deadlocks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=100, help="workers, each with a store of its own")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--pgbouncer", action="store_true", help="through PgBouncer in transaction mode")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(PostgresServer(settings={**DURABLE, **ROOM}))
        url, through = server.url(), "directly"
        if options.pgbouncer:
            url = stack.enter_context(PgBouncer(server)).url()
            through = "PgBouncer, transaction mode"
        books = asyncio.run(
            crowd_run(
                server,
                url,
                directory,
                jobs=options.jobs,
                workers=options.connections,
                processes=options.processes,
            )
        )
        books.through = through
    print(json.dumps(vars(books), indent=2, default=_plain))
    raise SystemExit(bool(books.problems))


def _plain(value: Any) -> Any:
    return dict(value)


if __name__ == "__main__":
    main()
