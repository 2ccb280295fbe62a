"""What the page about tenants on PostgreSQL says to type works, and its roles are held as it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tests.docs.pages import ROOT, statements
from tests.servers.binaries import find_binaries
from tests.servers.postgres import FAST, PostgresServer
from tidewheel import Tidewheel
from tidewheel.core.model import State

PAGE = ROOT / "docs/how-to/tenants-postgresql.md"


@pytest.fixture
async def server() -> AsyncIterator[PostgresServer]:
    """A server of its own, because the page makes roles that a server has only once."""
    with PostgresServer(find_binaries(), settings=FAST) as server:
        connection = await asyncpg.connect(server.url())
        await connection.execute("CREATE DATABASE shop")
        await connection.close()
        yield server


def url(server: PostgresServer, role: str) -> str:
    return server.url("shop").replace("postgres@", f"{role}@")


async def migrate(server: PostgresServer) -> list[str]:
    async with Tidewheel(url(server, "shop_deploy"), migrate=False) as app:
        return await app.migrate(rls=True)


async def test_the_page_from_its_first_statement_to_its_last(server: PostgresServer) -> None:
    """Roles, the migration, a table with a policy of its own, and the view; then all of it is tried."""
    administrator: Any = await asyncpg.connect(server.url("shop"))
    try:
        migrated = False
        for statement in statements(PAGE):
            if not migrated and "orders" in statement:
                assert (await migrate(server))[-1] == "rls"
                migrated = True
            await administrator.execute(statement)
        assert migrated

        async with (
            Tidewheel(url(server, "shop_api"), migrate=False) as calling,
            Tidewheel(url(server, "shop_worker"), migrate=False) as working,
        ):
            job = await calling.enqueue("greet", {"name": "Ada"}, tenant="acme")
            assert await calling.store.get(job.id) is None
            assert await calling.store.get(job.id, tenant="zeta") is None
            assert await calling.store.get(job.id, tenant="acme") is not None
            assert await working.store.states([job.id]) == [State.PENDING]
            assert await working.check() == []

        for role in ("shop_api", "shop_worker"):
            connection = await asyncpg.connect(url(server, role))
            for setting, seen in ((None, 0), ("", 0), ("zeta", 0), ("acme", 1)):
                if setting is not None:
                    await connection.execute("SELECT set_config('app.tenant_id', $1, false)", setting)
                assert await connection.fetchval("SELECT count(*) FROM orders") == seen
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await connection.execute("INSERT INTO orders VALUES (2, 'zeta', 1)")
            await connection.close()

        viewer = await asyncpg.connect(url(server, "shop_api"))
        assert await viewer.fetchval("SELECT count(*) FROM tidewheel.job_status") == 0
        await viewer.execute("SET app.tenant_id = 'acme'")
        assert await viewer.fetchval("SELECT state FROM tidewheel.job_status") == "pending"
        await viewer.close()
    finally:
        await administrator.close()
