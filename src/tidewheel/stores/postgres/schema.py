"""Migrate the schema: numbered steps of SQL, applied in order under a lock.

A step is a file ``load_migrations/NNNN_name.sql``, or a directory ``load_migrations/NNNN_name`` whose files
run in the order of their names. ``migrate`` applies the missing steps in one transaction, so a crash leaves
the old schema or the new one. ``write_migration_script`` returns the same steps as a script, for teams that
run their DDL themselves.
``split_statements`` cuts it into single statements, because some drivers accept only one at a time.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from operator import attrgetter
from typing import Any, Final

import asyncpg

from tidewheel.__about__ import __version__
from tidewheel.core.clock import SystemClock
from tidewheel.errors import SchemaTooNew, StoreError, StoreUnavailable
from tidewheel.stores.postgres.database import MAX_CONFLICT_RETRIES, Database
from tidewheel.stores.postgres.errors import DRIVER_ERRORS, translate_error
from tidewheel.stores.postgres.location import parse_url
from tidewheel.stores.postgres.roles import (
    SECURITY_STEP,
    check_not_public_schema,
    enable_row_level_security,
    has_row_level_security,
    security_script,
)
from tidewheel.stores.schema import MigrationScript, check_version

STEP_SECONDS: Final = 3600.0

VERSION_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS schema_versions (
    version    integer PRIMARY KEY,
    name       text    NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)"""


@functools.cache  # every store that is opened asks for them
def load_migrations() -> tuple[tuple[int, str, str], ...]:
    """Every step as (version, name, SQL), in order."""
    return read_steps(files("tidewheel.stores.postgres") / "migrations")


def read_steps(directory: Traversable) -> tuple[tuple[int, str, str], ...]:
    """The steps in a directory; two of one number are a mistake of ours."""
    steps = sorted(
        (int(entry.name[:4]), entry.name.removesuffix(".sql"), _script(entry))
        for entry in directory.iterdir()
        if entry.name[:4].isdigit()
    )
    numbers = [number for number, _, _ in steps]
    if numbers != list(range(1, len(steps) + 1)):
        raise ValueError(f"the migrations are numbered {numbers}; they have to be 1, 2, 3 and so on")
    return tuple(steps)


def _script(entry: Traversable) -> str:
    """The SQL of one step."""
    if entry.is_file():
        return entry.read_text("utf-8")
    parts = sorted((part for part in entry.iterdir() if part.name.endswith(".sql")), key=attrgetter("name"))
    return "\n".join(part.read_text("utf-8") for part in parts)


async def pending_migrations(database: Database) -> list[str]:
    """The names of the steps that ``migrate`` would take."""
    steps = load_migrations()
    async with database.connection() as connection:
        version = await schema_version(connection, database)
    check_not_newer(version, steps, database)
    return [name for number, name, _ in steps if number > version]


async def migrate(database: Database, *, rls: bool) -> list[str]:
    """Run what is missing, all in one transaction: a crash leaves the old schema or the new one.

    With ``rls``, row-level security is set up after it; where it was before, every step sets it up anew.
    """
    steps = load_migrations()
    newest = steps[-1][0]
    async with database.connection() as connection:
        # A look without the lock first: nearly always there is nothing to do, and many workers start at once.
        version = await schema_version(connection, database)
        check_not_newer(version, steps, database)
        if version == newest and not rls:
            return []
    tries = MAX_CONFLICT_RETRIES
    while True:
        try:
            return await _apply_migrations(database, steps, rls=rls)
        except StoreUnavailable as error:
            tries = database.can_retry(tries, error)  # workers that go on meanwhile lock tables, too


def check_not_newer(version: int, steps: Sequence[tuple[int, str, str]], database: Database) -> None:
    """An old program does not touch what it does not understand."""
    newest = steps[-1][0]
    if version > newest:
        raise SchemaTooNew(
            f"{database.description} has schema version {version}, this Tidewheel knows {newest}; upgrade "
            "Tidewheel"
        )


async def _apply_migrations(
    database: Database, steps: Sequence[tuple[int, str, str]], *, rls: bool
) -> list[str]:
    try:
        connection = await database.connect()
    except DRIVER_ERRORS as error:
        raise translate_error(error, database.description) from error
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
            check_not_newer(version, steps, database)  # somebody else may have migrated while we waited
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
            if rls or (done and await has_row_level_security(connection, database)):
                await enable_row_level_security(connection, database)
                done.append(SECURITY_STEP)
        await database.inspect_role(connection)
        return done
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreError(
            f"{database.description}: {error}; migrate as a role that owns the schema or may make it, or "
            "have one "
            "run what `tidewheel migrate --print` prints"
        ) from error
    except DRIVER_ERRORS as error:
        raise translate_error(error, database.description) from error
    finally:
        await connection.close()


async def schema_version(connection: Any, database: Database) -> int:
    """0 before the first migration."""
    table = f"{database.schema}.schema_versions"
    if await connection.fetchval("SELECT to_regclass($1)::text", table) is None:
        return 0
    return int(await connection.fetchval(f"SELECT coalesce(max(version), 0) FROM {table}"))  # noqa: S608


