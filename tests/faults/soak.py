"""The soak: ordinary work for a long time, and whether anything grows that should not.

``python -m tests.faults.soak --store sqlite --minutes 60`` prints a line for every figure: how it began, how
it ended, and its slope per hour over the second half of the run. Jobs are pruned after a minute, so that a
queue in its everyday state is watched, not one that fills up.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression

import asyncpg
from msgspec.structs import replace

from tests.servers import DURABLE, PostgresServer
from tidewheel.core.payload import encode
from tidewheel.stores import TemporaryStore, make_temporary_store
from tidewheel.stores.postgres.location import parse_url
from tidewheel.verification.history import FileRecorder
from tidewheel.verification.process_group import ProcessGroup
from tidewheel.verification.workload import HandlerBehavior, make_job, make_workload_app

RETENTION = 60.0
BATCH = 20
Look = Callable[[], Awaitable[dict[str, float]]]


@dataclass
class Series:
    """One figure over time."""

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, at: float, value: float) -> None:
        self.times.append(at)
        self.values.append(value)

    @property
    def slope_per_hour(self) -> float:
        """Over the second half: what is warmed up once does not count."""
        half = len(self.times) // 2
        return linear_regression(self.times[half:], self.values[half:]).slope * 3600


async def soak(
    temporary: TemporaryStore, directory: Path, *, seconds: float, rate: float, look: Look, every: float = 2.0
) -> dict[str, Series]:
    """Two workers and a producer for so long; figures of the workers and of the store."""

    async def straight(_: str) -> str:
        return temporary.url

    recorder = FileRecorder(directory / "soak.jsonl", "soak")
    crew = ProcessGroup(directory, recorder, url_for=straight, lease=5.0, seed=1, pause=0.1)
    app = make_workload_app(temporary.url, lease=5.0)
    series: defaultdict[str, Series] = defaultdict(Series)
    began = time.monotonic()
    try:
        async with app:
            workers = [await crew.start("worker") for _ in range(2)]
            producing = asyncio.create_task(_produce(app.store.enqueue, rate))
            while (passed := time.monotonic() - began) < seconds:
                await asyncio.sleep(every)
                if producing.done():
                    producing.result()
                for worker in workers:
                    for name, value in _process_figures(worker.popen.pid).items():
                        series[f"{worker.name} {name}"].add(passed, value)
                for name, value in (await look()).items():
                    series[name].add(passed, value)
                stats = await app.stats()
                series["jobs waiting"].add(passed, stats.pending + stats.running)
                series["jobs kept"].add(passed, stats.completed)
            producing.cancel()
            await asyncio.gather(producing, return_exceptions=True)
            for worker in workers:
                await crew.stop(worker)
    finally:
        crew.kill_all()
        recorder.close()
    return dict(series)


async def _produce(enqueue: Callable[..., Awaitable[object]], rate: float) -> None:
    choose = random.Random(1)
    payload = encode({"behavior": HandlerBehavior.QUICK}, limit=1000)
    while True:
        jobs = [
            replace(make_job(choose), payload=payload, delay=0.0, retention=RETENTION) for _ in range(BATCH)
        ]
        await enqueue(jobs)
        await asyncio.sleep(BATCH / rate)


def _process_figures(pid: int) -> dict[str, float]:
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return {
        "memory MB": int(status["VmRSS"].split()[0]) / 1024,
        "threads": int(status["Threads"]),
        "descriptors": len(list((process / "fd").iterdir())),
    }


def look_at_file(path: Path) -> Look:
    async def look() -> dict[str, float]:
        log = path.with_name(path.name + "-wal")
        return {
            "file MB": path.stat().st_size / 1e6,
            "log (WAL) MB": log.stat().st_size / 1e6 if log.exists() else 0.0,
        }

    return look


def look_at_server(server: PostgresServer, schema: str) -> Look:
    async def look() -> dict[str, float]:
        session = await asyncpg.connect(server.url())
        try:
            dead, size = await session.fetchrow(
                "SELECT sum(n_dead_tup)::float, sum(pg_total_relation_size(relid))::float / 1e6"
                " FROM pg_stat_user_tables WHERE schemaname = $1",
                schema,
            )
            sessions = await session.fetchval(
                "SELECT count(*)::float FROM pg_stat_activity "
                "WHERE starts_with(application_name, 'tidewheel')"
            )
        finally:
            await session.close()
        return {"dead rows": dead, "tables MB": size, "sessions": sessions}

    return look


async def soak_on_sqlite(directory: Path, *, seconds: float, rate: float) -> dict[str, Series]:
    async with make_temporary_store(f"sqlite:///{directory / 'jobs.db'}") as scratch:
        look = look_at_file(Path(scratch.location))
        return await soak(scratch, directory, seconds=seconds, rate=rate, look=look)


async def soak_on_postgres(
    directory: Path, server: PostgresServer, *, seconds: float, rate: float
) -> dict[str, Series]:
    async with make_temporary_store(server.url()) as scratch:
        look = look_at_server(server, parse_url(scratch.url).schema)
        return await soak(scratch, directory, seconds=seconds, rate=rate, look=look)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], required=True)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=500.0, help="jobs a second")
    options = parser.parse_args()
    seconds = options.minutes * 60
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if options.store == "postgres":
            server = stack.enter_context(PostgresServer(settings=DURABLE))
            run = soak_on_postgres(directory, server, seconds=seconds, rate=options.rate)
        else:
            run = soak_on_sqlite(directory, seconds=seconds, rate=options.rate)
        series = asyncio.run(run)
    print(f"{'figure':<28}{'begin':>12}{'middle':>12}{'end':>12}{'slope / h':>14}")
    for name, one in sorted(series.items()):
        middle = one.values[len(one.values) // 2]
        print(
            f"{name:<28}{one.values[0]:>12,.1f}{middle:>12,.1f}{one.values[-1]:>12,.1f}"
            f"{one.slope_per_hour:>+14,.1f}"
        )


if __name__ == "__main__":
    main()
