"""The schema: made once, by whoever comes first, never half, never backwards."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tidewheel import Tidewheel
from tidewheel.core.ids import new_id
from tidewheel.core.model import NewJob
from tidewheel.errors import SchemaTooNew, StoreError
from tidewheel.stores.sqlite import SqliteStore, schema
from tidewheel.stores.sqlite.connection import begin_immediate, connect
from tidewheel.stores.sqlite.location import Location


async def test_every_table_is_named_for_tidewheel(store: SqliteStore, path: Path) -> None:
    """The queue lives in the application's own file and must not meet its tables."""
    connection = sqlite3.connect(path)
    names = connection.execute("SELECT tbl_name FROM sqlite_master").fetchall()
    connection.close()
    assert len(names) > 10
    assert all(name.startswith("tidewheel_") for (name,) in names)


async def test_a_new_kind_of_job_changes_no_table(path: Path) -> None:
    """Whatever tasks come later, with whatever payloads: they are rows of the tables that are there."""
    app = Tidewheel(f"sqlite:///{path}")
    async with app:
        with closing(sqlite3.connect(path)) as connection:
            before = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()

            @app.task
            async def first(n: int) -> int:
                return n

            @app.task(topic="elsewhere")
            async def second(words: list[str], flag: bool = True) -> dict[str, bool]:
                return dict.fromkeys(words, flag)

            one, other = await first.enqueue(n=1), await second.enqueue(words=["a"])
            await app.run_until_idle()
            assert (await one.result(0), await other.result(0)) == (1, {"a": True})
            after = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
            assert after == before
            kinds = "SELECT task FROM tidewheel_jobs ORDER BY number"
            assert connection.execute(kinds).fetchall() == [("first",), ("second",)]


async def test_many_who_migrate_at_once_do_it_once(path: Path) -> None:
    """A deployment starts all its processes together."""
    stores = [SqliteStore(f"sqlite:///{path}") for _ in range(8)]
    done = await asyncio.gather(*(_open(store) for store in stores))
    assert sorted(done) == [[]] * 7 + [["0001_tables"]]
    for store in stores:
        await store.close()


def test_many_open_a_new_file_at_once(path: Path) -> None:
    """Turning on the write-ahead log needs the file for a moment, and SQLite does not wait for it there."""
    for number in range(100):
        location = Location(f"{path}-{number}")
        together = threading.Barrier(8)

        def make(location: Location = location, together: threading.Barrier = together) -> None:
            together.wait()
            connect(location).close()

        with ThreadPoolExecutor(8) as pool:
            for opened in [pool.submit(make) for _ in range(8)]:
                opened.result()


async def _open(store: SqliteStore) -> list[str]:
    await store.open()
    return await store.migrate()


async def test_a_newer_schema_is_refused(store: SqliteStore, path: Path) -> None:
    """An old program must not write into tables it does not understand."""
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO tidewheel_schema VALUES (99, 'from the future', 0)")
    connection.commit()
    connection.close()
    with pytest.raises(SchemaTooNew, match=r"version 99, this Tidewheel knows 1; upgrade"):
        await store.migrate()
    with pytest.raises(SchemaTooNew, match="version 99"):
        await store.pending_migrations()


def test_a_schema_that_became_newer_while_we_waited_is_refused_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions of a program start on a new file, and the newer one gets the lock first."""
    location = Location(str(path))

    def be_late(connection: sqlite3.Connection, location: Location) -> None:
        with closing(sqlite3.connect(path)) as other, other:
            other.execute(schema.VERSION_TABLE)
            other.execute("INSERT INTO tidewheel_schema VALUES (99, 'from the future', 0)")
        begin_immediate(connection, location)

    monkeypatch.setattr(schema, "begin_immediate", be_late)
    with closing(connect(location)) as connection:
        with pytest.raises(SchemaTooNew, match="99"):
            schema.migrate(connection, location, 0)
        assert not connection.in_transaction


async def test_a_migration_that_breaks_leaves_the_old_schema(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps are one transaction."""
    broken = [
        *schema.load_migrations(),
        (2, "0002_broken", "CREATE TABLE tidewheel_x (a);\nSELECT nonsense;"),
    ]
    monkeypatch.setattr(schema, "load_migrations", lambda: broken)
    with pytest.raises(StoreError, match="nonsense"):
        await store.migrate()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT max(version) FROM tidewheel_schema").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'tidewheel_x'").fetchone() == (
        0,
    )
    connection.close()


async def test_what_a_migration_would_do_can_be_asked_first(path: Path) -> None:
    """Asking makes no table."""
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    assert await store.pending_migrations() == await store.pending_migrations() == ["0001_tables"]
    assert await store.migrate() == ["0001_tables"]
    assert await store.pending_migrations() == []
    await store.close()


async def test_a_store_without_tables_says_what_to_do(path: Path) -> None:
    """Not a bare "no such table"."""
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    with pytest.raises(StoreError, match="tidewheel migrate"):
        await store.enqueue([NewJob(id=new_id(), topic="mail")])
    await store.close()
