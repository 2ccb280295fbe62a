"""What operators ask of a ``JobTable``: lanes, durations, failures, repeats, running jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from operator import add
from typing import Any

from tidewheel.core.clock import Clock, seconds_to_microseconds
from tidewheel.core.model import JobFilter, JobRecord, State
from tidewheel.core.reports import (
    Distribution,
    DuplicateJobGroup,
    DuplicateJobs,
    FailureGroups,
    LaneDurations,
    Stats,
    TaskStats,
    TopicStats,
)
from tidewheel.stores.bounds import MAX_COMPARED_PAYLOAD_BYTES, MAX_SCANNED_JOBS
from tidewheel.stores.memory.job_queries import JobSearch, page
from tidewheel.stores.memory.job_rows import JobRow
from tidewheel.stores.memory.job_table import JobTable
from tidewheel.stores.reports import (
    NO_EVENTS,
    DuplicateGroup,
    LaneEvents,
    LaneName,
    add_series,
    group_duplicates,
    group_searched_failures,
    has_tenant_index,
    lanes_with_series,
    select_lanes,
    summarise_lanes,
)


def lanes(table: JobTable, window_seconds: float, tenant: str | None, now: int) -> list[TaskStats]:
    counts: dict[LaneName, Counter[State]] = {}
    due: Counter[LaneName] = Counter()
    for job in _newest(table, tenant):
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
        return select_lanes(told, None)
    minutes = table.metrics.lanes(now, seconds_to_microseconds(window_seconds))
    found = select_lanes(told, {name: _sum_events(of_lane.values()) for name, of_lane in minutes.items()})
    return add_series(found, {name: minutes[name] for name in lanes_with_series(found)})


def _sum_events(parts: Iterable[LaneEvents]) -> LaneEvents:
    total = NO_EVENTS
    for part in parts:
        total = LaneEvents._make(map(add, total, part))
    return total


def durations(table: JobTable, tenant: str | None) -> list[LaneDurations]:
    newest = _newest(table, tenant)
    if has_tenant_index(tenant):
        newest = islice(newest, MAX_SCANNED_JOBS)
    completed = islice((job for job in newest if job.state is State.COMPLETED), MAX_SCANNED_JOBS)
    times: dict[LaneName, tuple[list[int], list[int]]] = {}
    for job in completed:
        if job.started_at is not None and job.finished_at is not None:
            runs, waits = times.setdefault((job.topic, job.task), ([], []))
            runs.append(job.finished_at - job.started_at)
            waits.append(job.started_at - job.run_at)
    return summarise_lanes(times)


def failures(
    table: JobTable, where: JobFilter, clock: Clock, *, window_seconds: float, limit: int
) -> FailureGroups:
    scan = JobSearch(table, replace(where, state=State.FAILED), clock)
    found = page(scan, limit=MAX_SCANNED_JOBS, offset=0)
    return group_searched_failures(found, clock.now(), seconds_to_microseconds(window_seconds), limit)


def duplicate_jobs(table: JobTable, limit: int, tenant: str | None) -> DuplicateJobs:
    jobs = list(_newest(table, tenant))
    pending = [job for job in jobs if job.state is State.PENDING]
    newest = jobs[:MAX_SCANNED_JOBS]
    waiting = [job for job in newest if job.state is State.PENDING] if has_tenant_index(tenant) else pending
    keyed: dict[object, list[JobRow]] = {}
    for job in newest:
        if job.key_name is not None:
            keyed.setdefault(job.key_name, []).append(job)
    alike: dict[object, list[JobRow]] = {}
    for job in waiting[:MAX_SCANNED_JOBS]:
        if len(job.payload) <= MAX_COMPARED_PAYLOAD_BYTES:
            name = (job.tenant, job.topic, job.task, job.format, job.payload)
            alike.setdefault(name, []).append(job)
    return group_duplicates(
        _duplicate_groups(keyed.values(), keyed=True),
        _duplicate_groups(alike.values(), keyed=False),
        limit,
        tenant=tenant,
        jobs=len(jobs),
        pending=len(pending),
    )


def _duplicate_groups(groups: Iterable[list[JobRow]], *, keyed: bool) -> Iterator[DuplicateGroup]:
    """``groups`` have their newest job first."""
    for jobs in groups:
        newest = jobs[0]
        if len(jobs) > 1:
            key = newest.key if keyed else None
            yield DuplicateGroup(
                newest.number,
                DuplicateJobGroup(
                    newest.tenant, newest.topic, newest.task, key, len(jobs), newest.id, jobs[-1].id
                ),
            )


def longest_running(table: JobTable, limit: int, tenant: str | None) -> list[JobRecord]:
    running = (job for job in table.leases if tenant in (None, job.tenant))
    return [
        job.to_list_record()
        for job in nsmallest(limit, running, key=lambda job: (job.claimed_at, job.number))
    ]


def _newest(table: JobTable, tenant: str | None) -> Iterator[JobRow]:
    return (job for job in table.newest_first() if tenant in (None, job.tenant))


def topics(table: JobTable, tenant: str | None, now: int) -> tuple[TopicStats, ...]:
    names, counts = _counts(table, tenant, now)
    return _topic_stats(table, names, counts, now)


def stats(table: JobTable, window_seconds: float, tenant: str | None, now: int) -> Stats:
    names, counts = _counts(table, tenant, now)
    if tenant is None:
        run_time, wait_time, series = table.metrics.summary(now, seconds_to_microseconds(window_seconds))
    else:
        run_time, wait_time, series = Distribution(), Distribution(), ()
    total: Counter[State] = Counter()
    for of_topic in counts.values():
        total.update(of_topic)
    delayed, oldest_due_at = _pending(table, tenant, now)
    return Stats(
        **_by_state(total),
        delayed=delayed,
        oldest_due_at=oldest_due_at,
        topics=_topic_stats(table, names, counts, now),
        window_seconds=window_seconds,
        run_time=run_time,
        wait_time=wait_time,
        series=series,
    )


def _counts(table: JobTable, tenant: str | None, now: int) -> tuple[set[str], Mapping[str, Counter[State]]]:
    """The topics to tell of, and their jobs by state."""
    if tenant is None:
        return table.topic_names(now), table.counts
    counts: dict[str, Counter[State]] = {}
    for job in table.jobs.values():
        if job.tenant == tenant:
            counts.setdefault(job.topic, Counter())[job.state] += 1
    return set(counts), counts  # a pause of a topic without jobs of this tenant is not its business


def _topic_stats(
    table: JobTable, names: Iterable[str], counts: Mapping[str, Counter[State]], now: int
) -> tuple[TopicStats, ...]:
    return tuple(
        TopicStats(
            name,
            **_by_state(counts.get(name, Counter())),
            paused_until=table.paused_until(name, now),
        )
        for name in sorted(names)
    )


def _by_state(counts: Counter[State]) -> dict[str, Any]:
    return {str(state): counts[state] for state in State}


def _pending(table: JobTable, tenant: str | None, now: int) -> tuple[int, int | None]:
    """How many jobs are delayed, and since when the longest-waiting due one is due."""
    table.promote(now)
    due = (job for tasks in table.ready.values() for ready in tasks.values() for job in ready)
    if tenant is None:
        return len(table.waiting), min((job.run_at for job in due), default=None)
    delayed = sum(job.tenant == tenant for job in table.waiting)
    return delayed, min((job.run_at for job in due if job.tenant == tenant), default=None)
