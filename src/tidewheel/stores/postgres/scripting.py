"""What ``migrate`` does as a script, for those who run their DDL themselves."""

from __future__ import annotations

from typing import Final

from tidewheel.__about__ import __version__
from tidewheel.clock import SystemClock
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.location import parse_url
from tidewheel.stores.postgres.migrating import VERSION_TABLE, migrations, refuse_newer, schema_version
from tidewheel.stores.postgres.securing import STEP, is_secured, refuse_public, security_script
from tidewheel.stores.postgres.splitting import split
from tidewheel.stores.scripting import Script, check_since

_HEAD: Final = """\
-- Tidewheel {release}: the schema {schema} on PostgreSQL, {way}.
-- One transaction: if anything fails, nothing has happened. To run it:  psql -v ON_ERROR_STOP=1 -f THIS_FILE
"""
# A tool that runs this in a transaction of its own goes on in it: what is set here is set back at the end.
_BEGINNING: Final = """\
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
_STEP: Final = """
-- {name} {rule}

{script}
INSERT INTO schema_versions (version, name) VALUES ({number}, '{name}');
"""
_END: Final = """
DO $tidewheel$
BEGIN
    PERFORM set_config(name, current_setting('tidewheel.' || name), true)
    FROM unnest(ARRAY['search_path', 'statement_timeout', 'lock_timeout']) AS name;
END
$tidewheel$;
"""
_WIDTH: Final = 100


async def look_at_schema(url: str) -> tuple[int, bool]:
    """The version of the schema, 0 if there is none, and whether it has row-level security."""
    database = Database(parse_url(url), SystemClock())
    await database.open()
    try:
        async with database.connection() as connection:
            version = await schema_version(connection, database)
            refuse_newer(version, migrations(), database)
            return version, await is_secured(connection, database)
    finally:
        await database.close()


def write_script(url: str, *, since: int, rls: bool) -> Script:
    """From this version to the newest. Nothing is looked at; of the URL only the schema matters."""
    name = parse_url(url).schema
    schema = f'"{name}"'
    place = f"PostgreSQL, schema {name}"
    newest = migrations()[-1][0]
    check_since(since, newest)
    missing = [step for step in migrations() if step[0] > since]
    body = "" if since else f"\n{VERSION_TABLE};\n"
    for number, step, script in missing:
        body += _STEP.format(name=step, rule="-" * (_WIDTH - len(step)), script=script.strip(), number=number)
    if rls:
        refuse_public(name)
        body += f"\n-- {STEP} {'-' * (_WIDTH - len(STEP))}\n\n{security_script().strip()}\n"
    steps = [step for _, step, _ in missing] + [STEP] * rls
    if not steps:
        text = (
            f"-- The schema {schema} has version {newest}, the newest that Tidewheel {__version__} knows.\n"
        )
        return Script("postgresql", place, since, newest, (), text, (), None)
    beginning = _BEGINNING.format(schema=schema, since=since)
    whole = beginning + body + _END
    way = f"from version {since} to {newest}" if since else f"version {newest}, new"
    return Script(
        dialect="postgresql",
        place=place,
        since=since,
        version=newest,
        steps=tuple(steps),
        text=_HEAD.format(release=__version__, schema=schema, way=way) + f"BEGIN;\n\n{whole}\nCOMMIT;\n",
        statements=tuple(split(whole)),
        # Others have tables in public, and steps do not say how to be undone.
        undo=None if since or name == "public" else (f"DROP SCHEMA IF EXISTS {schema} CASCADE",),
    )
