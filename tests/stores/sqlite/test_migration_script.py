"""``migrate`` as a script: the same tables, made by somebody else's hands."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tidewheel.admin.migration_scripts import missing_script, write_migration_script
from tidewheel.core.model import Completed, Settlement
from tidewheel.errors import ConfigurationError, SchemaTooNew
from tidewheel.stores.sqlite import SqliteStore, schema
from tidewheel.testing.conformance.helpers import claim_one, enqueue_one

NEXT = (2, "0002_next", "CREATE TABLE tidewheel_next (a INTEGER) STRICT;\n")


def catalogue(connection: sqlite3.Connection) -> list[Any]:
    return (
        connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
        ).fetchall()
        + connection.execute("SELECT version, name FROM tidewheel_schema").fetchall()
    )


async def test_the_printed_sql_makes_what_migrate_makes(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    """Run as the sqlite3 program would: the same catalogue, nothing to migrate, a queue that works."""
    by_hand = tmp_path / "by hand.db"
    url = f"sqlite:///{by_hand}"
    with closing(sqlite3.connect(by_hand)) as connection, closing(sqlite3.connect(path)) as other:
        connection.executescript(write_migration_script(url, since=0).text)
        assert catalogue(connection) == catalogue(other)
        [at], [expected] = (
            one.execute("SELECT applied_at FROM tidewheel_schema").fetchone() for one in (connection, other)
        )
        assert abs(at - expected) < 60_000_000
    assert (await missing_script(url)).steps == ()
    made = SqliteStore(url)
    await made.open()
    assert await made.migrate() == []
    job_id = await enqueue_one(made)
    claimed = await claim_one(made)
    assert claimed.lease.job_id == job_id
    assert await made.settle([Settlement(claimed.lease, Completed(b"1"))])
    assert await made.check() == []
    await made.close()


def test_statement_by_statement_it_is_the_same_and_can_be_undone(path: Path, tmp_path: Path) -> None:
    """For tools with a transaction of their own; a table of the application's is left alone."""
    script = write_migration_script("sqlite:///any.db", since=0)
    assert script.undo is not None
    with (
        closing(sqlite3.connect(path)) as connection,
        closing(sqlite3.connect(tmp_path / "other.db")) as other,
    ):
        other.executescript(script.text)
        for statement in script.statements:
            connection.execute(statement)
        assert catalogue(connection) == catalogue(other)
        connection.execute("CREATE TABLE mine (a)")
        for statement in script.undo:
            connection.execute(statement)
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("mine",)]


async def test_only_what_is_missing_and_only_where_it_is(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later step comes alone, and refuses a file that is at another version."""
    steps = [*schema.load_migrations(), NEXT]
    for module in (schema, schema):
        monkeypatch.setattr(module, "load_migrations", lambda: steps)
    script = await missing_script(f"sqlite:///{path}")
    assert (script.from_version, script.to_version, script.steps, script.undo) == (1, 2, ("0002_next",), None)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script.text)
        assert await store.migrate() == []
        with pytest.raises(sqlite3.IntegrityError, match="this is for version 1 of the Tidewheel tables"):
            connection.executescript(script.text)


async def test_looking_makes_and_changes_nothing(path: Path) -> None:
    """No file, and no other journal for an application's own."""
    url = f"sqlite:///{path}"
    assert (await missing_script(url)).from_version == 0
    assert not path.exists()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (a)")
    assert (await missing_script(url)).from_version == 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


async def test_a_newer_file_and_what_sqlite_has_not_are_refused(store: SqliteStore, path: Path) -> None:
    """With the reason; nothing is printed."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO tidewheel_schema VALUES (99, 'from the future', 0)")
    with pytest.raises(SchemaTooNew, match="99"):
        await missing_script(f"sqlite:///{path}")
    with pytest.raises(ConfigurationError, match="needs a postgresql:// URL"):
        write_migration_script("sqlite:///any.db", since=0, rls=True)
    with pytest.raises(ConfigurationError, match="without a schema"):
        write_migration_script("memory://", since=0)
