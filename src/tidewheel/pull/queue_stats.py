"""What programs that pull by hand are told about jobs, topics and the queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import JobRecord, State
from tidewheel.core.reports import TopicDepth

STATE_WORDS = {
    State.RUNNING: "reserved",
    State.FAILED: "buried",
    State.COMPLETED: "deleted",
    State.CANCELLED: "cancelled",
}
"""States in the words of those who pull; a pending job is ``ready`` or ``delayed``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStats:
    """One job's life so far."""

    id: UUID
    number: int
    topic: str
    state: str
    """ready, delayed, reserved, buried; deleted and cancelled ones are kept for a while, too"""
    priority: int
    age: float
    """seconds since it was put"""
    delay: float
    """seconds it was, or is, kept from being ready"""
    ttr: float | None
    """seconds a reservation lasts; None is the app's ``lease``"""
    time_left: float
    """seconds until a delayed job is ready, or a reservation ends"""
    reserves: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    touches: int

    @classmethod
    def from_record(cls, record: JobRecord, now: int) -> Self:
        delayed = record.state is State.PENDING and record.run_at > now
        taken_early = record.run_at == record.claimed_at  # it was made due by that
        moment = record.leased_until if record.state is State.RUNNING else record.run_at if delayed else None
        state = STATE_WORDS.get(record.state) or ("delayed" if delayed else "ready")
        return cls(
            id=record.id,
            number=record.number,
            topic=record.topic,
            state=state,
            priority=record.priority,
            age=max(0, now - record.created_at) / MICROSECONDS,
            delay=0.0 if taken_early else max(0, record.run_at - record.created_at) / MICROSECONDS,
            ttr=record.lease_seconds,
            time_left=0.0 if moment is None else max(0, moment - now) / MICROSECONDS,
            reserves=record.reserves,
            timeouts=record.timeouts,
            releases=record.releases,
            buries=record.buries,
            kicks=record.kicks,
            touches=record.touches,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """One topic as of now."""

    topic: str
    ready: int
    delayed: int
    reserved: int
    buried: int
    urgent: int
    """of the ready ones those with a priority above -1024; counting ends at 10,000"""
    waiting: int
    """callers of this process and event loop that wait for a job of it"""
    pause_left: float
    """seconds until it gives out jobs again; 0 when it is not paused, infinite when nobody said until when"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """The whole queue as of now."""

    topics: int
    ready: int
    delayed: int
    reserved: int
    buried: int
    urgent: int
    waiting: int
    """callers of this process and event loop that wait for a job"""

    @classmethod
    def from_depths(cls, depths: Iterable[TopicDepth], waiting: int) -> Self:
        depths = list(depths)
        return cls(
            topics=len(depths),
            ready=sum(depth.ready for depth in depths),
            delayed=sum(depth.delayed for depth in depths),
            reserved=sum(depth.running for depth in depths),
            buried=sum(depth.failed for depth in depths),
            urgent=sum(depth.urgent for depth in depths),
            waiting=waiting,
        )


@dataclass(frozen=True, slots=True)
class Recovery:
    """What there is after a start. Stores keep jobs where they are, so there is nothing to recover."""

    phase: str
    """always ``complete``"""
    total_jobs: int
    """ready, delayed, reserved and buried ones"""
