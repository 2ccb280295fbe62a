"""What ``migrate`` does as a script, for those who run their DDL themselves."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Final

from tidewheel.__about__ import __version__
from tidewheel.errors import ConfigurationError
from tidewheel.stores.scripting import Script, check_since
from tidewheel.stores.sqlite.connection import UNREADABLE, translate
from tidewheel.stores.sqlite.location import Location, check_location, parse_url
from tidewheel.stores.sqlite.migrating import VERSION_TABLE, migrations, refuse_newer, schema_version, split

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
