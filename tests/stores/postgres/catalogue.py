"""Everything in a schema, as the server's catalogues have it."""

from __future__ import annotations

from typing import Any, Final

NEXT_STEP: Final = (
    2,
    "0002_next",
    "-- A table of tomorrow.\nCREATE TABLE notes (id uuid PRIMARY KEY, tenant text NOT NULL, note text);\n",
)
"""A step that a later version may bring, for tests of upgrading."""

OBJECTS = [
    """
    SELECT relname, relkind::text, relpersistence::text, reloptions::text, relreplident::text
    FROM pg_class WHERE relnamespace = current_schema()::regnamespace ORDER BY 1, 2
    """,
    """
    SELECT c.relname, attnum, attname, format_type(atttypid, atttypmod), attnotnull, attstorage::text,
           attstattarget::text, pg_get_expr(adbin, adrelid)
    FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
    LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum)
    WHERE relnamespace = current_schema()::regnamespace AND attnum > 0 ORDER BY 1, 2
    """,
    """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2
    """,
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1",
    "SELECT viewname, definition FROM pg_views WHERE schemaname = current_schema() ORDER BY 1",
    """
    SELECT proname, pg_get_functiondef(oid) FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace ORDER BY 1, 2
    """,
    "SELECT sequencename, cache_size FROM pg_sequences WHERE schemaname = current_schema() ORDER BY 1",
    "SELECT typname FROM pg_type WHERE typnamespace = current_schema()::regnamespace ORDER BY 1",
    "SELECT version, name FROM schema_versions ORDER BY 1",
]
WALLS = [
    """
    SELECT relname, relkind::text, relowner::regrole::text, relrowsecurity, relforcerowsecurity, relacl::text
    FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'v', 'S')
    ORDER BY 1
    """,
    """
    SELECT oid::regprocedure::text, proowner::regrole::text, proacl::text FROM pg_proc
    WHERE pronamespace = current_schema()::regnamespace ORDER BY 1
    """,
    """
    SELECT polrelid::regclass::text, polname, polcmd::text, polpermissive, polroles::regrole[]::text,
           pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)
    FROM pg_policy JOIN pg_class c ON c.oid = polrelid
    WHERE relnamespace = current_schema()::regnamespace ORDER BY 1, 2
    """,
    """
    SELECT attrelid::regclass::text, attname, attacl::text
    FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
    WHERE relnamespace = current_schema()::regnamespace AND attacl IS NOT NULL ORDER BY 1, 2
    """,
]


async def walls(connection: Any) -> list[Any]:
    """Everything that keeps tenants apart."""
    return [[tuple(row) for row in await connection.fetch(statement)] for statement in WALLS]


async def catalogue(connection: Any) -> list[Any]:
    """Every object and who may do what, without the schema's name: two that are alike are equal."""
    schema = await connection.fetchval("SELECT current_schema()")
    rows = [[tuple(row) for row in await connection.fetch(statement)] for statement in OBJECTS]
    named = [str(row) for part in [*rows, *await walls(connection)] for row in part]
    assert len(named) > 100
    return [row.replace(schema, "SCHEMA") for row in named]
