"""``migrate --rls``: who may run it, what it leaves alone, and what becomes of later migrations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.servers.binaries import find_binaries
from tests.servers.postgres import FAST, PostgresServer
from tests.servers.shared import fresh_url, other_version
from tests.stores.postgres.catalogue import walls
from tests.stores.postgres.row_level_security import API, MIGRATOR, WORKER, Secured, acting, secured
from tests.stores.postgres.stores import opened, raw, schema_of
from tidewheel.core.model import Completed, JobFilter, Settlement, State
from tidewheel.errors import ConfigurationError, StoreError
from tidewheel.stores import create_store
from tidewheel.stores.postgres import schema
from tidewheel.stores.postgres.schema import load_migrations
from tidewheel.testing.conformance.helpers import claim_from, claim_one, enqueue_many, enqueue_one, settle_one

STEPS = [name for _, name, _ in load_migrations()]


@pytest.fixture
async def place() -> AsyncIterator[Secured]:
    async with secured() as place:
        yield place


async def test_a_new_schema_and_one_with_jobs_become_the_same(place: Secured) -> None:
    """In one go, afterwards, and again: what keeps tenants apart is the same, and jobs stay."""
    url = fresh_url()
    async with opened(url) as [store], raw(url) as admin, raw(place.url) as other:
        job_id = await enqueue_one(store, tenant="acme", payload=b'"%s"' % (b"x" * 3000))
        assert await store.migrate() == []
        assert await store.migrate(rls=True) == ["rls"]
        first = await walls(admin)
        assert await store.migrate(rls=True) == ["rls"]
        assert await walls(admin) == first
        place_name, name = place.schema, schema_of(url)
        assert str(first).replace(name, place_name) == str(await walls(other))
        assert await store.states([job_id]) == [State.PENDING]
        await admin.execute(f"DROP SCHEMA {name} CASCADE")


async def test_it_is_one_transaction_with_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails in it leaves no schema, and no table without a wall."""
    url = fresh_url()
    async with opened(url, migrated=False) as [store], raw(url) as admin:
        monkeypatch.setattr(schema, "enable_row_level_security", lambda *_: asyncio.sleep(0, 1 / 0))
        with pytest.raises(ZeroDivisionError):
            await store.migrate(rls=True)
        assert not await admin.fetchval("SELECT to_regnamespace($1) IS NOT NULL", schema_of(url))
        monkeypatch.undo()
        assert await store.migrate(rls=True) == [*STEPS, "rls"]
        await admin.execute(f"DROP SCHEMA {schema_of(url)} CASCADE")


async def test_it_can_be_run_while_workers_run(place: Secured) -> None:
    """They wait for a moment, and nothing is lost; a deadlock is tried again on either side."""
    async with opened(*[place.of(WORKER)] * 2, place.of(API), place.url, migrated=False) as [
        worker, other, api, admin,
    ]:  # fmt: skip
        done = asyncio.Event()
        ended: list[bool] = []

        async def work(store: Any) -> None:
            while not done.is_set() or (await store.count(JobFilter(state=State.PENDING))).total:
                leases = [claimed.lease for claimed in (await claim_from(store, limit=30)).jobs]
                ended.extend(
                    await store.settle([Settlement(lease, Completed(b"1"), 0.1) for lease in leases])
                )

        async def call() -> None:
            for number in range(20):
                await enqueue_many(api, 10, tenant=f"t{number % 3}")
            done.set()

        async def migrate() -> None:
            for _ in range(3):
                assert await admin.migrate(rls=True) == ["rls"]

        await asyncio.gather(work(worker), work(other), call(), migrate())
        assert ended == [True] * 200
        assert await worker.check() == []


async def test_it_gives_way_to_a_transaction_that_needs_what_it_has_locked(place: Secured) -> None:
    """Sooner than the server would end one of the two: a worker may be the one, and three times in a row."""
    async with opened(place.url, migrated=False) as [admin], raw(place.url) as client:
        transaction = client.transaction()
        await transaction.start()
        await client.fetch(f"SELECT FROM {place.schema}.counter_deltas")
        # Whoever looks for the circle first is ended.
        await client.execute("SET LOCAL deadlock_timeout = '800ms'")
        migration = asyncio.create_task(admin.migrate(rls=True))
        async with asyncio.timeout(PATIENCE):
            while not await client.fetchval(
                "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = $1::regclass AND NOT granted)",
                f"{place.schema}.counter_deltas",
            ):
                await asyncio.sleep(0)
        await client.fetch(f"SELECT FROM {place.schema}.jobs")
        assert not migration.done()
        await transaction.commit()
        assert await migration == ["rls"]


