"""Times of creation as ranges of numbers.

Numbers and times of creation grow together, but for clocks that were set back and calls that waited for a
lock. So a few looks at jobs in between tell which numbers need not be walked through.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any, Final

from windlass.clock import MICROSECONDS
from windlass.stores.postgres.database import Database
from windlass.stores.queries import Queries

_sql = Queries("windlass.stores.postgres.sql", "select.sql")

DISORDER: Final = 3600 * MICROSECONDS
"""How much earlier a job may have been created than one with a lower number. Generous: the clock of a server
that took over may be off, and a job that is missing from a list is worse than a list that takes longer."""
WALKED: Final = 10_000
"""So many numbers are walked through rather than looked up."""
ROUNDS: Final = 3

_Sample = tuple[int, int]  # number, created_at


class Narrowing:
    """Looks at the jobs of one table."""

    def __init__(self, database: Database, connection: Any, table: str) -> None:
        self._connection = connection
        self._ends = database.qualify(_sql["ends"].replace("{table}", table))
        self._samples = database.qualify(_sql["samples"].replace("{table}", table))

    async def between(self, after: int | None, before: int | None) -> tuple[int | None, int | None]:
        """Two numbers; all jobs created in the given time are between them. None = no bound is known."""
        first, last = await self._connection.fetchrow(self._ends)
        if first is None or last - first <= WALKED:
            return None, None
        samples = await self._look(first, last)
        return (
            None if after is None else await self._above(samples, after - DISORDER),
            None if before is None else await self._below(samples, before + DISORDER),
        )

    async def _above(self, samples: list[_Sample], after: int) -> int | None:
        """A number up to which everything was created before this time."""
        above = None
        for _ in range(ROUNDS):
            early = [number for number, _ in takewhile(lambda sample: sample[1] < after, samples)]
            if early:
                above = early[-1]
            if not early or len(early) == len(samples) or samples[len(early)][0] - early[-1] <= WALKED:
                break
            samples = await self._look(early[-1], samples[len(early)][0])
        return above

    async def _below(self, samples: list[_Sample], before: int) -> int | None:
        """A number from which on everything was created at this time or later."""
        below = None
        for _ in range(ROUNDS):
            late = [number for number, _ in takewhile(lambda sample: sample[1] >= before, reversed(samples))]
            if late:
                below = late[-1]
            if not late or len(late) == len(samples) or late[-1] - samples[-len(late) - 1][0] <= WALKED:
                break
            samples = await self._look(samples[-len(late) - 1][0], late[-1])
        return below

    async def _look(self, first: int, last: int) -> list[_Sample]:
        return [tuple(row) for row in await self._connection.fetch(self._samples, first, last)]
