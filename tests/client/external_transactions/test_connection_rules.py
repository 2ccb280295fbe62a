"""``using`` keeps to the rules of its connection, and says what it cannot do."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext import asyncio as alchemy

import tidewheel
from tests.client.external_transactions.conftest import Place
from tidewheel import ConfigurationError, InvalidInput, LimitExceeded, StoreError, Tidewheel
from tidewheel.client.drivers import wrap_connection
from tidewheel.client.drivers.base import ExternalConnection
from tidewheel.core.security_context import SecurityContext, acting_as
from tidewheel.stores.sql_files import SqlFile
from tidewheel.tasks.task import BoundTask


def test_on_sqlite_in_autocommit_a_job_is_there_at_once(sqlite_place: Place) -> None:
    """As any statement of such a connection is."""
    greet, mark = sqlite_place.greeting()
    connection = sqlite3.connect(sqlite_place.where, isolation_level=None)
    greet.using(connection).enqueue(name="Ada")
    assert not connection.in_transaction
    assert sqlite_place.jobs(mark) == 1
    connection.close()


def test_on_sqlite_an_error_in_autocommit_leaves_no_transaction(sqlite_place: Place) -> None:
    """It would hold the write lock, and nobody would know of it."""
    narrow = Tidewheel(sqlite_place.app.url, max_topics=1)
    options: dict[str, Any] = (
        {"autocommit": True} if sys.version_info >= (3, 12) else {"isolation_level": None}
    )
    connection = sqlite3.connect(sqlite_place.where, **options)
    sqlite_place.app.enqueue("here", using=connection)
    with pytest.raises(LimitExceeded, match="max_topics"):
        narrow.enqueue("elsewhere", using=connection)
    assert not connection.in_transaction
    sqlite_place.app.sync.enqueue("here")
    connection.close()


async def test_a_hint_that_fails_costs_no_job(postgres_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is written; whoever polls finds it."""
    greet, mark = postgres_place.greeting()
    asked = []

    def fail(joined: object) -> None:
        asked.append(joined)
        raise RuntimeError("cannot start new thread at interpreter shutdown")

    monkeypatch.setattr(postgres_place.app, "notify_on_commit", fail)
    with psycopg.connect(postgres_place.where) as teller, psycopg.connect(postgres_place.where) as other:
        greet.using(teller).enqueue(name="Ada")
        greet.using(other).enqueue(name="Grace")
    assert len(asked) == 1
    assert postgres_place.jobs(mark) == 2


def test_on_sqlite_the_driver_begins_and_the_caller_commits(sqlite_place: Place) -> None:
    """The default of the standard library: the first change opens a transaction."""
    greet, mark = sqlite_place.greeting()
    connection = sqlite3.connect(sqlite_place.where)
    greet.using(connection).enqueue(name="Ada")
    assert connection.in_transaction
    assert sqlite_place.jobs(mark) == 0
    connection.rollback()
    with connection:
        greet.using(connection).enqueue(name="Grace")
    assert sqlite_place.jobs(mark) == 1
    connection.close()


def test_on_postgresql_in_autocommit_a_job_is_there_at_once(postgres_place: Place) -> None:
    """With psycopg as with any driver."""
    greet, mark = postgres_place.greeting()
    with psycopg.connect(postgres_place.where, autocommit=True) as connection:
        greet.using(connection).enqueue(name="Ada")
        assert postgres_place.jobs(mark) == 1


async def test_sqlalchemy_knows_of_its_transaction(postgres_place: Place, sqlite_place: Place) -> None:
    """Its commit does nothing for a connection of which it thinks that nothing was done on it."""
    for place, url in (
        (sqlite_place, f"sqlite:///{sqlite_place.where}"),
        (postgres_place, postgres_place.where.replace("postgresql:", "postgresql+psycopg:")),
    ):
        greet, mark = place.greeting()
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            greet.using(connection).enqueue(name="Ada")
            connection.commit()
        with engine.begin() as connection:
            greet.using(connection).enqueue(name="Ada")
        engine.dispose()
        assert place.jobs(mark) == 2


def enqueue(connection: object, task: BoundTask[..., str]) -> None:
    task.using(connection).enqueue(name="Ada")


async def test_blocking_code_inside_of_run_sync_works(sqlite_place: Place, postgres_place: Place) -> None:
    """Where SQLAlchemy lets blocking code run on an async connection."""
    for place, url in (
        (sqlite_place, f"sqlite+aiosqlite:///{sqlite_place.where}"),
        (postgres_place, postgres_place.where.replace("postgresql:", "postgresql+asyncpg:")),
    ):
        greet, mark = place.greeting()
        engine = alchemy.create_async_engine(url)
        async with engine.begin() as connection:
            await connection.run_sync(enqueue, greet)
        await engine.dispose()
        assert place.jobs(mark) == 1


@pytest.mark.parametrize(
    ("thing", "has_connections"),
    [
        (None, False),
        ("sqlite:///jobs.db", False),
        (object(), False),
        (sqlalchemy.create_engine("sqlite://"), True),
        (alchemy.async_sessionmaker(), True),
    ],
)
def test_what_is_no_connection_is_refused_with_all_that_is(
    sqlite_place: Place, thing: object, has_connections: bool
) -> None:
    """A clear TypeError; whoever gives an engine, a pool or a factory is told to take one from it."""
    with pytest.raises(TypeError, match="psycopg2") as refused:
        sqlite_place.greet.using(thing)
    assert ("take a connection" in str(refused.value)) == has_connections


