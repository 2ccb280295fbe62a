"""What a backlog does to jobs that must not wait for it: urgent ones, and ones that were committed late."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from bench.ground import Ground, make_app
from bench.showing import percentiles, show
from windlass import Windlass
from windlass.ids import new_id
from windlass.model import NewJob

PAYLOAD = {"x": "y" * 90}
BULK = 10_000

DRAINING_WORKER = """
import asyncio, json, sys, time
from windlass import Windlass
app = Windlass(sys.argv[1])
seen = []

@app.task
async def noop(x: str, mark: int = 0) -> None:
    if mark:
        seen.append((mark, time.monotonic_ns()))

async def main():
    async with app:
        worker = app.worker(concurrency=100)
        print("ready", flush=True)
        await worker.run()
    print(json.dumps(seen))

asyncio.run(main())
"""


class Drain:
    """A worker in a process of its own; what it saw of marked jobs, once it has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.started_at: dict[int, int] = {}

    def stop(self) -> None:
        self._process.terminate()
        output, _ = self._process.communicate(timeout=60)
        self.started_at = dict(json.loads(output))


@contextlib.asynccontextmanager
async def draining(url: str) -> AsyncIterator[Drain]:
    process = subprocess.Popen(
        [sys.executable, "-c", DRAINING_WORKER, url], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    drain = Drain(process)
    try:
        yield drain
        await asyncio.to_thread(drain.stop)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


async def urgent(where: Ground, backlog: int = 1_000_000, number: int = 400) -> None:
    """An urgent job every 50 ms into a backlog under drain: from enqueue's call to the handler's start."""
    async with make_app(where) as app:
        await _fill(app, backlog)
        await where.rest()
        async with draining(app.settings.url) as drain:
            await asyncio.sleep(1)
            before, began = await app.stats(), time.perf_counter()
            accepted: list[float] = []
            for _ in range(number):
                called = time.monotonic_ns()
                await app.enqueue("noop", {**PAYLOAD, "mark": called}, priority=150)
                accepted.append((time.monotonic_ns() - called) / 1e9)
                await asyncio.sleep(0.05)
            after, elapsed = await app.stats(), time.perf_counter() - began
            await asyncio.sleep(0.5)
        times = [(started - mark) / 1e9 for mark, started in drain.started_at.items()]
        show(
            "urgent jobs in a backlog under drain",
            store=where.store,
            **percentiles(times),
            worst_ms=round(1000 * max(times), 3),
            of_which_enqueue=percentiles(accepted),
            jobs=len(times),
            lost=number - len(times),
            backlog=backlog,
            backlog_left=after.pending,
            drained_per_second=round((after.completed - before.completed) / elapsed),
        )


async def late(where: Ground, number: int = 20, open_seconds: float = 10.0, backlog: int = 800_000) -> None:
    """Jobs of transactions that stayed open: from their commit to the handler's start.

    Newer jobs are drained meanwhile, so that every claim has long passed the place where these belong.
    """
    if where.store != "postgres":
        return  # one writer at a time: nobody else would get anything done
    async with make_app(where) as app, draining(app.settings.url) as drain:
        commits: dict[int, int] = {}

        async def one(mark: int) -> None:
            async with _open_transaction(app, mark):
                await asyncio.sleep(open_seconds + 0.2 * mark)
            commits[mark] = time.monotonic_ns()

        opened = asyncio.gather(*(one(mark) for mark in range(1, number + 1)))
        await asyncio.sleep(0.5)
        await _fill(app, backlog)
        await opened
        stats = await app.stats()
        await asyncio.sleep(3)
    times = [(drain.started_at[mark] - at) / 1e9 for mark, at in commits.items()]
    show(
        f"jobs of transactions open for {open_seconds:.0f} s, others under drain",
        store=where.store,
        **percentiles(times),
        worst_ms=round(1000 * max(times), 3),
        jobs=len(times),
        backlog_left=stats.pending,
    )


@contextlib.asynccontextmanager
async def _open_transaction(app: Windlass, mark: int) -> AsyncIterator[None]:
    """A job written by a connection that knows nothing of Windlass's, in a transaction the caller ends."""
    import asyncpg

    from windlass.stores.postgres.enqueueing import enqueue_arguments
    from windlass.stores.postgres.location import parse_url
    from windlass.stores.queries import Queries

    location = parse_url(app.settings.url)
    payload = json.dumps({**PAYLOAD, "mark": mark}).encode()
    job = NewJob(id=new_id(), topic="noop", task="noop", payload=payload)
    connection: Any = await asyncpg.connect(location.dsn)
    try:
        async with connection.transaction():
            verbs = Queries("windlass.stores.postgres.sql", "verbs.sql")
            statement = verbs["enqueue"].replace("{schema}", f'"{location.schema}"')
            await connection.fetch(statement, *enqueue_arguments([job], None, again=False))
            yield
    finally:
        await connection.close()


async def _fill(app: Windlass, number: int) -> None:
    for _ in range(0, number, BULK):
        await app.enqueue_many("noop", [PAYLOAD] * BULK)
