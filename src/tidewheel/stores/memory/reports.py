"""What operators ask of a ``Book``: lanes, durations, failures, repeats, running jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from operator import add

from tidewheel.core.clock import Clock, seconds_to_microseconds
from tidewheel.core.model import JobFilter, JobRecord, State
from tidewheel.core.reports import Failures, LaneDurations, RepeatGroup, Repeats, TaskStats
from tidewheel.stores.memory.job_queries import Scan, page
from tidewheel.stores.memory.job_rows import Job
from tidewheel.stores.memory.job_table import Book
from tidewheel.stores.protocol import COMPARED_PAYLOAD_BYTES, MAX_LOOKED_AT
from tidewheel.stores.reports import (
    NOTHING,
    Alike,
    Happened,
    LaneName,
    add_series,
    between_others,
    found_repeats,
    searched_failures,
    summarise_lanes,
    told_lanes,
    with_series,
)


def lanes(book: Book, window_seconds: float, tenant: str | None, now: int) -> list[TaskStats]:
    counts: dict[LaneName, Counter[State]] = {}
    due: Counter[LaneName] = Counter()
    for job in _newest(book, tenant):
        name = (job.topic, job.task)
        counts.setdefault(name, Counter())[job.state] += 1
        due[name] += job.state is State.PENDING and not job.blocked and job.run_at <= now
    told = {
        name: TaskStats(
            *name,
            pending=of_lane[State.PENDING],
            due=due[name],
            running=of_lane[State.RUNNING],
            completed=of_lane[State.COMPLETED],
            failed=of_lane[State.FAILED],
            cancelled=of_lane[State.CANCELLED],
        )
        for name, of_lane in counts.items()
    }
    if tenant is not None:
        return told_lanes(told, None)
    minutes = book.metrics.lanes(now, seconds_to_microseconds(window_seconds))
    found = told_lanes(told, {name: _sum(of_lane.values()) for name, of_lane in minutes.items()})
    return add_series(found, {name: minutes[name] for name in with_series(found)})


def _sum(parts: Iterable[Happened]) -> Happened:
    total = NOTHING
    for part in parts:
        total = Happened._make(map(add, total, part))
    return total


def durations(book: Book, tenant: str | None) -> list[LaneDurations]:
    newest = _newest(book, tenant)
    if between_others(tenant):
        newest = islice(newest, MAX_LOOKED_AT)
    completed = islice((job for job in newest if job.state is State.COMPLETED), MAX_LOOKED_AT)
    times: dict[LaneName, tuple[list[int], list[int]]] = {}
    for job in completed:
        if job.started_at is not None and job.finished_at is not None:
            runs, waits = times.setdefault((job.topic, job.task), ([], []))
            runs.append(job.finished_at - job.started_at)
            waits.append(job.started_at - job.run_at)
    return summarise_lanes(times)


def find_failures(
    book: Book, where: JobFilter, clock: Clock, *, window_seconds: float, limit: int
) -> Failures:
    scan = Scan(book, replace(where, state=State.FAILED), clock)
    found = page(scan, limit=MAX_LOOKED_AT, offset=0)
    return searched_failures(found, clock.now(), seconds_to_microseconds(window_seconds), limit)


def repeats(book: Book, limit: int, tenant: str | None) -> Repeats:
    jobs = list(_newest(book, tenant))
    pending = [job for job in jobs if job.state is State.PENDING]
    newest = jobs[:MAX_LOOKED_AT]
    waiting = [job for job in newest if job.state is State.PENDING] if between_others(tenant) else pending
    keyed: dict[object, list[Job]] = {}
    for job in newest:
        if job.key_name is not None:
            keyed.setdefault(job.key_name, []).append(job)
    alike: dict[object, list[Job]] = {}
    for job in waiting[:MAX_LOOKED_AT]:
        if len(job.payload) <= COMPARED_PAYLOAD_BYTES:
            name = (job.tenant, job.topic, job.task, job.format, job.payload)
            alike.setdefault(name, []).append(job)
    return found_repeats(
        _groups(keyed.values(), keyed=True),
        _groups(alike.values(), keyed=False),
        limit,
        tenant=tenant,
        jobs=len(jobs),
        pending=len(pending),
    )


def _groups(groups: Iterable[list[Job]], *, keyed: bool) -> Iterator[Alike]:
    """``groups`` have their newest job first."""
    for jobs in groups:
        newest = jobs[0]
        if len(jobs) > 1:
            key = newest.key if keyed else None
            yield Alike(
                newest.number,
                RepeatGroup(newest.tenant, newest.topic, newest.task, key, len(jobs), newest.id, jobs[-1].id),
            )


def longest_running(book: Book, limit: int, tenant: str | None) -> list[JobRecord]:
    running = (job for job in book.leases if tenant in (None, job.tenant))
    return [job.listed() for job in nsmallest(limit, running, key=lambda job: (job.claimed_at, job.number))]


def _newest(book: Book, tenant: str | None) -> Iterator[Job]:
    return (job for job in book.newest_first() if tenant in (None, job.tenant))
