"""PostgreSQL crashes again and again under load, and nobody restarts a worker.

``python -m tests.faults.restarts --restarts 6 --minutes 2`` is the full size and prints a table; the suite
runs a small one. When a job was completed is read from the database afterwards: what handlers say does not
count, because they go on without it.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from tests.patience import PATIENCE
from tests.servers import DURABLE, PostgresServer
from tests.worker.worker_processes import Site
from tidewheel import Tidewheel
from tidewheel.errors import StoreUnavailable

CALLERS = 5
ENOUGH = 0.8
"""The share of the throughput before a restart at which it counts as back."""


@dataclass
class Restart:
    """One crash. Moments are seconds since 1970, of the one clock server and test share."""

    stopped: float
    returned: float
    completions: list[float] = field(repr=False, default_factory=list)  # of the whole run, in order

    def _number(self, begin: float, end: float) -> int:
        return bisect.bisect(self.completions, end) - bisect.bisect(self.completions, begin)

    @property
    def away(self) -> float:
        return self.returned - self.stopped

    @property
    def first(self) -> float | None:
        """Seconds from the server's return to the first completed job."""
        place = bisect.bisect(self.completions, self.returned)
        return self.completions[place] - self.returned if place < len(self.completions) else None

    @property
    def rate_before(self) -> float:
        """Completed each second, in the two seconds before."""
        return self._number(self.stopped - 2.0, self.stopped) / 2.0

    @property
    def rate_after(self) -> float:
        """Completed each second, in the five seconds after its return."""
        return self._number(self.returned, self.returned + 5.0) / 5.0

    @property
    def back(self) -> float | None:
        """Seconds from the server's return to the end of the first second that was as busy as before."""
        for place in range(bisect.bisect(self.completions, self.returned), len(self.completions)):
            began = self.completions[place]
            if self._number(began, began + 1.0) >= ENOUGH * self.rate_before:
                return began + 1.0 - self.returned
        return None


@dataclass
class Ledger:
    """What the run did, and what is wrong with it."""

    accepted: int = 0
    refused: int = 0
    completed: int = 0
    most_attempts: int = 0
    restarts: list[Restart] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


async def restart_run(
    server: PostgresServer,
    directory: Path,
    *,
    restarts: int,
    seconds_between: float,
    seconds_away: float,
    workers: int = 2,
    rate: float = 200.0,
) -> Ledger:
    """``rate`` jobs a second are enqueued and run, while the server crashes ``restarts`` times."""
    ledger = Ledger()
    site = Site(directory, lease=5.0, store_url=server.url(), program="tests.faults.victims")
    over = asyncio.Event()
    async with Tidewheel(site.url) as app:

        async def caller(number: int) -> None:
            """One job after another; what was refused is sent again with its key, as a user would."""
            accepted = 0
            while not over.is_set():
                started = time.monotonic()
                while True:
                    try:
                        await app.enqueue("work", key=f"{number}-{accepted}")
                        break
                    except StoreUnavailable:
                        ledger.refused += 1
                        await asyncio.sleep(0.05)
                accepted += 1
                ledger.accepted += 1
                await asyncio.sleep(max(0.0, started + CALLERS / rate - time.monotonic()))

        with site.workers(workers) as processes:
            producing = asyncio.gather(*(caller(number) for number in range(CALLERS)))
            for _ in range(restarts):
                await asyncio.sleep(seconds_between)
                stopped = time.time()
                await asyncio.to_thread(server.stop, "immediate")
                await asyncio.sleep(seconds_away)
                await asyncio.to_thread(server.start)
                ledger.restarts.append(Restart(stopped, time.time()))
            await asyncio.sleep(seconds_between)
            over.set()
            await producing

            async def all_completed() -> bool:
                stats = await app.stats()
                return stats.completed == ledger.accepted and not stats.pending + stats.running

            await _eventually(all_completed, ledger)
            ended = [process.pid for process in processes if process.poll() is not None]
        ledger.problems += [f"worker {pid} ended by itself" for pid in ended]
        ledger.problems += await app.check()
    await _read(server, ledger)
    return ledger


async def _eventually(condition: Callable[[], Awaitable[bool]], ledger: Ledger) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        if time.monotonic() > deadline:
            ledger.problems.append(f"not everything was completed within {PATIENCE:.0f} s")
            return
        await asyncio.sleep(0.05)


async def _read(server: PostgresServer, ledger: Ledger) -> None:
    connection = await asyncpg.connect(server.url())
    try:
        rows = await connection.fetch(
            "SELECT finished_at, attempt, key FROM tidewheel.finished_jobs WHERE state = 3"
        )
    finally:
        await connection.close()
    ledger.completed = len(rows)
    ledger.most_attempts = max(row["attempt"] for row in rows)
    if len({row["key"] for row in rows}) != ledger.accepted or len(rows) != ledger.accepted:
        ledger.problems.append(f"{ledger.accepted} jobs were accepted, {len(rows)} completed")
    completions = sorted(row["finished_at"] / 1e6 for row in rows)
    for restart in ledger.restarts:
        restart.completions = completions
    said = server.log.read_text("utf-8", "replace")
    ledger.problems += ["the server saw a deadlock"] * said.count("deadlock detected")


def table(ledger: Ledger) -> str:
    """For people."""
    lines = ["restart  away s  first completed after s  throughput back after s  jobs/s before  jobs/s after"]
    for number, restart in enumerate(ledger.restarts, 1):
        first, back = (
            f"{value:.2f}" if value is not None else "never" for value in (restart.first, restart.back)
        )
        lines.append(
            f"{number:>7}  {restart.away:>6.2f}  {first:>23}  {back:>23}"
            f"  {restart.rate_before:>13.0f}  {restart.rate_after:>12.0f}"
        )
    lines.append(
        f"{ledger.accepted:,} accepted ({ledger.refused:,} calls refused meanwhile and sent again), "
        f"{ledger.completed:,} completed, at most {ledger.most_attempts} attempts"
    )
    return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in ledger.problems)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--away", type=float, default=2.0, help="seconds the server stays away each time")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=200.0, help="jobs enqueued each second")
    options = parser.parse_args()
    between = max(3.0, options.minutes * 60 / (options.restarts + 1) - options.away)
    with tempfile.TemporaryDirectory() as directory, PostgresServer(settings=DURABLE) as server:
        ledger = asyncio.run(
            restart_run(
                server,
                Path(directory),
                restarts=options.restarts,
                seconds_between=between,
                seconds_away=options.away,
                workers=options.workers,
                rate=options.rate,
            )
        )
    print(table(ledger))
    raise SystemExit(bool(ledger.problems))


if __name__ == "__main__":
    main()
