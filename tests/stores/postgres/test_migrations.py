"""Making the schema: once, by whoever comes first, and never over somebody else's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.servers import PgBouncer, PostgresServer
from tests.servers.shared import fresh_schema, fresh_url
from tests.stores.postgres.catalogue import NEXT_STEP
from tests.stores.postgres.stores import opened, own_database, raw, schema_of
from tidewheel.core.model import Claimed, Completed, JobFilter, Settlement, State
from tidewheel.errors import ConfigurationError, NotOpen, SchemaTooNew, StoreError, StoreUnavailable
from tidewheel.stores.postgres import PostgresStore, schema
from tidewheel.stores.postgres.schema import load_migrations, read_steps
from tidewheel.testing.conformance.helpers import (
    claim_from,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    job,
)

STEPS = [name for _, name, _ in load_migrations()]


async def versions(url: str) -> list[int]:
    async with raw(url) as connection:
        rows = await connection.fetch("SELECT version FROM schema_versions ORDER BY applied_at, version")
    return [row[0] for row in rows]


async def test_many_that_migrate_at_once_run_each_step_once() -> None:
    """Eight workers of a new deployment start in the same second."""
    url = fresh_url()
    async with opened(*[url] * 8, migrated=False) as stores:
        done = await asyncio.gather(*(store.migrate() for store in stores))
        assert sorted(done, key=len) == [[]] * 7 + [STEPS]
        assert await versions(url) == list(range(1, len(STEPS) + 1))
        assert await stores[0].migrate() == []
        assert await stores[0].check() == []


async def test_many_migrate_through_a_pooler(pgbouncer: PgBouncer) -> None:
    """The lock is a transaction's, so it cannot be left on a connection that is somebody else's next."""
    url = pgbouncer.url(schema=fresh_schema())
    async with opened(*[url] * 8, migrated=False) as stores:
        done = await asyncio.gather(*(store.migrate() for store in stores))
        assert sorted(done, key=len) == [[]] * 7 + [STEPS]


async def test_a_newer_schema_is_refused() -> None:
    """An old Tidewheel does not touch what it does not understand, and says what to do."""
    url = fresh_url()
    async with opened(url) as [store], raw(url) as connection:
        await connection.execute(
            "INSERT INTO schema_versions (version, name) VALUES (9999, 'from_the_future')"
        )
        with pytest.raises(SchemaTooNew, match=r"9999.*upgrade Tidewheel"):
            await store.migrate()
        with pytest.raises(SchemaTooNew, match="9999"):
            await store.pending_migrations()


async def test_a_step_that_adds_a_column_disturbs_nobody_who_is_at_work() -> None:
    """A rolling upgrade: jobs that share a row hold it as it was, and come back as it is."""
    url = fresh_url()
    async with opened(url) as [store], raw(url) as connection:
        job_ids = await enqueue_many(store, 60)
        held = await claim_jobs(store, limit=30)
        lost = await claim_jobs(store, limit=30, lease_seconds=0.1, worker="lost")
        assert await connection.fetchval("SELECT count(*) FROM leased_batches") == 2
        await connection.execute("ALTER TABLE jobs ADD COLUMN of_tomorrow text")
        assert await store.settle([Settlement(one.lease, Completed()) for one in held]) == [True] * 30
        again: list[Claimed] = []
        async with asyncio.timeout(PATIENCE):
            while len(again) < 30:  # those that were not started come one by one
                found = await claim_jobs(store, limit=30)
                assert await store.settle([Settlement(one.lease, Completed()) for one in found]) == [
                    True
                ] * len(found)
                again += found
        assert {one.lease.job_id for one in again} == {one.lease.job_id for one in lost}
        assert set(await store.states(job_ids)) == {State.COMPLETED}
        assert await store.check() == []


async def test_the_owner_of_a_schema_migrates_without_the_right_to_make_one(postgres_url: str) -> None:
    """Who has neither is told who may, and that the SQL can be printed."""
    url = fresh_url()
    owner = url.replace("postgres@", "only_a_schema@")
    async with raw(postgres_url) as admin:
        await admin.execute("DROP ROLE IF EXISTS only_a_schema; CREATE ROLE only_a_schema LOGIN")
        try:
            async with opened(owner, migrated=False) as [store]:
                with pytest.raises(StoreError, match=r"permission denied for database .*migrate --print"):
                    await store.migrate()
                await admin.execute(f"CREATE SCHEMA {schema_of(url)} AUTHORIZATION only_a_schema")
                assert await store.migrate() == STEPS
                assert await store.check() == []
        finally:
            await admin.execute("DROP OWNED BY only_a_schema CASCADE; DROP ROLE only_a_schema")


async def test_what_a_migration_would_do_can_be_asked_first() -> None:
    """Asking makes no schema."""
    url = fresh_url()
    async with opened(url, migrated=False) as [store]:
        assert await store.pending_migrations() == await store.pending_migrations() == STEPS
        assert await store.migrate() == STEPS
        assert await store.pending_migrations() == []


async def test_an_older_schema_gets_only_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that was taken is not taken again, and many that upgrade at once take the new one once."""
    url = fresh_url()
    async with opened(*[url] * 8, migrated=False) as stores:
        assert await stores[0].migrate() == STEPS
        job_id = await enqueue_one(stores[0])
        later = [*load_migrations(), NEXT_STEP]
        monkeypatch.setattr(schema, "load_migrations", lambda: later)
        assert await stores[0].pending_migrations() == [NEXT_STEP[1]]
        done = await asyncio.gather(*(store.migrate() for store in stores))
        assert sorted(done, key=len) == [[]] * 7 + [[NEXT_STEP[1]]]
        assert await versions(url) == [1, 2]
        assert await stores[0].pending_migrations() == []
        assert (await claim_one(stores[1])).lease.job_id == job_id
        monkeypatch.undo()
        with pytest.raises(SchemaTooNew, match=r"schema version 2, this Tidewheel knows 1"):
            await stores[0].migrate()


