"""What the PostgreSQL page says to type into psql works, and its roles can do what it says, no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tests.docs.pages import ROOT, statements
from tests.servers import PostgresServer
from tidewheel import StoreError, Tidewheel
from tidewheel.admin.migration_scripts import write_grants
from tidewheel.core.model import ClaimRequest, Lane, State

PAGE = ROOT / "docs/how-to/postgresql.md"
DATABASE = "shop"  # as on the page
ROLES = ("shop_owner", "shop_worker", "shop_web")


def url(server: PostgresServer, role: str) -> str:
    return server.url(DATABASE).replace("postgres@", f"{role}@")


async def drop(server: PostgresServer) -> None:
    connection = await asyncpg.connect(server.url())
    try:
        await connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        await connection.execute(f"DROP ROLE IF EXISTS {', '.join(ROLES)}")
    finally:
        await connection.close()


@pytest.fixture
async def administrator(postgres: PostgresServer) -> AsyncIterator[Any]:
    """A database set up as the page says: its roles, the migration by the owner, then everything else."""
    await drop(postgres)
    first = await asyncpg.connect(postgres.url())
    await first.execute(f"CREATE DATABASE {DATABASE}")
    await first.close()
    connection = await asyncpg.connect(postgres.url(DATABASE))
    try:
        migrated = False
        for statement in statements(PAGE):
            if not migrated and "SCHEMA tidewheel" in statement:
                async with Tidewheel(url(postgres, "shop_owner"), migrate=False) as app:
                    assert await app.migrate()
                migrated = True
            await connection.execute(statement)
        assert migrated
        yield connection
    finally:
        await connection.close()
        await drop(postgres)


async def test_the_sql_of_the_page_runs_and_the_owner_owns_everything(administrator: Any) -> None:
    """Every statement in the order of the page; what is in the schema is the owner's."""
    owners = await administrator.fetch(
        "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'tidewheel'::regnamespace"
    )
    assert [row[0] for row in owners] == ["shop_owner"]


@pytest.mark.usefixtures("administrator")
async def test_the_worker_role_runs_and_manages_jobs(postgres: PostgresServer) -> None:
    """Enqueue, claim, settle, requeue, cancel, delete, pause, prune, add up, check: all without owning."""
    app = Tidewheel(url(postgres, "shop_worker"), migrate=False)

    @app.task(retention=0, max_attempts=1)
    async def greet(name: str) -> str:
        if name == "bad":
            raise ValueError("a bad name")
        return name

    async with app:
        good = await greet.options(key="once").enqueue(name="x" * 5000)
        bad = await greet.options(retention=60).enqueue(name="bad")
        later = await greet.options(delay=600, key="later").enqueue(name="a")
        replacing = greet.options(delay=600, key="later", on_duplicate="replace")
        assert (await replacing.enqueue(name="b")).id == later.id
        await app.pause("greet")
        await app.resume("greet")
        await app.run_until_idle()
        assert await app.store.states([good.id, bad.id]) == [State.COMPLETED, State.FAILED]
        await app.requeue(bad.id)
        await app.cancel(bad.id)
        await app.delete(bad.id)
        await app.store.prune()
        assert await app.store.get(good.id) is None
        assert await app.workers() == []
        assert await app.check() == []
        assert (await app.stats()).pending == 1


async def test_the_caller_role_enqueues_and_reads_and_nothing_else(
    postgres: PostgresServer, administrator: Any
) -> None:
    """Also with keys and large bodies; what would run or change a job is refused."""
    app = Tidewheel(url(postgres, "shop_web"), migrate=False)
    async with app:
        job = await app.enqueue("greet", {"name": "x" * 5000}, key="once")
        assert (await app.enqueue("greet", {}, key="once")).duplicate
        assert (await app.get(job.id)).payload == {"name": "x" * 5000}
        assert (await app.jobs(topic="greet")).total == 1
        assert (await app.stats()).pending == 1
        await app.store._counter_rollup.run()  # type: ignore[attr-defined]
        assert await administrator.fetchval("SELECT count(*) FROM tidewheel.counter_deltas") == 0
        with pytest.raises(StoreError, match="permission denied"):
            await app.store.documents("superuser", limit=1)
        lanes = (Lane("greet", None),)
        for refused in (
            app.store.claim(ClaimRequest(worker="w", lanes=lanes, limit=1, lease_seconds=60)),
            app.cancel(job.id),
            app.delete(job.id),
            app.pause("greet"),
            app.store.prune(),
            app.store.rescue(),
        ):
            with pytest.raises(StoreError, match="permission denied"):
                await refused


async def test_a_caller_that_replaces_needs_more(postgres: PostgresServer, administrator: Any) -> None:
    """The last two of the printed grants, and nothing else."""
    debounced: Any = {"delay": 600, "key": "once", "on_duplicate": "replace"}
    async with Tidewheel(url(postgres, "shop_web"), migrate=False) as app:
        job = await app.enqueue("greet", {"name": "x" * 5000}, **debounced)
        with pytest.raises(StoreError, match="permission denied for table jobs"):
            await app.enqueue("greet", {"name": "b"}, **debounced)
        granted = write_grants(postgres.url(DATABASE), "shop_web").partition("on_duplicate")[2]
        await administrator.execute(granted.partition("\n")[2])
        await app.enqueue("greet", {"name": "b"}, **debounced)
        assert (await app.get(job.id)).payload == {"name": "b"}


@pytest.mark.usefixtures("administrator")
async def test_what_a_later_migration_makes_is_granted_by_default(postgres: PostgresServer) -> None:
    """Nobody has to grant again before workers can use a new table, sequence or function."""
    owner = await asyncpg.connect(url(postgres, "shop_owner"))
    await owner.execute(
        "CREATE TABLE tidewheel.later (n bigint); CREATE SEQUENCE tidewheel.later_numbers;"
        "CREATE FUNCTION tidewheel.later_one() RETURNS integer LANGUAGE sql AS 'SELECT 1'"
    )
    await owner.close()
    worker = await asyncpg.connect(url(postgres, "shop_worker"))
    await worker.execute("INSERT INTO tidewheel.later VALUES (nextval('tidewheel.later_numbers'))")
    assert await worker.fetchval("SELECT tidewheel.later_one()") == 1
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await worker.execute("DROP TABLE tidewheel.later")
    await worker.close()
    web = await asyncpg.connect(url(postgres, "shop_web"))
    assert await web.fetchval("SELECT count(*) FROM tidewheel.later") == 1
    await web.close()
