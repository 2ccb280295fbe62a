"""How many jobs there are, from counters: what that costs does not depend on how many there are."""

from __future__ import annotations

from typing import Any, Final

from tidewheel.conditions import ALWAYS, NEVER, asked, for_state, of_counters
from tidewheel.model import JobFilter, State
from tidewheel.stores.compiling import to_sql
from tidewheel.stores.postgres.compiling import Words
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.queries import Queries

_sql = Queries("tidewheel.stores.postgres.sql", "read.sql")

_COLUMNS: Final = {
    State.PENDING: "j.waiting + j.ready",
    State.RUNNING: "j.running",
    State.COMPLETED: "j.completed",
    State.FAILED: "j.failed",
    State.CANCELLED: "j.cancelled",
}


async def counted(database: Database, connection: Any, where: JobFilter) -> int | None:
    """How many there are; None where no counters are kept of this."""
    if not of_counters(where):
        return None
    values: list[object] = [where.topic, where.task, where.tenant]
    placeholders: dict[object, str] = {}

    def add(value: object, kind: str) -> str:
        # Once for all states: a statement can have 32,767 of them.
        if value not in placeholders:
            values.append(value)
            placeholders[value] = f"${len(values)}::{kind}"
        return placeholders[value]

    words = Words(add, 0)
    condition = asked(where) or ALWAYS
    totals = []
    for state in State if where.state is None else (State(where.state),):
        # A state is a column here, so what is left of the condition asks for lanes and tenants only.
        left = for_state(condition, state)
        if left != NEVER:
            total = _sql["total"].replace("{columns}", _COLUMNS[state])
            totals.append(total.replace("{condition}", to_sql(left, words)))
    if not totals:
        return 0
    # Not with ``qualify``, which remembers: there are as many statements as there are conditions.
    statement = _sql["counted"].replace("{total}", " + ".join(totals)).replace("{schema}", database.schema)
    return int(await connection.fetchval(statement, *values))
