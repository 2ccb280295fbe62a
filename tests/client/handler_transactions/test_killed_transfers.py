"""Workers killed inside their handlers' transactions: the money is right, and nothing happens twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.client.handler_transactions.bank import KILL_POINTS
from tests.client.handler_transactions.killed_transfers import PROGRAM, bank_run
from tests.client.handler_transactions.ledger import ACCOUNTS, OPENING, ledger_of
from tests.servers.shared import empty_url
from tests.worker.worker_processes import Site
from tidewheel import Tidewheel


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
async def test_transfers_happen_once_though_workers_are_killed(tmp_path: Path, where: str) -> None:
    """Random deaths, most of them inside an open transaction."""
    site = Site(tmp_path, store_url=empty_url() if where == "postgres" else None, program=PROGRAM)
    # Side by side on PostgreSQL, one after another on SQLite: long enough for the deaths, not longer.
    books = await bank_run(site, transfers=30, kills=3, inside=2, pause=0.2 if where == "postgres" else 0.05)
    assert books.problems == []
    assert (books.kills, books.killed_inside >= 2) == (3, True)


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
async def test_a_worker_may_die_at_any_statement_of_a_transaction(tmp_path: Path, where: str) -> None:
    """Before the first, after each of them, and when all is said but nothing committed."""
    sites = []
    for number, _ in enumerate(KILL_POINTS):
        directory = tmp_path / str(number)
        directory.mkdir()
        sites.append(Site(directory, store_url=empty_url() if where == "postgres" else None, program=PROGRAM))
    await asyncio.gather(*map(_dies_once, sites, KILL_POINTS))


async def _dies_once(site: Site, point: str) -> None:
    app = Tidewheel(site.url, poll_interval=0.1)

    @app.task(name="transfer")
    async def transfer(source: int, target: int, amount: int) -> None: ...

    ledger = ledger_of(site.url)
    async with app:
        await ledger.make()
        job = await transfer.options(max_attempts=9).enqueue(0, 1, 7)
        victim = await asyncio.to_thread(site.start, DIE_AT=point)
        await asyncio.to_thread(victim.communicate, None, 60)
        assert [event["event"] for event in site.events()][-1] == "dies"
        assert await ledger.balances() == [OPENING] * ACCOUNTS, "nothing of it was to be seen"
        survivor = await asyncio.to_thread(site.start)
        try:
            await job.result(timeout=60)
            while (await app.count(task="receipt", state="completed")).total < 1:
                await asyncio.sleep(0.02)
        finally:
            survivor.kill()
            survivor.communicate()
        assert (await ledger.balances())[:2] == [OPENING - 7, OPENING + 7]
        assert await ledger.happened() == [str(job.id)]
        assert (await app.count(task="receipt")).total == 1
        assert await app.check() == []
        await ledger.drop()
