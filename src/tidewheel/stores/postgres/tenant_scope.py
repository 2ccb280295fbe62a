"""One tenant's statements under row-level security: a transaction in which ``app.tenant_id`` says whose.

Set for the transaction only, so neither our own pool nor a pooler in between can carry a tenant over to the
next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from tidewheel.core.names import MAX_NAME_LENGTH, check_text
from tidewheel.errors import InvalidInput, StoreError
from tidewheel.stores.postgres.errors import DRIVER_ERRORS

SETTING: Final = "app.tenant_id"
"""What policies ask for; also those of people's own tables."""

SNAPSHOT: Final = "ISOLATION LEVEL REPEATABLE READ, READ ONLY"

INSPECT_ROLE: Final = """
SELECT coalesce(bool_or(c.relrowsecurity), false),
       coalesce(bool_or(row_security_active(c.oid) AND NOT EXISTS (
           SELECT FROM pg_policy p, unnest(p.polroles) AS r(oid)
           WHERE p.polrelid = c.oid AND p.polpermissive AND pg_get_expr(p.polqual, p.polrelid) = 'true'
               AND (r.oid = 0 OR pg_has_role(r.oid, 'USAGE'))
       )), false)
FROM pg_class c WHERE c.oid = to_regclass($1)
"""
"""Whether the table has row-level security, and whether that holds this role: no policy shows it all."""


def set_tenant_statement(tenant: str | None) -> str:
    """The statement that says whose rows are meant. Nobody's, if nobody is named."""
    return f"SET LOCAL {SETTING} = {_quote_literal(tenant or '')}"


@asynccontextmanager
async def tenant_transaction(connection: Any, tenant: str | None, mode: str = "") -> AsyncIterator[None]:
    """A transaction for this tenant. Begun and scoped by one message, because each costs a round trip."""
    beginning = f"BEGIN {mode}; {set_tenant_statement(tenant)}"
    try:
        await connection.execute(beginning)
        yield
        await connection.execute("COMMIT")
    except asyncpg.PostgresError:
        try:
            await connection.execute("ROLLBACK")
        except DRIVER_ERRORS:
            connection.terminate()  # the server rolls back by itself, and the first error is the one to tell
        raise
    except BaseException:
        # Cancelled, out of time or out of step: nobody knows where the transaction stands.
        connection.terminate()
        raise


def _quote_literal(text: str) -> str:
    """A literal that means the same whatever ``standard_conforming_strings`` says."""
    if text:
        try:
            check_text("tenant", text, MAX_NAME_LENGTH)  # a NUL would end the message early
        except InvalidInput as error:
            raise StoreError(str(error)) from error
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
