"""What a store finds out for operators: lanes, durations, failures, repeats. Frozen, no I/O.

Times are microseconds since 1970; durations are seconds as floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from windlass.model import Distribution, MinuteStats


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
