"""The leases in a worker's hands: from the claim that granted them to the answer of their settlement.

The event loop adds and removes; the keeper's thread reads and marks. Every field has one writer, and a dict's
``list(values())`` is atomic, so no lock is needed.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from windlass.model import Claimed

if TYPE_CHECKING:
    from windlass.task import Task


class Stop(StrEnum):
    """Why a handler is being stopped."""

    LOST = "lost"  # the lease is gone: nothing this run does counts any more
    CANCEL = "cancel"  # somebody asked
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"  # the grace period is over


class Held:
    """One lease and the run under it."""

    __slots__ = (
        "deadline",
        "extend_at",
        "handler",
        "job",
        "refused_at",
        "settling",
        "start_recorded",
        "started",
        "stop",
        "stop_asked_at",
        "task",
        "thread",
    )

    def __init__(self, job: Claimed, task: Task[..., Any], sent: float) -> None:
        self.job = job
        self.task = task
        # Counted from when the claim was *sent*: the store's own count began later, so this one ends first.
        self.deadline = sent + job.lease_seconds
        self.extend_at = sent + job.lease_seconds / 3
        self.started: float | None = None  # monotonic, once the handler runs
        self.start_recorded = False
        self.settling = False  # an outcome is on its way to the store
        self.refused_at: float | None = None  # monotonic: when the store first would not take the outcome
        self.stop: Stop | None = None
        self.stop_asked_at: float | None = None  # monotonic; set by whoever asks first
        self.handler: asyncio.Task[None] | None = None
        self.thread: asyncio.Future[Any] | None = None  # a plain function's run, which nothing can interrupt

    def time_out(self) -> None:
        """A timer's end, on the event loop."""
        if self.stop is None and self.handler is not None:
            self.stop = Stop.TIMEOUT
            self.handler.cancel()

    def extended(self, sent: float) -> None:
        """The store accepted an extension that was sent at ``sent``."""
        self.deadline = sent + self.job.lease_seconds
        self.extend_at = sent + self.job.lease_seconds / 3


class HeldJobs:
    """Every lease this worker holds, by fence."""

    def __init__(self) -> None:
        self._by_fence: dict[int, Held] = {}

    def add(self, held: Held) -> None:
        self._by_fence[held.job.lease.fence] = held

    def drop(self, held: Held) -> None:
        self._by_fence.pop(held.job.lease.fence, None)

    def snapshot(self) -> list[Held]:
        """All of them, as of now; safe from any thread."""
        return list(self._by_fence.values())

    def __len__(self) -> int:
        return len(self._by_fence)

    def __contains__(self, held: Held) -> bool:
        return held.job.lease.fence in self._by_fence
