"""List, count and stats of a ``Book``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import structs

from tidewheel.core.clock import Clock, seconds_to_microseconds
from tidewheel.core.conditions import ALWAYS, NEVER, asked, holds, in_state, of_columns
from tidewheel.core.model import (
    Count,
    Distribution,
    JobFilter,
    JobRecord,
    Page,
    State,
    Stats,
    TopicStats,
)
from tidewheel.stores.memory import dependencies
from tidewheel.stores.memory.job_rows import Job
from tidewheel.stores.memory.job_table import Book
from tidewheel.stores.protocol import COLUMN_SEARCH_SECONDS, SEARCH_SECONDS

_LOOK_AT_CLOCK_EVERY = 256


class Scan:
    """The matching jobs, newest first. A search stops by itself when its time is up."""

    def __init__(self, book: Book, where: JobFilter, clock: Clock, before: int | None = None) -> None:
        # Others' jobs are passed over before anything else: how far a search came must not tell of them.
        self._jobs: Iterator[Job] = (
            job for job in book.newest_first(before) if where.tenant in (None, job.tenant)
        )
        self._where = where
        self._asked = asked(where)
        if self._asked == NEVER:
            self._jobs = iter(())
        self._clock = clock
        self.last_seen: Job | None = None
        self.ran_out = False

    def __iter__(self) -> Iterator[Job]:
        now = self._clock.now()
        columns = of_columns(self._asked or ALWAYS)
        give_up_at = self._clock.monotonic() + (COLUMN_SEARCH_SECONDS if columns else SEARCH_SECONDS)
        for seen, job in enumerate(self._jobs, 1):
            self.last_seen = job
            if _matches(job, self._where, now) and (self._asked is None or holds(self._asked, job, now)):
                yield job
            if (
                self._asked is not None
                and seen % _LOOK_AT_CLOCK_EVERY == 0
                and self._clock.monotonic() > give_up_at
            ):
                self.ran_out = True
                return


def record(book: Book, job: Job) -> JobRecord:
    """As ``get`` shows it, with the jobs it runs after."""
    told = job.record()
    return structs.replace(told, after=dependencies.parents(book, job)) if job.after else told


def page(scan: Scan, *, limit: int, offset: int) -> Page:
    items: list[Job] = []
    for job in scan:
        if offset:
            offset -= 1
        elif len(items) < limit:
            items.append(job)
        else:  # one more than the page holds: only then is there something further
            return Page(tuple(item.listed() for item in items), cursor=items[-1].number if items else None)
    listed = tuple(item.listed() for item in items)
    if scan.ran_out and scan.last_seen is not None:
        last = scan.last_seen
        return Page(listed, cursor=last.number, partial=True, searched_back_to=last.created_at)
    return Page(listed)


def count(scan: Scan, limit: int | None) -> Count:
    total = 0
    for _ in scan:
        if total == limit:
            return Count(total, exact=False)
        total += 1
    return Count(total, exact=not scan.ran_out)


def _matches(job: Job, where: JobFilter, now: int) -> bool:
    """The fields of a filter, of jobs of the right tenant."""
    return (
        where.topic in (None, job.topic)
        and where.task in (None, job.task)
        and where.key in (None, job.key)
        and where.correlation_id in (None, job.correlation_id)
        and (where.created_after is None or job.created_at >= where.created_after)
        and (where.created_before is None or job.created_at < where.created_before)
        and (where.state is None or in_state(job, where.state, now))
    )


def topics(book: Book, tenant: str | None, now: int) -> tuple[TopicStats, ...]:
    names, counts = _counts(book, tenant, now)
    return _topic_stats(book, names, counts, now)


def stats(book: Book, window_seconds: float, tenant: str | None, now: int) -> Stats:
    names, counts = _counts(book, tenant, now)
    if tenant is None:
        run_time, wait_time, series = book.metrics.summary(now, seconds_to_microseconds(window_seconds))
    else:
        run_time, wait_time, series = Distribution(), Distribution(), ()
    total: Counter[State] = Counter()
    for of_topic in counts.values():
        total.update(of_topic)
    delayed, oldest_due_at = _pending(book, tenant, now)
    return Stats(
        **_by_state(total),
        delayed=delayed,
        oldest_due_at=oldest_due_at,
        topics=_topic_stats(book, names, counts, now),
        window_seconds=window_seconds,
        run_time=run_time,
        wait_time=wait_time,
        series=series,
    )


def _counts(book: Book, tenant: str | None, now: int) -> tuple[set[str], Mapping[str, Counter[State]]]:
    """The topics to tell of, and their jobs by state."""
    if tenant is None:
        return book.topic_names(now), book.counts
    counts: dict[str, Counter[State]] = {}
    for job in book.jobs.values():
        if job.tenant == tenant:
            counts.setdefault(job.topic, Counter())[job.state] += 1
    return set(counts), counts  # a pause of a topic without jobs of this tenant is not its business


def _topic_stats(
    book: Book, names: Iterable[str], counts: Mapping[str, Counter[State]], now: int
) -> tuple[TopicStats, ...]:
    return tuple(
        TopicStats(
            name,
            **_by_state(counts.get(name, Counter())),
            paused_until=book.paused_until(name, now),
        )
        for name in sorted(names)
    )


def _by_state(counts: Counter[State]) -> dict[str, Any]:
    return {str(state): counts[state] for state in State}


def _pending(book: Book, tenant: str | None, now: int) -> tuple[int, int | None]:
    """How many jobs are delayed, and since when the longest-waiting due one is due."""
    book.promote(now)
    due = (job for tasks in book.ready.values() for ready in tasks.values() for job in ready)
    if tenant is None:
        return len(book.waiting), min((job.run_at for job in due), default=None)
    delayed = sum(job.tenant == tenant for job in book.waiting)
    return delayed, min((job.run_at for job in due if job.tenant == tenant), default=None)
