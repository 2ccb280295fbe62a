"""What a store finds out for operators: lanes, durations, failures, repeats, ailments. Frozen, no I/O.

Times are microseconds since 1970; durations are seconds as floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Distribution:
    """A duration, summed up. All in seconds; None when nothing was measured."""

    count: int = 0
    average: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic's counts. ``delayed`` jobs are among the pending ones."""

    topic: str
    pending: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    paused_until: int | None = None  # microseconds; FOREVER when paused without an end
    exact: bool = True  # False: at least so many, counted under a row filter

    @property
    def total(self) -> int:
        return self.pending + self.running + self.completed + self.failed + self.cancelled


@dataclass(frozen=True, slots=True)
class TopicDepth:
    """What is unfinished in one topic, as those see it who pull jobs by hand. Failed jobs can be kicked."""

    topic: str
    ready: int = 0  # due
    delayed: int = 0  # pending, and not yet due
    running: int = 0
    failed: int = 0
    urgent: int = 0  # of the ready ones those above ``URGENT_ABOVE``; counting ends at ``MAX_COUNT``
    paused_until: int | None = None  # as in ``TopicStats``


@dataclass(frozen=True, slots=True)
class MinuteStats:
    """What happened in one minute (``minute`` is its start in microseconds)."""

    minute: int
    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """The state of the queue: counts as of now, times and series over ``window_seconds``."""

    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int
    delayed: int
    oldest_due_at: int | None  # when the longest-waiting due job became due
    topics: tuple[TopicStats, ...]
    window_seconds: float
    run_time: Distribution
    wait_time: Distribution
    series: tuple[MinuteStats, ...]
    exact: bool = True  # False: at least so many, counted under a row filter

    @property
    def success_rate(self) -> float | None:
        """Completed among completed and failed, of jobs that ended in the window.

        None when none ended, and where no minutes are kept: of a tenant and under a row filter.
        """
        completed = sum(minute.completed for minute in self.series)
        ended = completed + sum(minute.failed for minute in self.series)
        return completed / ended if ended else None


@dataclass(frozen=True, slots=True)
class TaskActivity:
    """What happened in one lane over a window. Of all tenants together."""

    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    runs: int = 0
    """attempts that completed, errored or failed, and were measured"""
    run_seconds: float = 0.0
    """of those together"""
    waits: int = 0
    """attempts that began, and were measured"""
    wait_seconds: float = 0.0
    """from when their jobs were due, together"""
    series: tuple[MinuteStats, ...] = ()
    """by minute, oldest first, minutes without anything left out; of the busiest lanes only"""

    @property
    def events(self) -> int:
        """How busy it was."""
        return self.enqueued + self.completed + self.failed + self.cancelled + self.retried

    @property
    def average_run_seconds(self) -> float | None:
        return self.run_seconds / self.runs if self.runs else None

    @property
    def average_wait_seconds(self) -> float | None:
        return self.wait_seconds / self.waits if self.waits else None


@dataclass(frozen=True, slots=True)
class TaskStats:
    """The jobs of one task in one topic: how many there are now, and what happened.

    ``activity`` is None when a tenant asked: minutes are kept of all tenants together.
    """

    topic: str
    task: str
    pending: int = 0
    due: int = 0  # of the pending ones
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    activity: TaskActivity | None = None


@dataclass(frozen=True, slots=True)
class LaneDurations:
    """How long the newest completed jobs of a lane ran, and how long they had waited."""

    topic: str
    task: str
    run_time: Distribution
    wait_time: Distribution


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed jobs of one lane whose errors say the same, but for numbers, ids, quoted values and paths."""

    fingerprint: str  # tells this error from others, the same on every store and in every process
    topic: str
    task: str
    pattern: str  # the error, with what varies left out
    sample: str  # the newest job's error, as summarised
    count: int
    first_failed_at: int
    last_failed_at: int
    newest: UUID
    trend: tuple[int, ...]  # how many failed in each part of the window, oldest first


@dataclass(frozen=True, slots=True)
class FailureGroups:
    """Why jobs failed, the largest groups first."""

    groups: tuple[FailureGroup, ...]
    jobs: int  # failed jobs that were looked at
    found: int  # groups there are, also beyond those listed
    complete: bool  # False: there are older failed jobs that were not looked at


@dataclass(frozen=True, slots=True)
class DuplicateJobGroup:
    """Jobs that look alike. ``key`` is None where the payload is what they share."""

    tenant: str
    topic: str
    task: str
    key: str | None
    count: int
    newest: UUID
    oldest: UUID


@dataclass(frozen=True, slots=True)
class DuplicateJobs:
    """Groups of more than one, the largest first."""

    by_key: tuple[DuplicateJobGroup, ...]
    """the same key, finished jobs included: possible with ``until="finished"``"""
    by_payload: tuple[DuplicateJobGroup, ...]
    """pending jobs with the very same payload"""
    keys_complete: bool  # False: there are older jobs that were not looked at
    payloads_complete: bool  # False: there are older pending ones


class HealthFindingKind(StrEnum):
    """What can be wrong with what a store stands on. The hall has the words (``remedies``)."""

    OLD_SQLITE = "old_sqlite"
    """a library with the WAL-reset bug: ``version``, ``fixed``"""
    LONG_LOG = "long_log"
    """a write-ahead log that cannot be reset: ``bytes``, ``limit``, ``file``; if known ``readers``, who are
    in a read transaction, or ``holders``, who have it open"""
    LITTLE_SPACE = "little_space"
    """a disk that is nearly full: ``free``, ``directory``"""
    IN_MEMORY = "in_memory"
    """a file that a restart of the machine takes: ``directory``, ``file_system``"""
    NETWORK_FILE = "network_file"
    """a file that several machines may reach, but not lock: ``directory``, ``file_system``"""
    READABLE_FILE = "readable_file"
    """a file that other users of the machine can read: ``file``, ``mode``, ``readers``"""
    UNSAFE_COMMITS = "unsafe_commits"
    """commits that may be lost: ``setting``, ``value``"""
    PINNED_VACUUM = "pinned_vacuum"
    """somebody's snapshot keeps dead rows from being removed: ``holder`` and what is known of it"""
    DEAD_ROWS = "dead_rows"
    """a table that vacuum does not keep up with: ``table``, ``dead``, ``live``"""
    SPARSE = "sparse"
    """a table, or a whole file, that is mostly empty pages: ``table``, ``bytes``, ``used`` (0 to 1)"""
    NO_VACUUM = "no_vacuum"
    """a server that does not vacuum by itself: ``setting``"""
    UNPRUNED = "unpruned"
    """finished jobs that should have been removed: ``seconds`` ago, the first of them"""
    NOTIFY_QUEUE = "notify_queue"
    """hints that are not taken out of the server's queue: ``usage``, 0 to 1"""
    FEW_CONNECTIONS = "few_connections"
    """a server that soon takes no more: ``used``, ``limit``"""
    POOLED = "pooled"
    """a pooler, through which no hints come"""
    UNSEEN = "unseen"
    """something that could not be looked at: ``part``, ``reason``, and the ``role`` that may, if one may"""


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """One thing that is wrong with what a store stands on, as figures under the names its kind has."""

    kind: HealthFindingKind
    figures: Mapping[str, str | int | float | None] = field(default_factory=dict)
    since: int | None = None
