"""Which database a URL means, what is refused, and that no password is ever shown."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

import asyncpg
import pytest

from tests.patience import PATIENCE
from tests.servers import PgBouncer, PostgresServer
from tests.servers.postgres import HOST, free_port
from tests.servers.shared import fresh_schema
from tests.stores.postgres.stores import opened, raw, schema_of
from tidewheel.core.model import JobFilter
from tidewheel.errors import ConfigurationError, StoreError, StoreUnavailable, TidewheelError
from tidewheel.stores import create_store
from tidewheel.stores.postgres import PostgresStore
from tidewheel.stores.postgres.location import parse_url
from tidewheel.testing.conformance.helpers import claim_one, enqueue_one

SECRET = "hunter2"  # noqa: S105 - nobody's


def test_the_driver_gets_everything_but_our_own_options() -> None:
    """Options of PostgreSQL stay in the URL, in their order; both names of the scheme mean the same."""
    location = parse_url(
        "postgres://me:p%40ss@db.example:5433/app?sslmode=require&schema=queue&connections=12&host=/tmp"
    )
    assert location.dsn == "postgresql://me:p%40ss@db.example:5433/app?sslmode=require&host=%2Ftmp"
    assert (location.schema, location.connections) == ("queue", 12)
    assert parse_url("postgresql://db/app").schema == "tidewheel"


def test_several_hosts_are_the_drivers_business() -> None:
    """A primary and its standbys in one URL: whichever takes writes."""
    location = parse_url(f"postgresql://me:{SECRET}@one:5432,two:5433/app?target_session_attrs=read-write")
    assert "one:5432,two:5433" in location.dsn
    assert location.shown == "one:5432,two:5433/app (schema tidewheel)"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("schema=", "schema is ''"),
        ("schema=9lives", "no digit first"),
        ("schema=a-b", "letters, digits and _"),
        ("schema=x%22%3B%20DROP%20TABLE%20jobs", "letters, digits and _"),
        ("schema=%C3%A9", "letters, digits and _"),
        ("schema=" + "x" * 51, "1 to 50"),
        ("connections=0", "1 to 100"),
        ("connections=101", "1 to 100"),
        ("connections=-1", "1 to 100"),
        ("connections=many", "1 to 100"),
        ("connections=", "1 to 100"),
    ],
)
def test_a_bad_option_is_refused_with_what_is_possible(query: str, words: str) -> None:
    """Value, limit, remedy: also for names that try to be SQL."""
    with pytest.raises(ConfigurationError, match=r"schema|connections") as caught:
        create_store(f"postgresql://me:{SECRET}@db/app?{query}")
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:a/{SECRET}@db/app",
        f"postgresql://me:1/{SECRET}@db/app",
        f"postgresql://me:{SECRET}#1@db/app",
        f"postgresql://me:{SECRET}/1@db/app",
        f"postgresql://me:{SECRET}?1@db/app",
        f"postgresql://me:{SECRET}[@db/app",
        f"postgresql://me:{SECRET}@db:port/app",
        f"postgresql://me:{SECRET}@db:99999999/app",
        f"postgresql://db:1/app?password={SECRET}&port=nonsense",
        f"postgresql://me:{SECRET}@[::1/app",
    ],
)
async def test_a_url_that_cannot_be_read_is_not_quoted(url: str) -> None:
    """A / in a password, forgotten to be escaped, makes nonsense of the rest, and must not show any of it."""
    with pytest.raises(TidewheelError) as caught:
        await PostgresStore(url).open()
    assert isinstance(caught.value, ConfigurationError | StoreUnavailable)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sslmode=perhaps", "sslmode"),
        ("no_such_setting=1", "no_such_setting"),
        ("work_mem=nonsense", "work_mem"),
        ("target_session_attrs=nonsense", "target_session_attrs"),
    ],
)
async def test_an_option_the_server_does_not_know_is_a_mistake(
    postgres: PostgresServer, query: str, words: str
) -> None:
    """Trying again cannot help, so it is no outage."""
    with pytest.raises(ConfigurationError, match=words):
        await PostgresStore(f"{postgres.url()}?{query}").open()


async def test_an_option_the_pooler_does_not_know_is_a_mistake(pgbouncer: PgBouncer) -> None:
    """PgBouncer refuses settings it does not track."""
    with pytest.raises(ConfigurationError, match="work_mem"):
        await PostgresStore(f"{pgbouncer.url()}?work_mem=64MB").open()


async def test_what_does_not_exist_is_a_mistake(postgres: PostgresServer) -> None:
    """An unknown database or user is refused now and will be refused again."""
    for url in (postgres.url("nowhere"), postgres.url().replace("postgres@", f"nobody:{SECRET}@")):
        with pytest.raises(ConfigurationError, match="does not exist") as caught:
            await PostgresStore(url).open()
        assert SECRET not in str(caught.value)


async def test_a_server_that_is_not_there_is_an_outage() -> None:
    """A refused connection may be accepted in a moment."""
    url = f"postgresql://me:{SECRET}@{HOST}:{free_port()}/app"
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        await PostgresStore(url).open()
    assert SECRET not in str(caught.value)
    with pytest.raises(StoreUnavailable):
        await PostgresStore("postgresql://no-such-host.invalid/app").open()


async def test_a_database_that_cannot_hold_every_text_is_refused(postgres: PostgresServer) -> None:
    """Payloads are Unicode; a Latin-1 database would refuse some of them, one day."""
    name = fresh_schema()
    async with raw(postgres.url()) as connection:
        await connection.execute(
            f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C' STRATEGY file_copy"
        )
        with pytest.raises(ConfigurationError, match=r"LATIN1.*UTF8"):
            await PostgresStore(postgres.url(name)).open()
        await connection.execute(f"DROP DATABASE {name}")


async def test_the_description_shows_neither_user_nor_password(postgres_url: str) -> None:
    """What is printed and logged about a store can be pasted anywhere."""
    url = postgres_url.replace("postgres@", f"postgres:{SECRET}@")
    async with opened(url) as [store]:
        told = store.describe()
        assert told["store"] == "postgresql"
        assert told["connection"] == "direct"
        assert told["postgresql"][:2] in ("15", "16", "17", "18")
        assert SECRET not in repr(told)
        assert "postgres:" not in repr(told)


async def test_a_unix_socket_is_a_host_like_others(postgres: PostgresServer, postgres_url: str) -> None:
    """The directory of the socket in the URL's query, as libpq has it; hints come over it, too."""
    if not (postgres.directory / f".s.PGSQL.{postgres.port}").exists():
        pytest.skip("the server has no socket in a directory with a short name")
    query = f"host={quote(str(postgres.directory))}&port={postgres.port}&schema={schema_of(postgres_url)}"
    url = f"postgresql://postgres@/postgres?{query}"
    async with opened(url, url) as [store, other], store.wakeups(topics=["mail"]) as wakeups:
        assert str(postgres.directory) in store.describe()["database"]
        await enqueue_one(other)
        assert await wakeups.wait(PATIENCE)
        await claim_one(store)


