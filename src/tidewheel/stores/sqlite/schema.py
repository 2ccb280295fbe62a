"""Migrate the schema: numbered SQL files, applied in order under the write lock.

``write_migration_script`` returns the same steps as a script, for teams that run their DDL themselves.
"""

from __future__ import annotations

import asyncio
import functools
import re
import sqlite3
from importlib.resources import files
from pathlib import Path
from typing import Final

from tidewheel.__about__ import __version__
from tidewheel.errors import ConfigurationError, SchemaTooNew
from tidewheel.stores.schema import MigrationScript, check_version
from tidewheel.stores.sqlite.connection import DECODE_ERRORS, begin_immediate, translate_error
from tidewheel.stores.sqlite.location import Location, check_location, parse_url

VERSION_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS tidewheel_schema (
    version    INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT"""


@functools.cache  # every store that is opened asks for them
def load_migrations() -> tuple[tuple[int, str, str], ...]:
    """Every step as (version, name, SQL), in order."""
    return tuple(
        sorted(
            (int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
            for file in (files("tidewheel.stores.sqlite") / "migrations").iterdir()
            if file.name.endswith(".sql")
        )
    )


def schema_version(connection: sqlite3.Connection) -> int:
    """0 before the first migration."""
    exists = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tidewheel_schema'").fetchone()
    if exists is None:
        return 0
    return int(connection.execute("SELECT coalesce(max(version), 0) FROM tidewheel_schema").fetchone()[0])


def pending_migrations(connection: sqlite3.Connection, location: Location) -> list[str]:
    """The names of the steps that ``migrate`` would take."""
    version = schema_version(connection)
    check_not_newer(version, location)
    return [name for number, name, _ in load_migrations() if number > version]


def migrate(connection: sqlite3.Connection, location: Location, now: int) -> list[str]:
    """Run what is missing, all in one transaction: a crash leaves the old schema or the new one."""
    steps = load_migrations()
    newest = steps[-1][0]
    # A look without the lock first: nearly always there is nothing to do, and many workers start at once.
    try:
        version = schema_version(connection)
    except (sqlite3.Error, *DECODE_ERRORS) as error:
        raise translate_error(error, location) from error
    done: list[str] = []
    if version < newest:
        begin_immediate(connection, location)
        try:
            version = schema_version(connection)
            done = [_apply_migration(connection, step, now) for step in steps if step[0] > version]
            connection.execute("COMMIT")
        except (sqlite3.Error, *DECODE_ERRORS) as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise translate_error(error, location) from error
    check_not_newer(version, location)  # somebody else may have migrated while we waited for the lock
    return done


def check_not_newer(version: int, location: Location) -> None:
    """An old program does not touch what it does not understand."""
    newest = load_migrations()[-1][0]
    if version > newest:
        raise SchemaTooNew(
            f"{location.path} has schema version {version}, this Tidewheel knows {newest}; upgrade Tidewheel"
        )


def _apply_migration(connection: sqlite3.Connection, step: tuple[int, str, str], now: int) -> str:
    version, name, script = step
    connection.execute(VERSION_TABLE)
    # Not executescript: that commits first, and a crash between two statements would leave half a schema.
    for statement in split_statements(script):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO tidewheel_schema (version, name, applied_at) VALUES (?, ?, ?)", (version, name, now)
    )
    return name


def split_statements(script: str) -> list[str]:
    """The statements of a script. ``complete_statement`` knows about semicolons in comments and strings."""
    statements, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current.strip())
            current = ""
    return statements


_SCRIPT_HEADER: Final = """\
-- Tidewheel {release}: its tables in SQLite, {way}.
-- One transaction; -bail ends it at the first error, with nothing done:  sqlite3 -bail FILE < THIS_FILE
"""
# SQLite has no other way to refuse. The name of the constraint is the message.
_SCRIPT_CHECK: Final = """\
CREATE TEMP TABLE tidewheel_check (
    fits CONSTRAINT "this is for version {since} of the Tidewheel tables" CHECK (fits)
);
INSERT INTO tidewheel_check SELECT max(version) = {since} FROM tidewheel_schema;
DROP TABLE temp.tidewheel_check;
"""
# Microseconds since 1970, as the store's clock has them.
_SCRIPT_STEP: Final = """
-- {name}

{script}
INSERT INTO tidewheel_schema (version, name, applied_at)
VALUES ({number}, '{name}', CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000);
"""
_CREATE_TABLE: Final = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(tidewheel_\w+)", re.MULTILINE)


async def read_schema_version(url: str) -> int:
    """The version of the tables, 0 if there are none. Nothing is made, not even the file."""
    location = parse_url(url)
    check_location(location)
    version = await asyncio.to_thread(_installed_version, location)
    check_not_newer(version, location)
    return version


def _installed_version(location: Location) -> int:
    if not Path(location.path).exists():
        return 0
    try:
        connection = sqlite3.connect(
            f"{Path(location.path).as_uri()}?mode=ro", uri=True, timeout=location.busy_seconds
        )
        try:
            return schema_version(connection)
        finally:
            connection.close()
    except (sqlite3.Error, *DECODE_ERRORS) as error:
        raise translate_error(error, location) from error


def write_migration_script(*, since: int, rls: bool) -> MigrationScript:
    """From this version to the newest."""
    if rls:
        raise ConfigurationError("SQLite has no roles; row-level security needs a postgresql:// URL")
    newest = load_migrations()[-1][0]
    check_version(since, newest)
    missing = [step for step in load_migrations() if step[0] > since]
    if not missing:
        text = f"-- The tables have version {newest}, the newest that Tidewheel {__version__} knows.\n"
        return MigrationScript("sqlite", "SQLite", since, newest, (), text, (), None)
    whole = _SCRIPT_CHECK.format(since=since) if since else f"{VERSION_TABLE};\n"
    for number, name, script in missing:
        whole += _SCRIPT_STEP.format(name=name, script=script.strip(), number=number)
    way = f"from version {since} to {newest}" if since else f"version {newest}, new"
    return MigrationScript(
        dialect="sqlite",
        target="SQLite",
        from_version=since,
        to_version=newest,
        steps=tuple(name for _, name, _ in missing),
        text=_SCRIPT_HEADER.format(release=__version__, way=way) + f"BEGIN IMMEDIATE;\n\n{whole}\nCOMMIT;\n",
        statements=tuple(statement.removesuffix(";") for statement in split_statements(whole)),
        # Indexes and triggers go with their tables. Steps do not say how to be undone.
        undo=None
        if since
        else tuple(f"DROP TABLE {name}" for name in reversed(_CREATE_TABLE.findall(whole))),
    )
