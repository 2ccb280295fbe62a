"""Looking for a text in payloads and errors, newest first, for at most a second."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from windlass.stores.postgres.database import Database
from windlass.stores.postgres.selecting import Selection
from windlass.stores.protocol import SEARCH_SECONDS
from windlass.stores.queries import Queries

_sql = Queries("windlass.stores.postgres.sql", "read.sql")

FIRST_BATCH: Final = 100
MOST_PER_BATCH: Final = 2000
"""Jobs looked into by one statement."""
BATCH_SECONDS: Final = 0.1
"""A statement should not take longer: the time is looked at between them."""


@dataclass(frozen=True, slots=True)
class Found:
    """The numbers of jobs that hold the text; the rest as in ``Page``."""

    numbers: list[int]
    cursor: int | None = None
    partial: bool = False
    searched_back_to: int | None = None


async def search(
    database: Database,
    connection: Any,
    selection: Selection,
    text: str,
    *,
    limit: int,
    cursor: int | None,
    offset: int,
) -> Found:
    """Batch after batch, by number. Only numbers and times leave the server."""
    deadline = time.monotonic() + SEARCH_SECONDS
    statement = database.qualify(_sql["look_into"])
    found: list[int] = []
    batch = FIRST_BATCH
    while True:
        began = time.monotonic()
        numbers = await selection.numbers(batch, cursor)
        rows = await connection.fetch(statement, numbers, text, text.encode())
        found += sorted((number for number, _, holds in rows if holds), reverse=True)
        # One more than the page holds: only then is there something further.
        if len(found) > offset + limit:
            page = found[offset : offset + limit]
            return Found(page, cursor=page[-1] if page else None)
        if len(numbers) < batch:
            return Found(found[offset:])
        cursor = numbers[-1]
        ended = time.monotonic()
        if ended > deadline:
            created_at = next(created_at for number, created_at, _ in rows if number == cursor)
            return Found(found[offset:], cursor=cursor, partial=True, searched_back_to=created_at)
        batch = min(batch * 2, MOST_PER_BATCH) if ended - began < BATCH_SECONDS else max(batch // 2, 1)
