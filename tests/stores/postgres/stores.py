"""Stores and raw connections for tests that have several of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

import asyncpg

from tests.patience import PATIENCE
from tests.servers.postgres import PostgresServer
from tests.servers.shared import fresh_schema
from tidewheel.stores.postgres import PostgresStore


@asynccontextmanager
async def opened(*urls: str, migrated: bool = True) -> AsyncIterator[list[PostgresStore]]:
    """One open store for each URL, migrated by the first."""
    async with AsyncExitStack() as stack:
        stores: list[PostgresStore] = []
        for url in urls:
            store = PostgresStore(url)
            await store.open()
            stack.push_async_callback(store.close)
            if migrated and not stores:
                await store.migrate()
            stores.append(store)
        yield stores


@asynccontextmanager
async def raw(url: str, **options: Any) -> AsyncIterator[Any]:
    """The driver's own connection, inside the schema of the URL."""
    parts = urlsplit(url)
    connection = await asyncpg.connect(
        urlunsplit(parts._replace(query="")),
        server_settings={"search_path": schema_of(url)} if parts.query else None,
        **options,
    )
    try:
        yield connection
    finally:
        connection.terminate()


async def waited_for(connection: Any) -> None:
    """Until somebody waits for what this connection has locked."""
    async with asyncio.timeout(PATIENCE):
        while not await connection.fetchval(
            "SELECT count(*) FROM pg_locks"
            " WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        ):
            await asyncio.sleep(0.01)


@asynccontextmanager
async def own_database(server: PostgresServer) -> AsyncIterator[str]:
    """The name of a database nobody else uses: its settings, its schemas, and what vacuum may remove."""
    name = fresh_schema()
    async with raw(server.url()) as connection:
        await connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
        try:
            yield name
        finally:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def schema_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["schema"][0]
