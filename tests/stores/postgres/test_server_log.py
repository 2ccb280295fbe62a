"""The tests' own ear: it hears what a test does to the server, and nothing of what others did before."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tests.servers import PostgresServer
from tests.stores.postgres.server_log import Complaints
from tests.stores.postgres.stores import raw


async def test_what_an_earlier_test_gave_up_is_not_heard(postgres: PostgresServer) -> None:
    """A statement that was under way ends in an error later; errors that come after it are told, in full."""
    async with raw(postgres.url()) as given_up, raw(postgres.url()) as mine:
        await given_up.execute("SET statement_timeout = '200ms'")
        sleeping = asyncio.ensure_future(given_up.execute("SELECT pg_sleep(60)"))
        pid = given_up.get_server_pid()
        while await mine.fetchval("SELECT state FROM pg_stat_activity WHERE pid = $1", pid) != "active":
            await asyncio.sleep(0.001)
        complaints = await Complaints.of(postgres)
        with pytest.raises(asyncpg.QueryCanceledError):
            await sleeping
        assert complaints.heard() == []
        with pytest.raises(asyncpg.DivisionByZeroError):
            await mine.execute("SELECT 1 /\n 0")
    [heard] = complaints.heard()
    assert "division by zero" in heard
    assert heard.endswith("STATEMENT:  SELECT 1 /\n\t 0")
