"""The bank run: transfers in transactions, worker processes killed again and again, then the books.

``python -m tests.client.handler_transactions.killed_transfers --store postgres --kills 30`` is the full size;
the suite runs less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.client.handler_transactions.ledger import ACCOUNTS, OPENING, ledger_of
from tests.patience import PATIENCE
from tests.servers import DURABLE, PostgresServer
from tests.worker.worker_processes import Site
from tidewheel import Job, Tidewheel

PROGRAM = "tests.client.handler_transactions.bank"


@dataclass
class Books:
    """What the run did, and what is wrong with it."""

    transfers: int
    kills: int = 0
    killed_inside: int = 0
    runs: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


async def bank_run(
    site: Site,
    *,
    transfers: int,
    kills: int,
    inside: int,
    workers: int = 3,
    pause: float = 0.05,
    seed: int = 1,
) -> Books:
    """``kills`` workers are killed on the way, at least ``inside`` of them while a transaction is open.

    With more transfers than that, where the last of them ends before the last death.
    """
    books = Books(transfers)
    choose = random.Random(seed)
    app = Tidewheel(site.url, poll_interval=0.1)

    @app.task(name="transfer")
    async def transfer(source: int, target: int, amount: int, pause: float = 0.0) -> None: ...

    ledger = ledger_of(site.url)
    async with app:
        await ledger.make()
        began = time.monotonic()
        jobs: list[Job[Any]] = []

        async def enqueue(number: int) -> None:
            for _ in range(number):
                source, target = choose.sample(range(ACCOUNTS), 2)
                new = transfer.options(max_attempts=50).enqueue(source, target, choose.randint(1, 99), pause)
                jobs.append(await new)

        async def keep_some_going() -> None:
            if not await _unfinished(app):
                await enqueue(transfers // 3)

        await enqueue(transfers)
        with site.workers(workers) as processes:
            for number in range(1, kills + 1):
                await _until(app, processes, transfers * number // (kills + 2))
                await _kill(site, processes, books, keep_some_going, inside=books.killed_inside < inside)
                processes.append(await asyncio.to_thread(site.start))
            await _until(app, processes, len(jobs))
            while await _unfinished(app):
                await asyncio.sleep(0.05)
        books.transfers = len(jobs)
        books.seconds = time.monotonic() - began
        books.problems += await app.check()
        books.runs = sum(event["event"] == "inside" for event in site.events())
        receipts = [await app.get(job.id) for job in (await app.jobs(task="receipt", limit=200)).items]
        await _check(books, [str(job.id) for job in jobs], ledger, (await app.count(task="receipt")).total)
        if len(receipts) < 200 and Counter(job.payload["transfer"] for job in receipts) != Counter(
            str(job.id) for job in jobs
        ):
            books.problems.append("receipts are not one for each transfer")
        await ledger.drop()
    return books


async def _until(app: Tidewheel, processes: list[subprocess.Popen[str]], number: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while (done := (await app.count(task="transfer", state="completed")).total) < number:
        if time.monotonic() > deadline:
            raise AssertionError(f"{number} transfers should be completed by now, {done} are")
        if ended := [process.pid for process in processes if process.poll() is not None]:
            raise AssertionError(f"workers ended by themselves: {ended}")
        await asyncio.sleep(0.01)


async def _unfinished(app: Tidewheel) -> int:
    return (await app.count(state="pending")).total + (await app.count(state="running")).total


async def _kill(
    site: Site,
    processes: list[subprocess.Popen[str]],
    books: Books,
    keep_some_going: Callable[[], Awaitable[None]],
    *,
    inside: bool,
) -> None:
    """Kill a worker; if need be, one whose handler has just said that it is inside its transaction."""
    victim = random.choice(processes)
    deadline = time.monotonic() + PATIENCE
    while inside:
        if time.monotonic() > deadline:
            raise AssertionError("no handler is inside a transaction any more")
        open_ = _open_transactions(site)
        if ready := [process for process in processes if process.pid in open_]:
            victim = ready[0]
            break
        await keep_some_going()
    victim.kill()
    victim.communicate()
    processes.remove(victim)
    books.kills += 1
    books.killed_inside += victim.pid in _open_transactions(site)


def _open_transactions(site: Site) -> set[int]:
    """The processes with a handler that is inside, as far as it told."""
    last = {}
    for event in site.events()[-200:]:
        last[event["fence"]] = event
    return {event["pid"] for event in last.values() if event["event"] == "inside"}


async def _check(books: Books, jobs: list[str], ledger: Any, receipts: int) -> None:
    balances = await ledger.balances()
    if sum(balances) != ACCOUNTS * OPENING:
        books.problems.append(f"the accounts sum up to {sum(balances)} instead of {ACCOUNTS * OPENING}")
    happened = Counter(await ledger.happened())
    if missing := [job for job in jobs if not happened[job]]:
        books.problems.append(f"{len(missing)} transfers never happened")
    if twice := [job for job in jobs if happened[job] > 1]:
        books.problems.append(f"{len(twice)} transfers happened more than once")
    if receipts != len(jobs):
        books.problems.append(f"there are {receipts} receipts for {len(jobs)} transfers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transfers", type=int, default=600)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--inside", type=int, default=15, help="kills while a transaction is open, at least")
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    options = vars(parser.parse_args())
    store = options.pop("store")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = None
        if store == "postgres":
            url = stack.enter_context(PostgresServer(settings=DURABLE)).url(schema="tidewheel")
        site = Site(directory, store_url=url, program=PROGRAM)
        books = asyncio.run(bank_run(site, **options))
    print(json.dumps(vars(books), indent=2))
    raise SystemExit(bool(books.problems))


if __name__ == "__main__":
    main()
