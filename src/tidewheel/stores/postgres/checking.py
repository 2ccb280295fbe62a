"""The store's own integrity check: the rules the code relies on."""

from __future__ import annotations

from typing import Final

from tidewheel.errors import StoreError
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.securing import is_secured
from tidewheel.stores.queries import Queries

_sql = Queries("tidewheel.stores.postgres.sql", "check.sql")
_security = Queries("tidewheel.stores.postgres.sql", "security.sql")

MOST_PER_RULE: Final = 20
"""Once a rule is broken, more of the same says little."""
RULE_SECONDS: Final = 3600.0
"""A rule may look at every job there is, which takes longer than any other statement."""


async def check(database: Database) -> list[str]:
    """One line for each problem; nothing is repaired. In one snapshot, so workers may go on meanwhile."""
    if database.scoped:
        raise StoreError(
            f"{database.where} shows this role one tenant at a time, and a check is of all jobs; run it as a "
            "member of tidewheel_worker"
        )
    problems: list[str] = []
    async with database.transaction() as connection:
        await connection.execute(
            f"SET LOCAL statement_timeout = {int(RULE_SECONDS * 1000)}; SET LOCAL work_mem = '64MB'"
        )
        for name in _sql.names():
            rows = await connection.fetch(
                f"{database.qualify(_sql[name])} LIMIT {MOST_PER_RULE}", timeout=RULE_SECONDS
            )
            problems.extend(row[0] for row in rows)
        if await is_secured(connection, database):
            for name in _security.names():
                rows = await connection.fetch(
                    f"{_security[name]} LIMIT {MOST_PER_RULE}", database.location.schema
                )
                problems.extend(row[0] for row in rows)
    return problems
