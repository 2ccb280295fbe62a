"""Migrate the schema: numbered SQL files, applied in order under the write lock.

``write_script`` returns the same steps as a script, for teams that run their DDL themselves.
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
from tidewheel.stores.schema import Script, check_since
from tidewheel.stores.sqlite.connection import UNREADABLE, begin_immediate, translate
from tidewheel.stores.sqlite.location import Location, check_location, parse_url

VERSION_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS tidewheel_schema (
    version    INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT"""


@functools.cache  # every store that is opened asks for them
def migrations() -> tuple[tuple[int, str, str], ...]:
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


def missing_steps(connection: sqlite3.Connection, location: Location) -> list[str]:
    """The names of the steps that ``migrate`` would take."""
    version = schema_version(connection)
    refuse_newer(version, location)
    return [name for number, name, _ in migrations() if number > version]


def migrate(connection: sqlite3.Connection, location: Location, now: int) -> list[str]:
    """Run what is missing, all in one transaction: a crash leaves the old schema or the new one."""
    steps = migrations()
    newest = steps[-1][0]
    # A look without the lock first: nearly always there is nothing to do, and many workers start at once.
    try:
        version = schema_version(connection)
    except (sqlite3.Error, *UNREADABLE) as error:
        raise translate(error, location) from error
    done: list[str] = []
    if version < newest:
        begin_immediate(connection, location)
        try:
            version = schema_version(connection)
            done = [_apply(connection, step, now) for step in steps if step[0] > version]
            connection.execute("COMMIT")
        except (sqlite3.Error, *UNREADABLE) as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise translate(error, location) from error
    refuse_newer(version, location)  # somebody else may have migrated while we waited for the lock
    return done


def refuse_newer(version: int, location: Location) -> None:
    """An old program does not touch what it does not understand."""
    newest = migrations()[-1][0]
    if version > newest:
        raise SchemaTooNew(
            f"{location.path} has schema version {version}, this Tidewheel knows {newest}; upgrade Tidewheel"
        )


def _apply(connection: sqlite3.Connection, step: tuple[int, str, str], now: int) -> str:
    version, name, script = step
    connection.execute(VERSION_TABLE)
    # Not executescript: that commits first, and a crash between two statements would leave half a schema.
    for statement in split(script):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO tidewheel_schema (version, name, applied_at) VALUES (?, ?, ?)", (version, name, now)
    )
    return name


def split(script: str) -> list[str]:
    """The statements of a script. ``complete_statement`` knows about semicolons in comments and strings."""
    statements, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            statements.append(current.strip())
            current = ""
    return statements


_HEAD: Final = """\
-- Tidewheel {release}: its tables in SQLite, {way}.
-- One transaction; -bail ends it at the first error, with nothing done:  sqlite3 -bail FILE < THIS_FILE
"""
# SQLite has no other way to refuse. The name of the constraint is the message.
_CHECK: Final = """\
CREATE TEMP TABLE tidewheel_check (
    fits CONSTRAINT "this is for version {since} of the Tidewheel tables" CHECK (fits)
);
INSERT INTO tidewheel_check SELECT max(version) = {since} FROM tidewheel_schema;
DROP TABLE temp.tidewheel_check;
"""
# Microseconds since 1970, as the store's clock has them.
_STEP: Final = """
-- {name}

{script}
INSERT INTO tidewheel_schema (version, name, applied_at)
VALUES ({number}, '{name}', CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000);
"""
_TABLE: Final = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(tidewheel_\w+)", re.MULTILINE)


async def look_at_schema(url: str) -> int:
    """The version of the tables, 0 if there are none. Nothing is made, not even the file."""
    location = parse_url(url)
    check_location(location)
    version = await asyncio.to_thread(_version, location)
    refuse_newer(version, location)
    return version


def _version(location: Location) -> int:
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
    except (sqlite3.Error, *UNREADABLE) as error:
        raise translate(error, location) from error


def write_script(*, since: int, rls: bool) -> Script:
    """From this version to the newest."""
    if rls:
        raise ConfigurationError("SQLite has no roles; row-level security needs a postgresql:// URL")
    newest = migrations()[-1][0]
    check_since(since, newest)
    missing = [step for step in migrations() if step[0] > since]
    if not missing:
        text = f"-- The tables have version {newest}, the newest that Tidewheel {__version__} knows.\n"
        return Script("sqlite", "SQLite", since, newest, (), text, (), None)
    whole = _CHECK.format(since=since) if since else f"{VERSION_TABLE};\n"
    for number, name, script in missing:
        whole += _STEP.format(name=name, script=script.strip(), number=number)
    way = f"from version {since} to {newest}" if since else f"version {newest}, new"
    return Script(
        dialect="sqlite",
        place="SQLite",
        since=since,
        version=newest,
        steps=tuple(name for _, name, _ in missing),
        text=_HEAD.format(release=__version__, way=way) + f"BEGIN IMMEDIATE;\n\n{whole}\nCOMMIT;\n",
        statements=tuple(statement.removesuffix(";") for statement in split(whole)),
        # Indexes and triggers go with their tables. Steps do not say how to be undone.
        undo=None if since else tuple(f"DROP TABLE {name}" for name in reversed(_TABLE.findall(whole))),
    )