async def test_a_later_step_that_fails_leaves_the_schema_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its version nor half of its tables is there, and jobs are enqueued as before."""
    url = fresh_url()
    async with opened(url) as [store], raw(url) as connection:
        broken = [*load_migrations(), NEXT_STEP, (3, "0003_broken", "CREATE TABLE extra (); SELECT 1 / 0")]
        monkeypatch.setattr(schema, "load_migrations", lambda: broken)
        with pytest.raises(StoreError, match="division by zero"):
            await store.migrate()
        assert await versions(url) == [1]
        assert await connection.fetchval("SELECT to_regclass('notes')::text") is None
        await enqueue_one(store)


def test_a_step_is_a_file_or_a_directory_of_parts(tmp_path: Path) -> None:
    """Parts are run in the order of their names; a number that is missing or there twice is noticed."""
    parts = tmp_path / "0001_first"
    parts.mkdir()
    for name in ("02_b.sql", "01_a.sql", "10_c.sql"):
        (parts / name).write_text(f"SELECT '{name}';\n")
    (tmp_path / "0002_second.sql").write_text("SELECT 2;\n")
    (tmp_path / "__pycache__").mkdir()
    first, second = read_steps(tmp_path)
    assert first[:2] == (1, "0001_first")
    assert first[2].split() == ["SELECT", "'01_a.sql';", "SELECT", "'02_b.sql';", "SELECT", "'10_c.sql';"]
    assert second == (2, "0002_second", "SELECT 2;\n")
    for wrong in ("0002_again.sql", "0004_gap.sql"):
        (tmp_path / wrong).write_text("SELECT 0;")
        with pytest.raises(ValueError, match="have to be 1, 2, 3"):
            read_steps(tmp_path)
        (tmp_path / wrong).unlink()


async def test_a_step_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are one transaction: there is no half-made schema to clean up."""
    url = fresh_url()
    steps = load_migrations()
    async with opened(url, migrated=False) as [store]:
        broken = [*steps, (2, "0002_broken", "CREATE TABLE extra (); SELECT 1 / 0")]
        monkeypatch.setattr(schema, "load_migrations", lambda: broken)
        with pytest.raises(StoreError, match="division by zero"):
            await store.migrate()
        monkeypatch.setattr(schema, "load_migrations", lambda: steps)
        async with raw(url) as connection:
            assert not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", schema_of(url))
        assert await store.migrate() == STEPS


async def test_a_schema_that_is_there_and_empty_is_used() -> None:
    """Somebody with more rights may have made it."""
    url = fresh_url()
    async with raw(url) as connection:
        await connection.execute(f"CREATE SCHEMA {schema_of(url)}")
    async with opened(url) as [store]:
        job_id = await enqueue_one(store)
        assert await store.states([job_id]) == [State.PENDING]


