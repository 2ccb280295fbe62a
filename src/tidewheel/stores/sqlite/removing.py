"""Taking jobs out of the store, with everything that belongs to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tidewheel.stores.queries import Queries
from tidewheel.stores.sqlite.depending import unrelate
from tidewheel.stores.sqlite.scoping import by_key
from tidewheel.stores.sqlite.transaction import Transaction

_sql = Queries("tidewheel.stores.sqlite.sql", "remove.sql")


def remove(transaction: Transaction, rows: Sequence[tuple[Any, ...]]) -> None:
    """Rows of (number, state, tenant, topic, task, key)."""
    if not rows:
        return
    connection = transaction.connection
    numbers = json.dumps([row[0] for row in rows])
    for part in ("jobs", "bodies", "results", "progress", "attempts", "steps"):
        connection.execute(_sql[f"remove_{part}"], (numbers,))
    unrelate(transaction, numbers)
    for number, state, tenant, topic, task, key in rows:
        if key is not None:
            connection.execute(by_key(_sql["remove_key"]), (tenant, task or topic, key, number))
        transaction.tally.moved(tenant, topic, task, state, None)
