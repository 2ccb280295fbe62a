"""Jobs that run after others: who they are, and going on with those whose parents have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidewheel.core.model import Count, Dependents, NewJob, Relative
from tidewheel.stores.bounds import MAX_COUNT, MAX_DEPENDENTS, MAX_RELEASED_DEPENDENTS
from tidewheel.stores.enqueue import check_parents
from tidewheel.stores.postgres.database import Database, Record
from tidewheel.stores.postgres.row_mapping import STATES
from tidewheel.stores.sql_files import SqlFile

_sql = SqlFile("tidewheel.stores.postgres", "sql/dependencies.sql")

NO_PARENT_ARGUMENTS: Final = (None, None, None)
"""The last parameters of ``enqueue`` where no job runs after another."""


@dataclass(slots=True)
class ReleaseResult:
    """What the end of some jobs has meant for those that waited for them."""

    topics: set[str] = field(default_factory=set)
    """where jobs became ready"""
    unfinished: bool = False
    """there is more to do, in a transaction of its own"""

    def split_rows(self, rows: Sequence[Record]) -> Sequence[Record]:
        """Of rows that a function answers with those that are about the jobs it was called for. What is to be
        told of others has a position below 1, and comes last.
        """
        if not rows or rows[-1][0] > 0:
            return rows
        self.topics.update(row[1] for row in rows if row[0] == 0)
        self.unfinished |= rows[-1][0] < 0
        return [row for row in rows if row[0] > 0]


def dependency_arguments(
    jobs: Sequence[NewJob],
) -> tuple[list[int] | None, list[UUID] | None, list[bool] | None]:
    """Who runs after whom, as the last parameters of ``enqueue``: children by position, counted from 1."""
    if not check_parents(jobs):
        return NO_PARENT_ARGUMENTS
    found = [(place, parent, job.after_any) for place, job in enumerate(jobs, 1) for parent in job.after]
    children, parents, anys = zip(*found, strict=True)
    return list(children), list(parents), list(anys)


async def release_dependents(database: Database) -> ReleaseResult:
    """A transaction's worth of what is left to do about jobs whose parents have ended."""
    row = await database.fetchrow(_sql["release_dependents"], database.now, MAX_RELEASED_DEPENDENTS)
    return ReleaseResult() if row is None else ReleaseResult(set(row[0]), row[1])


async def dependents(database: Database, job_id: UUID, limit: int, tenant: str | None) -> Dependents:
    values = (job_id, tenant, min(limit, MAX_DEPENDENTS))
    rows = await database.fetch_for(tenant, _sql["dependents"], *values)
    [[total]] = await database.fetch_for(tenant, _sql["count_dependents"], job_id, tenant, MAX_COUNT + 1)
    found = tuple([Relative(child, STATES[state], waits) for child, state, waits in rows])
    return Dependents(found, Count(min(total, MAX_COUNT), exact=total <= MAX_COUNT))
