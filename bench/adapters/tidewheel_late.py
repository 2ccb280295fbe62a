"""Jobs whose transaction stays open for a while, on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from tidewheel.core.ids import new_id
from tidewheel.core.model import NewJob
from tidewheel.stores.postgres.enqueue import enqueue_arguments
from tidewheel.stores.postgres.location import parse_url
from tidewheel.stores.sql_files import SqlFile


async def late(
    url: str, number: int, open_seconds: float, fill: Callable[[], Awaitable[Any]]
) -> list[tuple[int, float]]:
    """Write jobs in transactions that stay open while ``fill`` adds others.

    For each the time in its payload, and for how many seconds from then it was not committed.
    """

    async def one(index: int) -> tuple[int, float]:
        called = await _enqueue_and_wait(url, index, open_seconds + 0.2 * index)
        return called, (time.monotonic_ns() - called) / 1e9

    opened = asyncio.gather(*(one(index) for index in range(1, number + 1)))
    await asyncio.sleep(0.5)
    await fill()
    return await opened


async def _enqueue_and_wait(url: str, number: int, seconds: float) -> int:
    """On a connection that knows nothing of Tidewheel's."""
    location = parse_url(url)
    statement = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")["enqueue"]
    connection: Any = await asyncpg.connect(location.dsn)
    try:
        async with connection.transaction():
            called = time.monotonic_ns()
            payload = json.dumps({"x": "y", "number": number, "called": called}).encode()
            job = NewJob(id=new_id(), topic="job", task="job", payload=payload)
            await connection.fetch(
                statement.replace("{schema}", f'"{location.schema}"'),
                *enqueue_arguments([job], None, again=False),
            )
            await asyncio.sleep(seconds)
    finally:
        await connection.close()
    return called
