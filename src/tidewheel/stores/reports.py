"""Build operator reports from a store's counts, the same way for every store.

The reports cover lanes, durations, failure groups and repeated jobs. ``find_overdue_pruning`` reports
finished jobs that are more than an hour past their retention. Durations are counted in buckets, four an
octave from a microsecond up: small enough to write with every batch, and a percentile is off by an eighth at
most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from tidewheel.core import fingerprints
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import ROOT_TENANT, JobRecord, Page
from tidewheel.core.reports import (
    Distribution,
    DuplicateJobGroup,
    DuplicateJobs,
    FailureGroup,
    FailureGroups,
    HealthFinding,
    HealthFindingKind,
    LaneDurations,
    MinuteStats,
    TaskActivity,
    TaskStats,
)
from tidewheel.stores.bounds import MAX_LANE_SERIES, MAX_LANES, MAX_SCANNED_JOBS, TREND_BUCKETS

_MAX_BUCKET = 4 * 50  # 2^50 µs is 35 years


def bucket_of(microseconds: int) -> int:
    """Which bucket a duration falls into."""
    if microseconds < 4:
        return max(microseconds, 0)
    octave = microseconds.bit_length() - 1
    return min(4 * (octave - 1) + ((microseconds >> (octave - 2)) & 3), _MAX_BUCKET)


def bucket_start(bucket: int) -> int:
    """The shortest duration of a bucket, in microseconds."""
    if bucket < 4:
        return bucket
    octave, quarter = bucket // 4 + 1, bucket % 4
    return (4 + quarter) << (octave - 2)


def count_in_buckets(durations: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Buckets for many durations at once: each with how many fall into it, and their sum in microseconds."""
    ordered = sorted(durations)
    done = 0
    while done < len(ordered):
        bucket = bucket_of(ordered[done])
        end = len(ordered) if bucket == _MAX_BUCKET else bisect_left(ordered, bucket_start(bucket + 1), done)
        yield bucket, end - done, sum(ordered[done:end])
        done = end


def bucket_middle(bucket: int) -> float:
    """A bucket's middle, in microseconds."""
    if bucket < 4:
        return float(bucket)
    return (bucket_start(bucket) + bucket_start(bucket + 1)) / 2


def summarise_buckets(counts: Mapping[int, int], total_microseconds: int) -> Distribution:
    """Average and percentiles of bucketed durations, in seconds."""
    number = sum(counts.values())
    if not number:
        return Distribution()
    ordered = sorted(counts.items())

    def percentile(share: float) -> float:
        rank = share * number
        seen = 0
        for bucket, count in ordered:
            seen += count
            if seen >= rank:
                return bucket_middle(bucket) / 1e6
        return bucket_middle(ordered[-1][0]) / 1e6

    return Distribution(
        count=number,
        average=total_microseconds / number / 1e6,
        p50=percentile(0.50),
        p95=percentile(0.95),
        p99=percentile(0.99),
    )


def has_tenant_index(tenant: str | None) -> bool:
    """Whether the jobs in question may lie far between those of others, and have an index of their own."""
    return tenant not in (None, ROOT_TENANT)


LaneName = tuple[str, str]
"""Topic and task."""


class LaneEvents(NamedTuple):
    """What happened in a lane, or in one minute of it; times in microseconds."""

    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    runs: int = 0
    run_us: int = 0
    waits: int = 0
    wait_us: int = 0

    @property
    def events(self) -> int:
        return self.enqueued + self.completed + self.failed + self.cancelled + self.retried

    def activity(self) -> TaskActivity:
        return TaskActivity(
            enqueued=self.enqueued,
            completed=self.completed,
            failed=self.failed,
            cancelled=self.cancelled,
            retried=self.retried,
            runs=self.runs,
            run_seconds=self.run_us / MICROSECONDS,
            waits=self.waits,
            wait_seconds=self.wait_us / MICROSECONDS,
        )

    def minute(self, minute: int) -> MinuteStats:
        return MinuteStats(minute, *self[:5])


NO_EVENTS = LaneEvents()


def select_lanes(
    counts: Mapping[LaneName, TaskStats], happened: Mapping[LaneName, LaneEvents] | None
) -> list[TaskStats]:
    """The lanes to tell of, by name. ``happened`` is None when a tenant asks."""
    lanes = dict(counts)
    if happened is not None:
        for name in happened:
            if name not in lanes:
                lanes[name] = TaskStats(*name)
        lanes = {
            name: replace(lane, activity=happened.get(name, NO_EVENTS).activity())
            for name, lane in lanes.items()
        }
    return sorted(_busiest(lanes.values())[:MAX_LANES], key=_name)


def lanes_with_series(lanes: Iterable[TaskStats]) -> list[LaneName]:
    """Whose minutes are to be told one by one."""
    busy = [lane for lane in lanes if lane.activity is not None and lane.activity.events]
    return [_name(lane) for lane in _busiest(busy)[:MAX_LANE_SERIES]]


def add_series(
    lanes: Sequence[TaskStats], minutes: Mapping[LaneName, Mapping[int, LaneEvents]]
) -> list[TaskStats]:
    """The same lanes with what happened in each minute."""
    told = []
    for lane in lanes:
        of_lane = minutes.get(_name(lane))
        if of_lane is not None and lane.activity is not None:
            series = tuple(
                of_lane[minute].minute(minute) for minute in sorted(of_lane) if of_lane[minute].events
            )
            lane = replace(lane, activity=replace(lane.activity, series=series))  # noqa: PLW2901
        told.append(lane)
    return told


def _busiest(lanes: Iterable[TaskStats]) -> list[TaskStats]:
    def rank(lane: TaskStats) -> tuple[int, int, LaneName]:
        events = 0 if lane.activity is None else lane.activity.events
        return -events, -(lane.pending + lane.running), _name(lane)

    return sorted(lanes, key=rank)


