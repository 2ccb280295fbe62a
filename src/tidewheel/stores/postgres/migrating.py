"""Bringing the schema up to date, one numbered file after another, under a lock."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Final

import asyncpg

from tidewheel.errors import SchemaTooNew, StoreError, StoreUnavailable
from tidewheel.stores.postgres.database import CONFLICT_TRIES, Database
from tidewheel.stores.postgres.errors import DRIVER_ERRORS, translate
from tidewheel.stores.postgres.securing import STEP, is_secured, secure

STEP_SECONDS: Final = 3600.0

VERSION_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS schema_versions (
    version    integer PRIMARY KEY,
    name       text    NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)"""


@functools.cache  # every store that is opened asks for them
def migrations() -> tuple[tuple[int, str, str], ...]:
    """Every step as (version, name, SQL), in order."""
    return tuple(
        sorted(
            (int(file.name[:4]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
            for file in files("tidewheel.stores.postgres.migrations").iterdir()
            if file.name.endswith(".sql")
        )
    )


async def missing_steps(database: Database) -> list[str]:
    """The names of the steps that ``migrate`` would take."""
    steps = migrations()
    async with database.connection() as connection:
        version = await schema_version(connection, database)
    refuse_newer(version, steps, database)
    return [name for number, name, _ in steps if number > version]


async def migrate(database: Database, *, rls: bool) -> list[str]:
    """Run what is missing, all in one transaction: a crash leaves the old schema or the new one.

    With ``rls``, row-level security is set up after it; where it was before, every step sets it up anew.
    """
    steps = migrations()
    newest = steps[-1][0]
    async with database.connection() as connection:
        # A look without the lock first: nearly always there is nothing to do, and many workers start at once.
        version = await schema_version(connection, database)
        refuse_newer(version, steps, database)
        if version == newest and not rls:
            return []
    tries = CONFLICT_TRIES
    while True:
        try:
            return await _run(database, steps, rls=rls)
        except StoreUnavailable as error:
            tries = database.tries_left(tries, error)  # workers that go on meanwhile lock tables, too


def refuse_newer(version: int, steps: Sequence[tuple[int, str, str]], database: Database) -> None:
    """An old program does not touch what it does not understand."""
    newest = steps[-1][0]
    if version > newest:
        raise SchemaTooNew(
            f"{database.where} has schema version {version}, this Tidewheel knows {newest}; upgrade Tidewheel"
        )


async def _run(database: Database, steps: Sequence[tuple[int, str, str]], *, rls: bool) -> list[str]:
    try:
        connection = await database.connect()
    except DRIVER_ERRORS as error:
        raise translate(error, database.where) from error
    try:
        async with connection.transaction():
            # A step over a large table may take longer than any other statement may.
            await connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s'")
            # By transaction, so that a pooler cannot leave the lock on somebody else's connection.
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('tidewheel.migrate.' || $1, 0))",
                database.schema,
                timeout=STEP_SECONDS,
            )
            # Not IF NOT EXISTS: that asks for the right to make schemas even when there is nothing to make.
            if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", database.schema):
                await connection.execute(f"CREATE SCHEMA {database.schema}")
            # pg_temp last: by default it comes first, and a pooler may hand us a session with somebody's
            # temporary table "jobs". The functions keep this path.
            await connection.execute(f"SET LOCAL search_path = {database.schema}, pg_temp")
            version = await schema_version(connection, database)
            refuse_newer(version, steps, database)  # somebody else may have migrated while we waited
            if version == 0:  # else it is there, and asking for it takes rights of its own
                await connection.execute(VERSION_TABLE)
            done = []
            for number, name, script in steps:
                if number > version:
                    await connection.execute(script, timeout=STEP_SECONDS)
                    await connection.execute(
                        "INSERT INTO schema_versions (version, name) VALUES ($1, $2)", number, name
                    )
                    done.append(name)
            if rls or (done and await is_secured(connection, database)):
                await secure(connection, database)
                done.append(STEP)
        await database.look_at_role(connection)
        return done
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreError(
            f"{database.where}: {error}; migrate as a role that owns the schema or may make it, or have one "
            "run what `tidewheel migrate --print` prints"
        ) from error
    except DRIVER_ERRORS as error:
        raise translate(error, database.where) from error
    finally:
        await connection.close()


async def schema_version(connection: Any, database: Database) -> int:
    """0 before the first migration."""
    table = f"{database.schema}.schema_versions"
    if await connection.fetchval("SELECT to_regclass($1)::text", table) is None:
        return 0
    return int(await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {table}"))  # noqa: S608
