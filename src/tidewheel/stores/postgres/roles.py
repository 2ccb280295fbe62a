"""Set up roles, rights and row-level security policies.

``enable_row_level_security`` runs ``row_level_security.sql`` inside a migration. ``write_grants`` writes the
statements of ``grants.sql``, which give a role the rights to enqueue in its own transactions.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

import asyncpg

from tidewheel.errors import ConfigurationError
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.location import parse_url
from tidewheel.stores.sql_files import SqlFile

SECURITY_STEP: Final = "rls"
"""What ``migrate`` calls it among its steps."""
SCRIPT_SECONDS: Final = 3600.0

_IS_SECURED: Final = """
SELECT n.nspowner = to_regrole('tidewheel_owner') OR EXISTS (
    SELECT FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
    WHERE c.relnamespace = n.oid AND p.polname IN ('tidewheel_worker', 'tidewheel_api')
)
FROM pg_namespace n WHERE n.nspname = $1
"""


async def has_row_level_security(connection: Any, database: Database) -> bool:
    """Whether the schema was given row-level security, whatever became of it since."""
    return bool(await connection.fetchval(_IS_SECURED, database.location.schema))


async def enable_row_level_security(connection: Any, database: Database) -> None:
    """Run the script, inside the transaction of a migration."""
    check_not_public_schema(database.location.schema)
    role = await connection.fetchval("SELECT quote_ident(current_user)")
    try:
        # A transaction of its own inside the other, only for the sake of the question below.
        async with connection.transaction():
            await connection.execute(security_script(), timeout=SCRIPT_SECONDS)
    except asyncpg.InsufficientPrivilegeError as error:
        name = await connection.fetchval("SELECT quote_ident(current_database())")
        raise ConfigurationError(
            f"the role {role} may not set up row-level security on {database.description}: {error}; "
            "a superuser may, or make it possible:\n"
            + "".join(f"    {line}\n" for line in role_preparation_statements(role, database.schema, name))
            + "then run `tidewheel migrate --rls` again"
        ) from error


def security_script() -> str:
    """The script itself, for a transaction whose search_path is the schema."""
    return files("tidewheel.stores.postgres").joinpath("row_level_security.sql").read_text("utf-8")


def check_not_public_schema(schema: str) -> None:
    """It takes a whole schema over."""
    if schema == "public":
        raise ConfigurationError(
            "the schema is public, where others have tables; row-level security is for a whole schema: put "
            "?schema=tidewheel or another name of its own into the URL"
        )


def role_preparation_statements(role: str, schema: str, database: str) -> list[str]:
    """What an administrator runs once, so that ``role`` can do the rest. All names are quoted already."""
    return [
        "CREATE ROLE tidewheel_owner NOLOGIN;",
        "CREATE ROLE tidewheel_worker NOLOGIN;",
        "CREATE ROLE tidewheel_api NOLOGIN;",
        f"GRANT tidewheel_owner, tidewheel_worker TO {role};",
        f"GRANT CREATE ON DATABASE {database} TO {role};",
        f"ALTER SCHEMA {schema} OWNER TO {role};  -- if it is another's",
    ]


_grants = SqlFile("tidewheel.stores.postgres", "grants.sql")
_REPLACING: Final = """

-- For on_duplicate="replace", which changes jobs that wait. Whoever does not use it does not need these two.
"""
_AWAITING: Final = """

-- For after=[…], jobs that run after others. Whoever does not use it does not need these.
"""
MAX_ROLE_NAME_BYTES: Final = 63
"""Of a name in PostgreSQL; it cuts longer ones off, and the rights would be somebody else's."""


def write_grants(url: str, role: str, *, rls: bool) -> str:
    """The statements as a text. ``rls``: where there is row-level security."""
    if not 1 <= len(role.encode()) <= MAX_ROLE_NAME_BYTES or "\x00" in role:
        raise ConfigurationError(
            f"the role is {role!r}; its name has 1 to {MAX_ROLE_NAME_BYTES} bytes and no NUL"
        )
    if role == "public":
        raise ConfigurationError("the role is 'public', which is everybody; name the role that enqueues")
    quoted = '"' + role.replace('"', '""') + '"'
    statements = _grants["members"] if rls else _grants["callers"]
    if not rls:
        statements += _REPLACING + _grants["replacing"] + _AWAITING + _grants["awaiting"]
    return statements.replace("{schema}", f'"{parse_url(url).schema}"').replace("{role}", quoted) + "\n"
