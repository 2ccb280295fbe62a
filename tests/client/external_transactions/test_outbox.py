"""The reason to keep a queue in the database: the job and the change it belongs to, both or neither."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import asyncpg
import psycopg

from tests.patience import PATIENCE
from tests.servers import DURABLE, PostgresServer
from tidewheel import Tidewheel

TRANSACTIONS = 200
BEFORE_THE_KILL = 60
CUT_OFF = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


async def test_on_postgresql_jobs_are_those_of_committed_orders() -> None:
    """Two hundred at once, half of them rolled back, and the server is killed in the middle of it."""
    with PostgresServer(settings=DURABLE) as server:
        app = Tidewheel(server.url())
        await asyncio.to_thread(app.sync.open)
        with psycopg.connect(server.url(), autocommit=True) as setting_up:
            setting_up.execute("CREATE TABLE orders (number integer PRIMARY KEY)")
        pool = await asyncpg.create_pool(server.url(), min_size=20, max_size=20)
        chance = random.Random(7)
        rolled_back = {number for number in range(TRANSACTIONS) if chance.random() < 0.5}
        committed: set[int] = set()
        enough = asyncio.Event()

        async def order(number: int) -> None:
            with contextlib.suppress(*CUT_OFF):
                async with pool.acquire() as connection:
                    transaction = connection.transaction()
                    await transaction.start()
                    await connection.execute("INSERT INTO orders VALUES ($1)", number)
                    await app.enqueue("ship", {"order": number}, key=str(number), using=connection)
                    if number in rolled_back:
                        await transaction.rollback()
                        return
                    await transaction.commit()
                    committed.add(number)
                    if len(committed) >= BEFORE_THE_KILL:
                        enough.set()

        orders = [asyncio.create_task(order(number)) for number in range(TRANSACTIONS)]
        await asyncio.wait_for(enough.wait(), PATIENCE)
        server.kill()
        await asyncio.gather(*orders)
        pool.terminate()
        await asyncio.to_thread(server.start)
        with psycopg.connect(server.url()) as looking:
            kept = {row[0] for row in looking.execute("SELECT number FROM orders")}
            jobs = [
                row[0]
                for row in looking.execute("SELECT (payload::json ->> 'order')::int FROM tidewheel.jobs")
            ]
        assert sorted(jobs) == sorted(kept)
        assert committed <= kept
        assert len(kept) < TRANSACTIONS - len(rolled_back)
        assert kept.isdisjoint(rolled_back)
        assert await asyncio.to_thread(app.sync.check) == []
        await asyncio.to_thread(app.sync.close)


SHOP = """
import sqlite3, sys, threading
from tidewheel import Tidewheel

path = sys.argv[1]
app = Tidewheel(f"sqlite:///{path}")


def serve(first):
    connection = sqlite3.connect(path, timeout=60)
    for number in range(first, 10**6, 4):
        connection.execute("INSERT INTO orders VALUES (?)", (number,))
        app.enqueue("ship", {"order": number}, key=str(number), using=connection)
        if number % 2:
            connection.rollback()
        else:
            connection.commit()
            print(number, flush=True)


for first in range(4):
    threading.Thread(target=serve, args=(first,), daemon=True).start()
threading.Event().wait()
"""


def test_on_sqlite_jobs_are_those_of_committed_orders(tmp_path: Path) -> None:
    """The process is killed while four of its threads commit and roll back."""
    path = tmp_path / "shop.db"
    app = Tidewheel(f"sqlite:///{path}")
    app.sync.open()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as looking:
        looking.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        shop = subprocess.Popen([sys.executable, "-c", SHOP, str(path)], stdout=subprocess.PIPE, text=True)
        assert shop.stdout is not None
        with shop:
            committed = {int(shop.stdout.readline()) for _ in range(BEFORE_THE_KILL)}
            shop.kill()
        kept = {row[0] for row in looking.execute("SELECT number FROM orders")}
        bodies = looking.execute(
            "SELECT json_extract(CAST(payload AS TEXT), '$.order') FROM tidewheel_bodies"
        )
        assert sorted(row[0] for row in bodies) == sorted(kept)
        assert committed <= kept
        assert all(number % 2 == 0 for number in kept)
    assert app.sync.check() == []
    app.sync.close()
