"""Bringing the schema up to date, one numbered file after another, under the write lock."""

from __future__ import annotations

import functools
import sqlite3
from importlib.resources import files
from typing import Final

from tidewheel.errors import SchemaTooNew
from tidewheel.stores.sqlite.connection import UNREADABLE, begin_immediate, translate
from tidewheel.stores.sqlite.location import Location

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
            for file in files("tidewheel.stores.sqlite.migrations").iterdir()
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