def _name(lane: TaskStats) -> LaneName:
    return lane.topic, lane.task


def summarise_lanes(times: Mapping[LaneName, tuple[list[int], list[int]]]) -> list[LaneDurations]:
    """Run times and wait times of each lane, in microseconds."""
    return [
        LaneDurations(*name, _to_distribution(runs), _to_distribution(waits))
        for name, (runs, waits) in sorted(times.items())
    ]


def _to_distribution(times: Iterable[int]) -> Distribution:
    filled = list(count_in_buckets(max(0, time) for time in times))
    return summarise_buckets({bucket: n for bucket, n, _ in filled}, sum(total for _, _, total in filled))


# -- failures -----------------------------------------------------------------------------------------------


class FailedJobs(NamedTuple):
    """Failed jobs of one lane with the very same summary, in one part of the window."""

    topic: str
    task: str
    summary: str
    trend_bucket: int | None  # None: before the window
    jobs: int
    first: int  # finished_at
    last: int
    number: int  # of the newest


def trend_bucket(finished_at: int, now: int, window_us: int) -> int | None:
    """In which part of the window something happened; SQL says the same with whole numbers."""
    since = now - window_us
    if finished_at < since:
        return None
    return min((finished_at - since) * TREND_BUCKETS // window_us, TREND_BUCKETS - 1)


def failed_job(record: JobRecord, now: int, window_us: int) -> FailedJobs:
    """A single job, as it comes out of a search."""
    at = record.finished_at or now
    part = trend_bucket(at, now, window_us)
    return FailedJobs(record.topic, record.task, record.error_summary or "", part, 1, at, at, record.number)


class FailureGrouper:
    """Failures by fingerprint: what differs only in numbers and the like is one error."""

    def __init__(self, found: Iterable[FailedJobs], limit: int) -> None:
        groups: dict[tuple[str, str, str], list[FailedJobs]] = {}
        for failed in found:
            groups.setdefault(
                (failed.topic, failed.task, fingerprints.error_pattern(failed.summary)), []
            ).append(failed)
        ranked = sorted(
            groups.items(),
            key=lambda group: (-sum(one.jobs for one in group[1]), -max(one.number for one in group[1])),
        )
        self._largest = ranked[:limit]
        self._found = len(groups)
        self._jobs = sum(one.jobs for ones in groups.values() for one in ones)

    @property
    def numbers(self) -> list[int]:
        """Of the newest job of each group that is told."""
        return [max(one.number for one in ones) for _, ones in self._largest]

    def to_failures(self, ids: Mapping[int, UUID], *, complete: bool) -> FailureGroups:
        """With the ids of those jobs."""
        groups = tuple(_group(*name, ones, ids) for name, ones in self._largest)
        return FailureGroups(groups, self._jobs, self._found, complete)


def group_searched_failures(page: Page, now: int, window_us: int, limit: int) -> FailureGroups:
    """The same for jobs that had to be searched for, one by one."""
    groups = FailureGrouper((failed_job(record, now, window_us) for record in page.items), limit)
    ids = {record.number: record.id for record in page.items}
    return groups.to_failures(ids, complete=page.cursor is None)


def _group(
    topic: str, task: str, pattern: str, ones: Sequence[FailedJobs], ids: Mapping[int, UUID]
) -> FailureGroup:
    newest = max(ones, key=lambda one: one.number)
    trend = [0] * TREND_BUCKETS
    for one in ones:
        if one.trend_bucket is not None:
            trend[one.trend_bucket] += one.jobs
    return FailureGroup(
        fingerprint=fingerprints.fingerprint(topic, task, pattern),
        topic=topic,
        task=task,
        pattern=pattern,
        sample=newest.summary,
        count=sum(one.jobs for one in ones),
        first_failed_at=min(one.first for one in ones),
        last_failed_at=max(one.last for one in ones),
        newest=ids[newest.number],
        trend=tuple(trend),
    )


# -- repeats ------------------------------------------------------------------------------------------------


class DuplicateGroup(NamedTuple):
    """A group of jobs that look alike, and the number of the newest."""

    number: int
    group: DuplicateJobGroup


def group_duplicates(
    by_key: Iterable[DuplicateGroup],
    by_payload: Iterable[DuplicateGroup],
    limit: int,
    *,
    tenant: str | None,
    jobs: int,
    pending: int,
) -> DuplicateJobs:
    """The largest groups; there are so many jobs of this tenant, and so many pending ones."""
    return DuplicateJobs(
        by_key=_largest(by_key, limit),
        by_payload=_largest(by_payload, limit),
        keys_complete=jobs <= MAX_SCANNED_JOBS,
        payloads_complete=(jobs if has_tenant_index(tenant) else pending) <= MAX_SCANNED_JOBS,
    )


def _largest(groups: Iterable[DuplicateGroup], limit: int) -> tuple[DuplicateJobGroup, ...]:
    ranked = sorted(groups, key=lambda alike: (-alike.group.count, -alike.number))
    return tuple(alike.group for alike in ranked[:limit])


PRUNING_OVERDUE_SECONDS: Final = 3600.0
"""Workers look every minute, and work off what has gathered: an hour is for more than they can."""


def find_overdue_pruning(prune_at: int | None, now: int) -> list[HealthFinding]:
    """``prune_at``: when the job that is overdue longest should have gone; None when none is."""
    if prune_at is None or (seconds := (now - prune_at) / MICROSECONDS) < PRUNING_OVERDUE_SECONDS:
        return []
    return [HealthFinding(HealthFindingKind.UNPRUNED, {"seconds": seconds}, since=prune_at)]