async def test_a_schema_with_somebody_elses_tables_is_left_alone() -> None:
    """A table ``jobs`` of another program is no table of ours."""
    url = fresh_url()
    async with raw(url) as connection:
        await connection.execute(
            f"CREATE SCHEMA {schema_of(url)}; CREATE TABLE {schema_of(url)}.jobs (mine text)"
        )
        async with opened(url, migrated=False) as [store]:
            with pytest.raises(StoreError, match='"jobs" already exists'):
                await store.migrate()
            assert not await connection.fetchval("SELECT to_regclass('schema_versions') IS NOT NULL")
            with pytest.raises(StoreError, match="tidewheel migrate"):
                await store.enqueue([job()])


async def test_a_role_without_rights_is_told(postgres: PostgresServer) -> None:
    """It may neither make a schema nor, in one that is not its own, tables; in its own it may."""
    name = fresh_schema()
    url = postgres.url(schema=name).replace("postgres@", f"{name}@")
    async with raw(postgres.url()) as connection:
        await connection.execute(f"CREATE ROLE {name} LOGIN")
        async with opened(url, migrated=False) as [store]:
            with pytest.raises(StoreError, match="permission denied for database"):
                await store.migrate()
            await connection.execute(f"CREATE SCHEMA {name}")
            with pytest.raises(StoreError, match="permission denied for schema"):
                await store.migrate()
            await connection.execute(f"ALTER SCHEMA {name} OWNER TO {name}")
            assert await store.migrate() == STEPS
            await enqueue_one(store)
        await connection.execute(f"DROP SCHEMA {name} CASCADE; DROP ROLE {name}")


async def test_a_store_used_before_it_is_migrated_says_what_to_do() -> None:
    """Every verb names the command that helps."""
    async with opened(fresh_url(), migrated=False) as [store]:
        calls: list[Any] = [
            lambda: store.enqueue([job()]),
            lambda: claim_from(store),
            store.rescue,
            lambda: store.get(job().id),
            lambda: store.list_jobs(JobFilter(), limit=1),
            lambda: store.stats(window_seconds=60.0),
            store.topics,
            store.now,
            store.check,
        ]
        for call in calls:
            with pytest.raises(StoreError, match="tidewheel migrate") as caught:
                await call()
            assert not isinstance(caught.value, StoreUnavailable)


async def test_a_store_that_is_not_open_says_so(postgres_url: str) -> None:
    """Before it is opened and after it was closed; closing twice is fine."""
    store = PostgresStore(postgres_url)
    with pytest.raises(NotOpen):
        await store.now()
    await store.close()
    await store.open()
    await store.migrate()
    await store.open()
    await store.now()
    await store.close()
    await store.close()
    with pytest.raises(NotOpen):
        await store.now()


async def test_a_schema_dropped_and_made_anew_under_open_stores_works() -> None:
    """What connections remember of the old functions and tables does not get in the way."""
    url = fresh_url()
    async with opened(url, url) as [store, other]:
        await enqueue_one(store)
        await claim_one(store)
        await other.count(JobFilter())
        async with raw(url) as connection:
            await connection.execute(f"DROP SCHEMA {schema_of(url)} CASCADE")
        with pytest.raises(StoreError, match="tidewheel migrate"):
            await enqueue_one(store)
        await other.migrate()
        await enqueue_one(store)
        await claim_one(other)
        assert (await other.count(JobFilter())).total == 1
        assert await store.check() == []


async def test_the_databases_default_isolation_does_not_matter(
    postgres: PostgresServer, pgbouncer: PgBouncer
) -> None:
    """Who made everything serializable does not break the claims; behind a pooler it is refused."""
    async with own_database(postgres) as name, raw(postgres.url()) as connection:
        await connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
        url = postgres.url(name)
        async with opened(*[url] * 3) as stores:
            await stores[0].enqueue([job() for _ in range(60)])
            claims = await asyncio.gather(*(claim_from(store, limit=20) for store in stores))
            assert len({one.lease.job_id for claim in claims for one in claim.jobs}) == 60
            answers = await asyncio.gather(*(store.enqueue([job(key="k")]) for store in stores))
            assert [answer.duplicate for [answer] in answers].count(False) == 1
        with pytest.raises(ConfigurationError, match="read committed"):
            await PostgresStore(pgbouncer.url(name)).open()