async def test_a_role_that_may_not_is_told_what_an_administrator_runs(place: Secured) -> None:
    """Nothing is changed; with what the message says it works."""
    url = fresh_url()
    name = schema_of(url)
    own = url.replace("postgres@", f"{name}@")
    async with raw(url) as admin:
        await admin.execute(f"CREATE ROLE {name} LOGIN; GRANT CREATE ON DATABASE postgres TO {name}")
        try:
            async with opened(own, migrated=False) as [store]:
                with pytest.raises(ConfigurationError, match=r"permission denied|must have admin") as caught:
                    await store.migrate(rls=True)
                assert not await admin.fetchval("SELECT to_regnamespace($1) IS NOT NULL", name)
                told = [line.strip() for line in str(caught.value).splitlines()]
                statements = [line for line in told if line.startswith(("CREATE ROLE", "GRANT"))]
                assert len(statements) == 5
                for statement in statements:
                    if not statement.startswith(
                        "CREATE ROLE"
                    ):  # they are there: the whole server shares them
                        await admin.execute(statement)
                assert await store.migrate(rls=True) == [*STEPS, "rls"]
                assert await store.states([await enqueue_one(store, tenant="a")]) == [State.PENDING]
                assert await store.migrate(rls=True) == ["rls"]
        finally:
            await admin.execute(
                f"DROP SCHEMA IF EXISTS {name} CASCADE; DROP OWNED BY {name}; DROP ROLE {name}"
            )


async def test_a_role_that_may_make_roles_needs_no_administrator() -> None:
    """On a server that has none of ours yet it makes them, and gives itself what it needs."""
    with PostgresServer(find_binaries(), settings=FAST) as server:
        async with raw(server.url()) as admin:
            await admin.execute(
                "CREATE ROLE deployer LOGIN CREATEROLE; GRANT CREATE ON DATABASE postgres TO deployer"
            )
        async with opened(server.url().replace("postgres@", "deployer@"), migrated=False) as [store]:
            assert await store.migrate(rls=True) == [*STEPS, "rls"]
            assert await store.migrate(rls=True) == ["rls"]
            assert not store._database.sees_one_tenant
            job_id = await enqueue_one(store, tenant="a")
            assert await store.states([job_id]) == [State.PENDING]


