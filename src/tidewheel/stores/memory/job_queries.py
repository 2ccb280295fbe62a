"""List, count and stats of a ``JobTable``."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from tidewheel.core.clock import Clock
from tidewheel.core.conditions import (
    ALWAYS,
    NEVER,
    is_in_state,
    matches,
    unindexed_condition,
    uses_only_columns,
)
from tidewheel.core.model import Count, JobFilter, JobRecord, Page
from tidewheel.stores.bounds import COLUMN_SEARCH_SECONDS, SEARCH_SECONDS
from tidewheel.stores.memory import dependencies
from tidewheel.stores.memory.job_rows import JobRow
from tidewheel.stores.memory.job_table import JobTable

_JOBS_BETWEEN_CLOCK_CHECKS = 256


class JobSearch:
    """The matching jobs, newest first. A search stops by itself when its time is up."""

    def __init__(self, table: JobTable, where: JobFilter, clock: Clock, before: int | None = None) -> None:
        # Others' jobs are passed over before anything else: how far a search came must not tell of them.
        self._jobs: Iterator[JobRow] = (
            job for job in table.newest_first(before) if where.tenant in (None, job.tenant)
        )
        self._where = where
        self._asked = unindexed_condition(where)
        if self._asked == NEVER:
            self._jobs = iter(())
        self._clock = clock
        self.last_seen: JobRow | None = None
        self.timed_out = False

    def __iter__(self) -> Iterator[JobRow]:
        now = self._clock.now()
        columns = uses_only_columns(self._asked or ALWAYS)
        give_up_at = self._clock.monotonic() + (COLUMN_SEARCH_SECONDS if columns else SEARCH_SECONDS)
        for seen, job in enumerate(self._jobs, 1):
            self.last_seen = job
            if _matches(job, self._where, now) and (self._asked is None or matches(self._asked, job, now)):
                yield job
            if (
                self._asked is not None
                and seen % _JOBS_BETWEEN_CLOCK_CHECKS == 0
                and self._clock.monotonic() > give_up_at
            ):
                self.timed_out = True
                return


def record(table: JobTable, job: JobRow) -> JobRecord:
    """As ``get`` shows it, with the jobs it runs after."""
    told = job.to_record()
    return structs.replace(told, after=dependencies.parents(table, job)) if job.after else told


def page(scan: JobSearch, *, limit: int, offset: int) -> Page:
    items: list[JobRow] = []
    for job in scan:
        if offset:
            offset -= 1
        elif len(items) < limit:
            items.append(job)
        else:  # one more than the page holds: only then is there something further
            return Page(
                tuple(item.to_list_record() for item in items), cursor=items[-1].number if items else None
            )
    listed = tuple(item.to_list_record() for item in items)
    if scan.timed_out and scan.last_seen is not None:
        last = scan.last_seen
        return Page(listed, cursor=last.number, partial=True, searched_back_to=last.created_at)
    return Page(listed)


def count(scan: JobSearch, limit: int | None) -> Count:
    total = 0
    for _ in scan:
        if total == limit:
            return Count(total, exact=False)
        total += 1
    return Count(total, exact=not scan.timed_out)


def _matches(job: JobRow, where: JobFilter, now: int) -> bool:
    """The fields of a filter, of jobs of the right tenant."""
    return (
        where.topic in (None, job.topic)
        and where.task in (None, job.task)
        and where.key in (None, job.key)
        and where.correlation_id in (None, job.correlation_id)
        and (where.created_after is None or job.created_at >= where.created_after)
        and (where.created_before is None or job.created_at < where.created_before)
        and (where.state is None or is_in_state(job, where.state, now))
    )
