"""Times of creation as ranges of numbers: the looks at jobs that it takes."""

from __future__ import annotations

from typing import Any

from tidewheel.stores.narrowing import SAMPLES, Asking, Range, Sample, Wanted
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.queries import Queries

_sql = Queries("tidewheel.stores.postgres.sql", "select.sql")


class Narrowing:
    """Looks at the jobs of one table."""

    def __init__(self, database: Database, connection: Any, table: str) -> None:
        self._connection = connection
        self._ends = database.qualify(_sql["ends"].replace("{table}", table))
        self._samples = database.qualify(_sql["samples"].replace("{table}", table))

    async def answer(self, asking: Asking) -> Range:
        """What it comes to, once everything it asks for was looked at."""
        try:
            wanted = next(asking)
            while True:
                wanted = asking.send(await self._look(wanted))
        except StopIteration as told:
            found: Range = told.value
            return found

    async def _look(self, wanted: Wanted) -> list[Sample]:
        if wanted is None:
            rows = await self._connection.fetch(self._ends)
        else:
            rows = await self._connection.fetch(self._samples, *wanted, SAMPLES - 1)
        return [Sample(*row) for row in rows]