async def test_a_later_migration_keeps_the_walls(place: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run by a member of owner and worker, without --rls: it sees all rows, and what it makes is secured."""
    steps = load_migrations()
    later = """
        CREATE TABLE notes (id uuid PRIMARY KEY, tenant text NOT NULL, note text);
        INSERT INTO notes SELECT id, tenant, 'secret' FROM jobs;
        CREATE OR REPLACE FUNCTION minute_of(p_now bigint) RETURNS bigint
        LANGUAGE sql IMMUTABLE AS $$ SELECT p_now - p_now % 60000000 $$;
        CREATE FUNCTION noted() RETURNS bigint
        LANGUAGE sql AS 'SELECT count(*) FROM notes' SET search_path FROM CURRENT;
    """
    async with opened(place.of(API), place.of(MIGRATOR), place.of(WORKER), migrated=False) as [
        api, migrator, worker,
    ]:  # fmt: skip
        for tenant in ("a", "b"):
            await enqueue_one(api, tenant=tenant)
        monkeypatch.setattr(
            schema, "load_migrations", lambda: [*steps, (steps[-1][0] + 1, "0002_notes", later)]
        )
        with pytest.raises(StoreError, match="permission denied"):
            await worker.migrate()
        assert await migrator.migrate() == ["0002_notes", "rls"]
        assert await worker.migrate() == await api.migrate() == []
        async with acting(place, API, "a") as caller, raw(place.url) as admin:
            assert await admin.fetchval("SELECT count(*) FROM notes") == 2
            assert await caller.fetchval("SELECT count(*) FROM notes") == 1
            owners = await admin.fetch(
                "SELECT DISTINCT relowner::regrole::text FROM pg_class"
                " WHERE relnamespace = current_schema()::regnamespace"
                " UNION SELECT DISTINCT proowner::regrole::text FROM pg_proc"
                " WHERE pronamespace = current_schema()::regnamespace"
            )
            assert [row[0] for row in owners] == ["tidewheel_owner"]
        assert await worker.check() == []
        await settle_one(worker, (await claim_one(worker)).lease, Completed(b"1"))


async def test_without_row_level_security_a_migration_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who never wanted it needs no roles."""
    url = fresh_url()
    steps = load_migrations()
    async with opened(url) as [store]:
        later = (steps[-1][0] + 1, "0002_more", "CREATE TABLE more (tenant text)")
        monkeypatch.setattr(schema, "load_migrations", lambda: [*steps, later])
        assert await store.migrate() == ["0002_more"]
        assert (store._database.has_row_level_security, store._database.sees_one_tenant) == (False, False)
        async with raw(url) as admin:
            await admin.execute(f"DROP SCHEMA {schema_of(url)} CASCADE")


async def test_the_owner_alone_sees_no_rows(place: Secured) -> None:
    """Forced: a program that runs as the owner by mistake finds an empty queue, not everybody's jobs."""
    async with opened(place.of(API), migrated=False) as [api]:
        await enqueue_one(api, tenant="a")
    async with raw(place.url) as connection:
        await connection.execute("SET ROLE tidewheel_owner")
        assert await connection.fetchval("SELECT count(*) FROM jobs") == 0


async def test_a_policy_of_somebody_elses_is_left_alone(place: Secured) -> None:
    """It is not ours to drop; the check complains about it."""
    async with raw(place.url) as admin, opened(place.url, migrated=False) as [store]:
        await admin.execute("CREATE POLICY audit ON jobs FOR SELECT TO postgres USING (true)")
        await store.migrate(rls=True)
        assert await admin.fetchval("SELECT count(*) FROM pg_policy WHERE polname = 'audit'") == 1
        assert any("policy audit" in problem for problem in await store.check())


@pytest.mark.parametrize("role", [API, WORKER])
async def test_who_may_only_use_it_is_told_the_same(place: Secured, role: str) -> None:
    """On a schema that is there and up to date."""
    async with opened(place.of(role), migrated=False) as [store]:
        with pytest.raises(ConfigurationError, match=r"may not set up row-level security"):
            await store.migrate(rls=True)


async def test_public_is_refused() -> None:
    """Other people's tables are in there, and all of a schema is secured."""
    url = fresh_url()
    async with opened(url.replace(schema_of(url), "public"), migrated=False) as [store]:
        with pytest.raises(ConfigurationError, match=r"schema is public.*\?schema="):
            await store.migrate(rls=True)
        async with raw(url) as admin:
            assert await admin.fetchval("SELECT to_regclass('public.jobs')") is None


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{directory}/jobs.db"])
async def test_a_store_without_roles_refuses(url: str, tmp_path: Any) -> None:
    """It says which store has them; nothing is made."""
    store = create_store(url.format(directory=tmp_path.as_posix()))
    await store.open()
    try:
        with pytest.raises(ConfigurationError, match="postgresql://"):
            await store.migrate(rls=True)
    finally:
        await store.close()


@pytest.mark.skipif(other_version() is None, reason="the oldest PostgreSQL is not here")
async def test_the_oldest_postgresql_keeps_tenants_apart() -> None:
    """Policies, the check that reads them back, and both roles."""
    async with (
        secured(oldest=True) as place,
        opened(place.of(API), place.of(WORKER), migrated=False) as [api, worker],
    ):
        job_id = await enqueue_one(api, tenant="a", key="k", payload=b'"%s"' % (b"x" * 3000))
        assert await api.get(job_id, tenant="b") is None
        assert await api.get(job_id, tenant="a") is not None
        assert await settle_one(worker, (await claim_one(worker)).lease, Completed(b"1"))
        assert await api.states([job_id], tenant="a") == [State.COMPLETED]
        assert await worker.check() == []
