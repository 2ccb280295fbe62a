"""What a store finds out for operators: lanes, durations, failures, repeats, ailments. Frozen, no I/O.

Times are microseconds since 1970; durations are seconds as floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

from tidewheel.core.model import Distribution, MinuteStats


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
class Failures:
    """Why jobs failed, the largest groups first."""

    groups: tuple[FailureGroup, ...]
    jobs: int  # failed jobs that were looked at
    found: int  # groups there are, also beyond those listed
    complete: bool  # False: there are older failed jobs that were not looked at


@dataclass(frozen=True, slots=True)
class RepeatGroup:
    """Jobs that look alike. ``key`` is None where the payload is what they share."""

    tenant: str
    topic: str
    task: str
    key: str | None
    count: int
    newest: UUID
    oldest: UUID


@dataclass(frozen=True, slots=True)
class Repeats:
    """Groups of more than one, the largest first."""

    by_key: tuple[RepeatGroup, ...]
    """the same key, finished jobs included: possible with ``until="finished"``"""
    by_payload: tuple[RepeatGroup, ...]
    """pending jobs with the very same payload"""
    keys_complete: bool  # False: there are older jobs that were not looked at
    payloads_complete: bool  # False: there are older pending ones


class AilmentKind(StrEnum):
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
class Ailment:
    """One thing that is wrong with what a store stands on, as figures under the names its kind has."""

    kind: AilmentKind
    figures: Mapping[str, str | int | float | None] = field(default_factory=dict)
    since: int | None = None