# What may hold a semicolon that ends nothing, and the one that does, with what else is on its line.
_TOKENS: Final = re.compile(
    r"""--[^\n]* | '(?:[^']|'')*' | "[^"]*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | (?P<end>;[ \t]*(?:--[^\n]*)?)""",
    re.DOTALL | re.VERBOSE,
)


def split_statements(script: str) -> list[str]:
    """Without their semicolons, each with the comments above it. Comments behind a semicolon are left out."""
    statements, start = [], 0
    for token in _TOKENS.finditer(script):
        if token["end"] is not None:
            statements.append(script[start : token.start()].strip())
            start = token.end()
    return statements


_SCRIPT_HEADER: Final = """\
-- Tidewheel {release}: the schema {schema} on PostgreSQL, {way}.
-- One transaction: if anything fails, nothing has happened. To run it:  psql -v ON_ERROR_STOP=1 -f THIS_FILE
"""
# A tool that runs this in a transaction of its own goes on in it: what is set here is set back at the end.
_SCRIPT_BEGIN: Final = """\
DO $tidewheel$
BEGIN
    PERFORM set_config('tidewheel.' || name, current_setting(name), true)
    FROM unnest(ARRAY['search_path', 'statement_timeout', 'lock_timeout']) AS name;
    PERFORM set_config('statement_timeout', '0', true), set_config('lock_timeout', '60s', true);
    -- Nobody else migrates meanwhile.
    PERFORM pg_advisory_xact_lock(hashtextextended('tidewheel.migrate.{schema}', 0));
    -- pg_temp last, or a temporary table could stand for one of these. The functions keep this path.
    PERFORM set_config('search_path', '{schema}, pg_temp', true);
END
$tidewheel$;

DO $tidewheel$
DECLARE
    v_version integer := 0;
BEGIN
    -- What was set for the transaction is not there any more where every statement is one.
    IF coalesce(current_setting('tidewheel.lock_timeout', true), '') = '' THEN
        RAISE EXCEPTION 'these statements have to be run in one transaction';
    END IF;
    IF to_regnamespace('{schema}') IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
    IF to_regclass('{schema}.schema_versions') IS NOT NULL THEN
        SELECT coalesce(max(version), 0) INTO v_version FROM schema_versions;
    END IF;
    IF v_version <> {since} THEN
        RAISE EXCEPTION 'this is for version {since} of the schema {schema}, which has version %', v_version
            USING HINT = 'tidewheel migrate --print writes what is missing there.';
    END IF;
END
$tidewheel$;
"""
_SCRIPT_STEP: Final = """
-- {name} {rule}

{script}
INSERT INTO schema_versions (version, name) VALUES ({number}, '{name}');
"""
_SCRIPT_END: Final = """
DO $tidewheel$
BEGIN
    PERFORM set_config(name, current_setting('tidewheel.' || name), true)
    FROM unnest(ARRAY['search_path', 'statement_timeout', 'lock_timeout']) AS name;
END
$tidewheel$;
"""
_WIDTH: Final = 100


async def read_schema_version(url: str) -> tuple[int, bool]:
    """The version of the schema, 0 if there is none, and whether it has row-level security."""
    database = Database(parse_url(url), SystemClock())
    await database.open()
    try:
        async with database.connection() as connection:
            version = await schema_version(connection, database)
            check_not_newer(version, load_migrations(), database)
            return version, await has_row_level_security(connection, database)
    finally:
        await database.close()


def write_migration_script(url: str, *, since: int, rls: bool) -> MigrationScript:
    """From this version to the newest. Nothing is looked at; of the URL only the schema matters."""
    name = parse_url(url).schema
    schema = f'"{name}"'
    place = f"PostgreSQL, schema {name}"
    newest = load_migrations()[-1][0]
    check_version(since, newest)
    missing = [step for step in load_migrations() if step[0] > since]
    body = "" if since else f"\n{VERSION_TABLE};\n"
    for number, step, script in missing:
        body += _SCRIPT_STEP.format(
            name=step, rule="-" * (_WIDTH - len(step)), script=script.strip(), number=number
        )
    if rls:
        check_not_public_schema(name)
        body += f"\n-- {SECURITY_STEP} {'-' * (_WIDTH - len(SECURITY_STEP))}\n\n{security_script().strip()}\n"
    steps = [step for _, step, _ in missing] + [SECURITY_STEP] * rls
    if not steps:
        text = (
            f"-- The schema {schema} has version {newest}, the newest that Tidewheel {__version__} knows.\n"
        )
        return MigrationScript("postgresql", place, since, newest, (), text, (), None)
    beginning = _SCRIPT_BEGIN.format(schema=schema, since=since)
    whole = beginning + body + _SCRIPT_END
    way = f"from version {since} to {newest}" if since else f"version {newest}, new"
    return MigrationScript(
        dialect="postgresql",
        target=place,
        from_version=since,
        to_version=newest,
        steps=tuple(steps),
        text=_SCRIPT_HEADER.format(release=__version__, schema=schema, way=way)
        + f"BEGIN;\n\n{whole}\nCOMMIT;\n",
        statements=tuple(split_statements(whole)),
        # Others have tables in public, and steps do not say how to be undone.
        undo=None if since or name == "public" else (f"DROP SCHEMA IF EXISTS {schema} CASCADE",),
    )
