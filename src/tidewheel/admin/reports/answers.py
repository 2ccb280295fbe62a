"""What operators' questions are answered with (``questions``): a sentence, and the figures behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from tidewheel.core.reports import Distribution, MinuteStats


@dataclass(frozen=True, slots=True, kw_only=True)
class OutstandingLane:
    """The unfinished jobs of one task in one topic."""

    topic: str
    task: str
    pending: int
    due: int
    """of the pending ones: they could run now"""
    running: int
    paused: bool
    completed_per_minute: float | None
    """over the last ten minutes; None when a tenant asks"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outstanding:
    """What is outstanding."""

    answer: str
    pending: int
    due: int
    delayed: int
    running: int
    oldest_due_at: datetime | None
    """when the job that has waited longest became due"""
    lanes: tuple[OutstandingLane, ...]
    """those with unfinished jobs, the most first"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedGroup:
    """Failed jobs of one task and topic whose errors say the same, but for numbers, ids and the like."""

    fingerprint: str
    topic: str
    task: str
    error: str
    """what they say, with ``…`` for what varies"""
    sample: str
    """what the newest says"""
    jobs: int
    first_failed_at: datetime
    last_failed_at: datetime
    newest: UUID
    trend: tuple[int, ...]
    """how many failed in each twelfth of the window, oldest first"""
    where: str
    """a filter for these jobs, as ``jobs`` and ``requeue_all`` take it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJobs:
    """What failed, and why."""

    answer: str
    jobs: int
    """failed jobs that were looked at"""
    complete: bool
    """False: there are more, older ones"""
    errors: int
    """how many different errors there are, also beyond those listed"""
    window_seconds: float
    groups: tuple[FailedGroup, ...]
    """the largest first"""


class StuckKind(StrEnum):
    LEASE_ENDED = "lease_ended"
    """running by name only: the lease is over, and nobody has brought the job back"""
    HOLDER_LOST = "holder_lost"
    """held by a worker or puller that is gone, until the lease ends"""
    TIMED_OUT = "timed_out"
    """running far longer than its timeout"""
    SLOW = "slow"
    """running far longer than others of its task"""
    NO_WORKER = "no_worker"
    """due, and no live worker takes such jobs"""
    UNKNOWN_TASK = "unknown_task"
    """due, and neither a live worker nor this app knows the task"""
    PAUSED = "paused"
    """due, in a topic that is paused"""
    WORKER_MISSING = "worker_missing"
    """a worker that ended without leaving, or cannot reach the store"""
    WORKER_STUCK = "worker_stuck"
    """a worker with handlers that were told to stop and go on"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckThing:
    """One reason why work does not get done."""

    kind: StuckKind
    explanation: str
    jobs: int = 0
    topic: str | None = None
    task: str | None = None
    job_id: UUID | None = None
    """the one that has been so for longest, where that can be told"""
    worker: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckJobs:
    """What is stuck."""

    answer: str
    jobs: int
    complete: bool
    """False: more jobs run than were looked at, or more is stuck than is listed"""
    things: tuple[StuckThing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDurations:
    """How long the newest jobs of one task in one topic took."""

    topic: str
    task: str
    run_time: Distribution
    wait_time: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDurations:
    """How long jobs take."""

    answer: str
    run_time: Distribution
    """of the last hour, all tasks together; nothing when a tenant asks"""
    wait_time: Distribution
    tasks: tuple[TaskDurations, ...]
    """of the newest completed jobs, the slowest first"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateGroup:
    """Jobs that look alike."""

    tenant: str
    topic: str
    task: str
    key: str | None
    """what they share; None: a payload"""
    jobs: int
    newest: UUID
    oldest: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Whether there are duplicates."""

    answer: str
    same_key: tuple[DuplicateGroup, ...]
    """jobs with one key, finished ones included, which ``until="finished"`` allows"""
    same_payload: tuple[DuplicateGroup, ...]
    """pending jobs of one task with the very same payload"""
    complete: bool
    """False: only the newest 10,000 jobs were looked at"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneHour:
    """What happened to the jobs of one task in one topic."""

    topic: str
    task: str
    enqueued: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    average_run_seconds: float | None
    series: tuple[MinuteStats, ...]
    """by minute; of the busiest lanes only"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastHour:
    """What ran in the last hour."""

    answer: str
    enqueued: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    exact: bool
    """False: counting stopped at 10,000"""
    series: tuple[MinuteStats, ...]
    lanes: tuple[LaneHour, ...]
    """the busiest first"""


class Severity(StrEnum):
    """How bad it is."""

    CRITICAL = "critical"
    """work does not get done, or may be lost"""
    WARNING = "warning"
    """somebody should look today"""
    INFO = "info"
    """good to know"""


class FindingKind(StrEnum):
    """What needs attention. These words are stable."""

    LEASE_ENDED = "lease_ended"
    HOLDER_LOST = "holder_lost"
    TIMED_OUT = "timed_out"
    SLOW = "slow"
    NO_WORKER = "no_worker"
    UNKNOWN_TASK = "unknown_task"
    PAUSED = "paused"
    WORKER_MISSING = "worker_missing"
    WORKER_STUCK = "worker_stuck"
    FAILING_TASK = "failing_task"
    """many of a task's attempts end in an error"""
    BACKLOG = "backlog"
    """due jobs that take long to get done, at the present pace"""
    LIMITED = "limited"
    """due jobs that limits of their topic do not let start"""
    WORKER_POLLING = "worker_polling"
    """workers that no wake-ups come through to"""
    CLOCK_STEP = "clock_step"
    """the store's clock jumped ahead, and nothing is deleted by it until that is certain"""
    WORKER_LAGGING = "worker_lagging"
    """a worker whose event loop is held up"""
    MIXED_VERSIONS = "mixed_versions"
    """workers of several versions of Tidewheel"""
    SCHEDULE_TROUBLED = "schedule_troubled"
    """a schedule that could not make its job"""
    SCHEDULE_OVERDUE = "schedule_overdue"
    """a schedule that nobody lets fire"""
    SCHEDULE_UNDECLARED = "schedule_undeclared"
    """a schedule that went out of the code"""
    OLD_SQLITE = "old_sqlite"
    LONG_LOG = "long_log"
    LITTLE_SPACE = "little_space"
    IN_MEMORY = "in_memory"
    NETWORK_FILE = "network_file"
    READABLE_FILE = "readable_file"
    UNSAFE_COMMITS = "unsafe_commits"
    PINNED_VACUUM = "pinned_vacuum"
    DEAD_ROWS = "dead_rows"
    SPARSE = "sparse"
    NO_VACUUM = "no_vacuum"
    UNPRUNED = "unpruned"
    NOTIFY_QUEUE = "notify_queue"
    FEW_CONNECTIONS = "few_connections"
    POOLED = "pooled"
    UNSEEN = "unseen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that needs attention, and what to do about it."""

    kind: FindingKind
    severity: Severity
    title: str
    explanation: str
    """a sentence with the figures"""
    remedy: str
    """what to do: a command, a setting, a place to look"""
    since: datetime | None = None
    jobs: int = 0
    """how many it is about"""
    topic: str | None = None
    task: str | None = None
    job_id: UUID | None = None
    worker: str | None = None
    where: str | None = None
    """a filter for the jobs it is about, as ``jobs`` takes it"""
    details: Mapping[str, str | int | float | None] = field(default_factory=dict)
    """the figures, for programs"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """What needs attention."""

    answer: str
    critical: int
    warnings: int
    infos: int
    findings: tuple[Finding, ...]
    """the worst first"""
    more: int
    """findings beyond those listed"""
