"""``using`` on connections whose owners have settings of their own."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pg8000
import pg8000.dbapi
import psycopg
import psycopg2
import psycopg2.extras
import pytest

from tests.client.external_transactions.conftest import Place
from tests.servers.shared import shared_pgbouncer
from tidewheel import Tidewheel
from tidewheel.stores.postgres import external_transaction

ODD = "ñ \U0001f600"


def pg8000_connection(url: str, module: Any = pg8000.dbapi) -> Any:
    parts = urlsplit(url)
    return module.connect(
        user=parts.username, host=parts.hostname, port=parts.port, database=parts.path.lstrip("/")
    )


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "WIN1252"])
@pytest.mark.parametrize("connect", [psycopg.connect, psycopg2.connect, pg8000_connection])
def test_whatever_a_connection_cannot_write_arrives_all_the_same(
    postgres_place: Place, connect: Any, encoding: str
) -> None:
    """What is said and answered is ASCII: in payloads, in keys, and in the job that holds one."""
    _, mark = postgres_place.greeting()
    app = Tidewheel(postgres_place.app.url, max_topics=1000)
    with contextlib.closing(connect(postgres_place.where)) as connection:
        connection.cursor().execute(f"SET client_encoding TO '{encoding}'")
        jobs = [
            app.enqueue("greet", {"name": ODD}, key=f"{mark} {ODD}", correlation_id=mark, using=connection)
            for _ in range(2)
        ]
        connection.commit()
    assert [job.duplicate for job in jobs] == [False, True]
    assert jobs[1].payload == {"name": ODD}
    found = postgres_place.app.sync.get(jobs[0].id)
    assert (found.payload, found.key) == ({"name": ODD}, f"{mark} {ODD}")


@pytest.mark.parametrize("module", [pg8000, pg8000.dbapi], ids=["pg8000", "pg8000.dbapi"])
@pytest.mark.parametrize("style", ["format", "pyformat", "qmark", "numeric", "named"])
def test_pg8000_is_asked_in_the_style_its_user_chose(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch, module: Any, style: str
) -> None:
    """It is a setting of the module, and ours would be a syntax error in a transaction of theirs."""
    greet, mark = postgres_place.greeting()
    monkeypatch.setattr(module, "paramstyle", style)
    with contextlib.closing(pg8000_connection(postgres_place.where, module)) as connection:
        greet.using(connection).enqueue(name="Ada")
        connection.commit()
    assert postgres_place.jobs(mark) == 1


def test_an_asynchronous_connection_of_psycopg2_is_refused(postgres_place: Place) -> None:
    """It would take the statement and give no answer: an error for the caller, and a job all the same."""
    greet, mark = postgres_place.greeting()
    with contextlib.closing(psycopg2.connect(postgres_place.where, async_=1)) as connection:
        psycopg2.extras.wait_select(connection)
        with pytest.raises(TypeError, match="plain one"):
            greet.using(connection)
    assert postgres_place.jobs(mark) == 0


def test_a_key_is_waited_for_as_long_as_the_caller_has_said(postgres_place: Place) -> None:
    """By the connection's own ``lock_timeout``, which is then what it was; the error is the driver's."""
    greet, mark = postgres_place.greeting()
    keyed = greet.options(key=mark)
    with psycopg.connect(postgres_place.where) as first, psycopg.connect(postgres_place.where) as second:
        keyed.using(first).enqueue(name="Ada")
        second.execute("SET lock_timeout = '50ms'")
        second.commit()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            keyed.using(second).enqueue(name="Grace")
        second.rollback()
        first.rollback()
        assert not keyed.using(second).enqueue(name="Grace").duplicate
        assert second.execute("SHOW lock_timeout").fetchone() == ("50ms",)
    assert postgres_place.jobs(mark) == 1


def test_a_longer_wait_than_ours_is_waited(postgres_place: Place) -> None:
    """What is said of other verbs does not hold for the statement that a caller waits for."""
    with psycopg.connect(postgres_place.where) as connection:
        schema = postgres_place.app.url.partition("schema=")[2]
        connection.execute("SET lock_timeout = '1h'")
        # A trigger of ours sees what is in force in the middle of it.
        connection.execute(
            f"CREATE FUNCTION pg_temp.look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" PERFORM set_config('seen.timeout', current_setting('lock_timeout'), true); RETURN NEW; END $$;"
            f"CREATE TRIGGER look BEFORE INSERT ON {schema}.jobs FOR EACH ROW EXECUTE FUNCTION pg_temp.look()"
        )
        postgres_place.app.enqueue("greet", {"name": "Ada"}, using=connection)
        assert connection.execute("SELECT current_setting('seen.timeout')").fetchone() == ("1h",)
        connection.rollback()


def test_a_snapshot_that_is_too_old_for_a_key_is_the_drivers_error(postgres_place: Place) -> None:
    """Code that tries again after a serialization failure does so here as well."""
    greet, mark = postgres_place.greeting()
    keyed = greet.options(key=mark)
    with psycopg.connect(postgres_place.where) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1")
        holder = postgres_place.app.sync.enqueue("greet", {"name": "Ada"}, key=mark)
        with pytest.raises(psycopg.errors.SerializationFailure):
            keyed.using(connection).enqueue(name="Grace")
        connection.rollback()
        assert keyed.using(connection).enqueue(name="Grace").id == holder.id


async def test_behind_pgbouncer_in_transaction_mode_it_works(postgres_place: Place) -> None:
    """As asyncpg has to be set up there: without statements that are prepared for later."""
    greet, mark = postgres_place.greeting()
    url = shared_pgbouncer().url().partition("?")[0]
    connection = await asyncpg.connect(url, statement_cache_size=0)
    for number in range(10):
        transaction = connection.transaction()
        await transaction.start()
        await greet.using(connection).enqueue(name="Ada")
        await (transaction.rollback() if number % 2 else transaction.commit())
    await connection.close()
    assert postgres_place.jobs(mark) == 5


def test_more_than_one_text_holds_is_said_in_several(
    postgres_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL takes no text of more than a gigabyte. Order and transaction are the same."""
    monkeypatch.setattr(external_transaction, "MAX_TEXT_BYTES", 1000)
    greet, mark = postgres_place.greeting()
    names = [str(number) * 400 for number in range(7)]
    with psycopg.connect(postgres_place.where) as connection:
        jobs = greet.using(connection).enqueue_many([{"name": name} for name in names])
        assert postgres_place.jobs(mark) == 0
    assert [postgres_place.app.sync.get(job.id).payload["name"] for job in jobs] == names
    numbers = [job.number for job in jobs]
    assert numbers == sorted(set(numbers))