@pytest.fixture(scope="module")
def strict() -> Iterator[PostgresServer]:
    """A server that asks for passwords, and has room for few."""
    with PostgresServer(settings={"fsync": "off", "max_connections": "10"}) as server:
        rules = server.data / "pg_hba.conf"
        rules.write_text(
            f"host all postgres {HOST}/32 trust\nhost all all {HOST}/32 scram-sha-256\n"
            f"host all all {HOST}/32 trust\n"
        )
        server.restart()
        yield server


async def test_passwords_are_checked_and_never_shown(
    strict: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong one is a mistake at first, and an outage once it was right: somebody may be changing it."""
    caplog.set_level(logging.DEBUG)
    async with raw(strict.url()) as connection:
        await connection.execute(f"CREATE ROLE app LOGIN PASSWORD '{SECRET}%'")
        await connection.execute("GRANT CREATE ON DATABASE postgres TO app")
        right = strict.url(connections="1").replace("postgres@", f"app:{SECRET}%25@")
        for wrong in (right.replace("%25@", "@"), right.replace(f":{SECRET}%25@", "@")):
            with pytest.raises(ConfigurationError, match=r"refuses this user|password") as caught:
                await PostgresStore(wrong).open()
            assert SECRET not in str(caught.value)
        async with opened(right) as [store]:
            await enqueue_one(store)
            await connection.execute("ALTER ROLE app PASSWORD 'changed'")
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'"
            )
            for _ in range(2):
                with pytest.raises(StoreUnavailable) as refused:
                    await store.count(JobFilter())
                assert SECRET not in str(refused.value)
            await connection.execute(f"ALTER ROLE app PASSWORD '{SECRET}%'")
            assert (await store.count(JobFilter())).total == 1
    assert SECRET not in caplog.text


async def test_a_server_without_a_free_connection_is_an_outage(strict: PostgresServer) -> None:
    """Too many clients is nothing that lasts."""
    taken: list[asyncpg.Connection] = []
    try:
        with suppress(asyncpg.TooManyConnectionsError):
            while len(taken) < 100:
                taken.append(await asyncpg.connect(strict.url()))
        with pytest.raises(StoreUnavailable, match="too many clients"):
            await PostgresStore(strict.url()).open()
    finally:
        for connection in taken:
            connection.terminate()


async def test_a_role_that_only_works_needs_few_rights(strict: PostgresServer) -> None:
    """Whoever migrates may be somebody else than whoever enqueues and claims."""
    async with opened(strict.url(schema="owned")), raw(strict.url()) as connection:
        await connection.execute(f"CREATE ROLE worker LOGIN PASSWORD '{SECRET}'")
        await connection.execute(
            "GRANT USAGE ON SCHEMA owned TO worker;"
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA owned TO worker;"
            "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA owned TO worker"
        )
        url = strict.url(schema="owned").replace("postgres@", f"worker:{SECRET}@")
        async with opened(url) as [store]:
            await enqueue_one(store)
            await claim_one(store)
            assert await store.check() == []
            await store.prune()
        await connection.execute("REVOKE ALL ON ALL TABLES IN SCHEMA owned FROM worker")
        async with opened(url, migrated=False) as [store]:
            with pytest.raises(StoreError, match="permission denied"):
                await enqueue_one(store)
