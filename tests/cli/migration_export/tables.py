"""What is in a database, and whether Tidewheel can work with it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

from tests.stores.postgres.catalogue import catalogue
from tests.stores.postgres.stores import raw
from tidewheel import Tidewheel

SCHEMA = "shop_queue"
"""Where jobs go on PostgreSQL."""


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def migrated(url: str, name: str) -> list[Any]:
    """What Tidewheel's own migration leaves, in a place of this name beside the other."""
    other = f"{url}.{name}" if url.startswith("sqlite") else url.replace(f"schema={SCHEMA}", f"schema={name}")

    async def open_app() -> None:
        async with Tidewheel(other):
            pass

    asyncio.run(open_app())
    found = objects(other)
    assert found
    return found


def objects(url: str) -> list[Any]:
    """Everything of Tidewheel's, and which steps it knows of."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(path_of(url))) as connection:
            tables = connection.execute(
                "SELECT type, name, sql FROM sqlite_schema WHERE tbl_name LIKE 'tidewheel%' ORDER BY 1, 2"
            ).fetchall()
            if tables:
                tables += connection.execute("SELECT version, name FROM tidewheel_schema").fetchall()
            return tables

    async def look() -> list[Any]:
        async with raw(url) as connection:
            if await connection.fetchval("SELECT current_schema()") is None:
                return []
            return await catalogue(connection)

    return asyncio.run(look())


def work_off(url: str) -> None:
    """An app that does not migrate enqueues a job and runs it."""
    app = Tidewheel(url, migrate=False)

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    async def run() -> None:
        async with app:
            assert await app.migrate() == []
            job = await greet.enqueue(name="Ada")
            await app.run_until_idle()
            assert await job.result() == "hello Ada"

    asyncio.run(run())
