"""``migrate`` as a script: the same schema, made by somebody else's hands."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tests.servers.binaries import find_binaries
from tests.servers.shared import fresh_url
from tests.stores.postgres.catalogue import NEXT_STEP, catalogue
from tests.stores.postgres.stores import opened, raw, schema_of
from tidewheel.admin.migration_scripts import missing_script, write_migration_script
from tidewheel.core.model import Completed, Settlement
from tidewheel.errors import ConfigurationError, SchemaTooNew
from tidewheel.stores.postgres import schema
from tidewheel.stores.postgres.roles import security_script
from tidewheel.stores.postgres.schema import load_migrations, split_statements
from tidewheel.testing.conformance.helpers import claim_one, enqueue_one

STEPS = load_migrations()
NAMES = [name for _, name, _ in STEPS]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A schema that is not there yet, and is gone afterwards: roles are the server's and outlive it."""
    url = fresh_url()
    yield url
    async with raw(url) as connection:
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema_of(url)} CASCADE")


async def by_migrating(url: str, *, rls: bool = False) -> list[Any]:
    async with opened(url, migrated=False) as [store], raw(url) as connection:
        await store.migrate(rls=rls)
        return await catalogue(connection)


def psql(url: str, text: str) -> None:
    """PostgreSQL's own client, as the head of a script says to call it."""
    done = subprocess.run(
        [
            find_binaries().program("psql"),
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-f",
            "-",
            url.partition("?")[0],
        ],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("rls", [False, True])
async def test_the_printed_sql_makes_what_migrate_makes(url: str, rls: bool) -> None:
    """Run by psql, it leaves the same catalogue, nothing to migrate, and a queue that works."""
    script = write_migration_script(url, since=0, rls=rls)
    assert list(script.steps) == NAMES + ["rls"] * rls
    other = fresh_url()
    expected = await by_migrating(other, rls=rls)
    async with raw(url) as connection, opened(url, migrated=False) as [store]:
        await asyncio.to_thread(psql, url, script.text)
        assert await catalogue(connection) == expected
        assert await store.migrate() == []
        assert (await missing_script(url)).steps == ()
        job_id = await enqueue_one(store)
        claimed = await claim_one(store)
        assert claimed.lease.job_id == job_id
        assert await store.settle([Settlement(claimed.lease, Completed(b"1"))])
        assert len(await store.check()) == rls  # a superuser is told that no policy holds it
        await connection.execute(f"DROP SCHEMA {schema_of(other)} CASCADE")


async def test_statement_by_statement_it_is_the_same_and_sets_back_what_it_set(url: str) -> None:
    """For tools that run it in a transaction of their own, by drivers that take one statement at a time."""
    script = write_migration_script(url, since=0)
    other = fresh_url()
    expected = await by_migrating(other)
    asked = "SELECT current_setting('search_path'), current_setting('lock_timeout')"
    async with raw(url) as connection:
        async with connection.transaction():
            before = await connection.fetchrow(asked)
            for statement in script.statements:
                await connection.fetch(statement)  # prepared, which takes one statement only
            assert await connection.fetchrow(asked) == before
        assert await catalogue(connection) == expected
        assert script.undo is not None
        for statement in script.undo:
            await connection.fetch(statement)
        assert await connection.fetchval("SELECT to_regnamespace($1)::text", schema_of(url)) is None
        await connection.execute(f"DROP SCHEMA {schema_of(other)} CASCADE")


async def test_a_script_refuses_what_it_is_not_for(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second time, at another version, or without a transaction: nothing is changed."""
    script = write_migration_script(url, since=0)
    async with raw(url) as connection:
        first, second, *_ = script.statements
        await connection.execute(first)
        with pytest.raises(asyncpg.RaiseError, match="in one transaction"):
            await connection.execute(second)
        assert await connection.fetchval("SELECT to_regnamespace($1)::text", schema_of(url)) is None
        await connection.execute(script.text)
        with pytest.raises(asyncpg.RaiseError, match=rf"for version 0 .*, which has version {len(STEPS)}"):
            await connection.execute(script.text)
        await connection.execute("ROLLBACK")
        later = [*STEPS, NEXT_STEP, (3, "0003_more", "CREATE TABLE more ();\n")]
        monkeypatch.setattr(schema, "load_migrations", lambda: later)
        with pytest.raises(asyncpg.RaiseError, match="for version 2 "):
            await connection.execute(write_migration_script(url, since=2).text)


async def test_an_older_schema_gets_only_what_is_missing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by looking, or said; with row-level security it is set up for what is new."""
    async with opened(url, migrated=False) as [store], raw(url) as connection:
        await store.migrate(rls=True)
        later = [*STEPS, NEXT_STEP]
        monkeypatch.setattr(schema, "load_migrations", lambda: later)
        script = await missing_script(url)
        assert list(script.steps) == [NEXT_STEP[1], "rls"]
        assert (script.from_version, script.to_version, script.undo) == (len(STEPS), len(later), None)
        assert script == write_migration_script(url, since=len(STEPS), rls=True)
        await connection.execute(script.text)
        assert await store.migrate() == []
        other = fresh_url()
        assert await catalogue(connection) == await by_migrating(other, rls=True)
        await connection.execute(f"DROP SCHEMA {schema_of(other)} CASCADE")


async def test_a_newer_schema_is_refused(url: str) -> None:
    """An old Tidewheel prints nothing for what it does not understand."""
    async with opened(url), raw(url) as connection:
        await connection.execute("INSERT INTO schema_versions (version, name) VALUES (9999, 'future')")
        with pytest.raises(SchemaTooNew, match="9999"):
            await missing_script(url)


async def test_looking_makes_nothing(url: str) -> None:
    """Not even the schema."""
    assert list((await missing_script(url)).steps) == NAMES
    async with raw(url) as connection:
        assert await connection.fetchval("SELECT to_regnamespace($1)::text", schema_of(url)) is None


def test_a_script_needs_no_server_and_public_is_not_taken_over() -> None:
    """Of the URL only the schema matters."""
    assert 'CREATE SCHEMA "queue"' in write_migration_script("postgresql:///?schema=queue", since=0).text
    public = "postgresql:///?schema=public"
    assert write_migration_script(public, since=0).undo is None
    with pytest.raises(ConfigurationError, match="whole schema"):
        write_migration_script(public, since=0, rls=True)
    with pytest.raises(ConfigurationError, match=f"99; this Tidewheel knows 0 .* to {len(STEPS)}"):
        write_migration_script("postgresql:", since=99)


def test_scripts_are_split_where_statements_end() -> None:
    """Not in texts, names, bodies or comments; a comment behind the end belongs to nobody."""
    script = (
        "-- a; b\nSELECT ';' AS \"a;b\" -- c;\n; -- gone;\nDO $x$ ; $$ ; $$ $x$;\nSELECT 'it''s;'; -- end\n"
    )
    assert split_statements(script) == [
        "-- a; b\nSELECT ';' AS \"a;b\" -- c;", "DO $x$ ; $$ ; $$ $x$", "SELECT 'it''s;'"
    ]  # fmt: skip
    for text in [*(script for _, _, script in STEPS), security_script()]:
        # Whoever puts a semicolon behind a statement must not put it into a comment.
        assert all("--" not in statement.rpartition("\n")[2] for statement in split_statements(text))
