"""Connections handed from store to store carry nothing to the next but what the server has planned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from tests.servers.warm_connections import WarmConnections, warm_connections
from tidewheel.stores.postgres import PostgresStore

SESSION = "SELECT pg_backend_pid(), current_setting('work_mem'), current_setting('enable_seqscan')"


@asynccontextmanager
async def borrowed(warm: WarmConnections, url: str) -> AsyncIterator[Any]:
    """The connection of a store that is open for the block only."""
    store = PostgresStore(url)
    warm.lend_to(store)
    await store.open()
    try:
        async with store._database.connection() as connection:
            yield connection
    finally:
        await store.close()


async def test_the_next_store_has_the_same_process_and_a_session_as_new(postgres_url: str) -> None:
    """Settings and locks of the one before are gone, those every store makes are there."""
    async with warm_connections() as warm:
        async with borrowed(warm, postgres_url) as first:
            process, usual, _ = await first.fetchrow(SESSION)
            await first.execute("SET work_mem = '77MB'")
            await first.execute("SELECT pg_advisory_lock(7)")
        async with borrowed(warm, postgres_url) as second:
            assert await second.fetchrow(SESSION) == (process, usual, "off")
            held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1"
            assert await second.fetchval(held, process) == 0


async def test_who_closed_a_connection_cannot_use_it_up(postgres_url: str) -> None:
    """It is closed for them: ending it the hard way afterwards, as stores do, harms nobody."""
    async with warm_connections() as warm:
        async with borrowed(warm, postgres_url) as first:
            pass
        async with borrowed(warm, postgres_url) as second:
            assert first.is_closed()
            first.terminate()
            assert await second.fetchval("SELECT 1") == 1


@pytest.mark.parametrize("damage", ["BEGIN", "SELECT pg_terminate_backend(pg_backend_pid())"])
async def test_a_connection_in_no_state_to_go_on_is_not_kept(postgres_url: str, damage: str) -> None:
    """In the middle of a transaction, or cut by the server."""
    async with warm_connections() as warm:
        async with borrowed(warm, postgres_url) as connection:
            process = connection.get_server_pid()
            with suppress(asyncpg.PostgresError):  # what the server says as it cuts it
                await connection.execute(damage)
        async with borrowed(warm, postgres_url) as another:
            assert another.get_server_pid() != process


async def test_a_connection_whose_return_is_given_up_is_ended(postgres_url: str) -> None:
    """A store in a hurry gives up on closing it: it must not be left open, and nobody's."""
    async with warm_connections() as warm:
        store = PostgresStore(postgres_url)
        warm.lend_to(store)
        await store.open()
        connection = await store._database.connect()
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(0)  # it has asked the server, whose answer is still to come
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert connection._connection.is_closed()
        await store.close()