def test_a_connection_to_another_database_is_refused(
    sqlite_place: Place, postgres_place: Place, tmp_path: Path
) -> None:
    """Jobs written there would wait for ever."""
    elsewhere = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(InvalidInput, match=r"other\.db"):
        sqlite_place.greet.using(elsewhere).enqueue(name="Ada")
    with pytest.raises(InvalidInput, match=r"other\.db.*not_yet\.db"):
        Tidewheel(f"sqlite:///{tmp_path}/not_yet.db").enqueue("greet", using=elsewhere)
    nowhere = sqlite3.connect(":memory:")
    with pytest.raises(InvalidInput, match="in memory"):
        sqlite_place.greet.using(nowhere).enqueue(name="Ada")
    nowhere.close()
    with pytest.raises(InvalidInput, match="this connection is to sqlite"):
        postgres_place.greet.using(elsewhere).enqueue(name="Ada")
    with pytest.raises(ConfigurationError, match="no database"):
        Tidewheel("memory://").enqueue("greet", using=elsewhere)
    elsewhere.close()


async def test_a_database_without_tidewheel_says_so(postgres_place: Place, tmp_path: Path) -> None:
    """On either kind; the error names the remedy."""
    path = tmp_path / "new.db"
    connection = sqlite3.connect(path)
    with pytest.raises(StoreError, match="tidewheel migrate"):
        Tidewheel(f"sqlite:///{path}").enqueue("greet", using=connection)
    assert not connection.in_transaction
    connection.close()
    app = Tidewheel(f"{postgres_place.where}?schema=nowhere")
    opened = await asyncpg.connect(postgres_place.where)
    with pytest.raises(StoreError, match="tidewheel migrate"):
        await app.enqueue("greet", using=opened)
    await opened.close()
    blocking = psycopg.connect(postgres_place.where)
    with pytest.raises(StoreError, match="tidewheel migrate"):
        app.enqueue("greet", using=blocking)
    blocking.close()


def test_tenants_and_limits_hold_as_outside(sqlite_place: Place, postgres_place: Place) -> None:
    """The tenant is that of the context; a limit is judged by what the transaction sees."""
    for place, connection in (
        (sqlite_place, sqlite3.connect(sqlite_place.where)),
        (postgres_place, psycopg.connect(postgres_place.where)),
    ):
        greet, mark = place.greeting()
        with acting_as(SecurityContext("acme", user_id="ada")):
            job = greet.using(connection).enqueue(name="Ada")
        assert (job.tenant, job.user_id) == ("acme", "ada")
        narrow = Tidewheel(place.app.url, max_jobs_per_topic=2)
        narrow.enqueue("crowded", using=connection)
        narrow.enqueue("crowded", key=mark, using=connection)
        assert narrow.enqueue("crowded", key=mark, using=connection).duplicate
        with pytest.raises(LimitExceeded, match="max_jobs_per_topic"):
            narrow.enqueue("crowded", using=connection)
        connection.commit()
        connection.close()
        assert place.app.sync.count(topic="crowded").total == 2
        assert place.app.sync.check() == []


def test_bytes_and_large_payloads_arrive_as_they_are(sqlite_place: Place, postgres_place: Place) -> None:
    """Whatever is in them."""
    odd = bytes(range(256)) * 20
    for place, connection in (
        (sqlite_place, sqlite3.connect(sqlite_place.where)),
        (postgres_place, psycopg.connect(postgres_place.where)),
    ):
        raw = place.app.enqueue("raw", odd, using=connection)
        texts = place.app.enqueue_many(
            "texts", [{"text": "\"\\'%s $1 :x {text} ñ\U0001f600"}, {"text": "x" * 5000}], using=connection
        )
        connection.commit()
        connection.close()
        assert place.app.sync.get(raw.id).payload == odd
        told = [place.app.sync.get(job.id).payload["text"] for job in texts]
        assert told == ["\"\\'%s $1 :x {text} ñ\U0001f600", "x" * 5000]


def test_a_holder_of_a_key_is_read_like_any_job() -> None:
    """The function of the schema names the same columns in the same order as every other read."""
    package = Path(tidewheel.__file__).parent / "stores/postgres"
    columns = SqlFile("tidewheel.stores.postgres", "sql/job_queries.sql")["columns"]
    function = (package / "migrations/0001_schema/03_enqueue.sql").read_text("utf-8")
    assert " ".join(columns.split()) in " ".join(function.split())


def test_a_job_is_read_from_inside_of_the_transaction(sqlite_place: Place, postgres_place: Place) -> None:
    """Where nobody else sees it yet; integrations read results so."""
    for place, connection in (
        (sqlite_place, sqlite3.connect(sqlite_place.where)),
        (postgres_place, psycopg.connect(postgres_place.where)),
    ):
        greet, mark = place.greeting()
        job = greet.using(connection).enqueue(name="Ada")
        borrowed = wrap_connection(connection)
        assert isinstance(borrowed, ExternalConnection)
        inside = borrowed.run_steps(place.app.external_transaction.get(job.id, None))
        assert inside is not None
        assert (inside.id, inside.correlation_id, inside.payload) == (job.id, mark, b'{"name":"Ada"}')
        assert borrowed.run_steps(place.app.external_transaction.get(job.id, "root")) == inside
        assert borrowed.run_steps(place.app.external_transaction.get(job.id, "other")) is None
        connection.commit()
        assert place.app.sync.get(job.id).record == inside
        connection.close()


def test_no_library_is_imported_for_it() -> None:
    """Whoever has a connection has imported its library; nobody else needs one."""
    script = (
        "import sys, tidewheel, tidewheel.client.external_transaction\n"
        "libraries = {'aiosqlite', 'asyncpg', 'psycopg', 'psycopg2', 'pg8000', 'sqlalchemy', 'django'}\n"
        "sys.exit(str(libraries & set(sys.modules)) if libraries & set(sys.modules) else 0)\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
