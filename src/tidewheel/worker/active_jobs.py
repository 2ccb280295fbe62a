"""The leases in a worker's hands: from the claim that granted them to the answer of their settlement.

The event loop adds and removes; the keeper's thread reads and marks. Every field has one writer, and a dict's
``list(values())`` is atomic, so no lock is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Protocol, Self

from msgspec import Struct

from tidewheel.core.model import Claimed
from tidewheel.tasks.context import Context
from tidewheel.tasks.task import Task


class StopReason(StrEnum):
    """Why a handler is being stopped."""

    LOST = "lost"  # the lease is gone: nothing this run does counts any more
    CANCEL = "cancel"  # somebody asked
    TIMEOUT = "timeout"
    TRANSACTION = "transaction"  # its transaction was open too long, and is rolled back
    SHUTDOWN = "shutdown"  # the grace period is over


class RunningHandler(Protocol):
    """What runs a handler, as far as others may touch it: the slot's task, or a part of a batch."""

    def cancel(self, msg: Any = None) -> bool:
        """Have the handler told to stop."""

    def done(self) -> bool:
        """Whether nothing of it is left."""


class ActiveJob(Struct, eq=False):
    """One lease and the run under it. Times are monotonic."""

    job: Claimed
    task: Task[..., Any]
    deadline: float
    extend_at: float
    started: float | None = None  # once the handler runs
    start_recorded: bool = False
    runs_alone: bool = False  # nothing else runs in this worker meanwhile
    awaits_capacity: bool = False  # a suspect that waits until enough other handlers have ended
    settling: bool = False  # an outcome is on its way to the store
    committing_transaction: bool = False  # its handler's own transaction is being committed
    settled_in_transaction: bool | None = (
        None  # by the handler's own transaction; False = the lease had ended
    )
    first_rejected_at: float | None = None  # when the store first would not take the outcome
    stop_reason: StopReason | None = None
    stop_requested_at: float | None = None  # set by whoever asks first
    handler: RunningHandler | None = None
    context: Context | None = None  # where the handler asked for one
    thread: asyncio.Future[Any] | None = None  # a plain function's run, which nothing can interrupt

    @classmethod
    def from_claim(cls, sent: float, job: Claimed, task: Task[..., Any]) -> Self:
        """Counted from when the claim was *sent*: the store's own count began later, so ours ends first."""
        return cls(job, task, sent + job.lease_seconds, sent + job.lease_seconds / 3)

    @property
    def counts_attempt_if_lost(self) -> bool:
        """Whether the death of the worker costs it an attempt: it ran alone, or must not start twice."""
        return self.runs_alone or self.job.max_attempts == 1

    def expire(self) -> None:
        """A timer's end, on the event loop."""
        self._stop_expired(StopReason.TIMEOUT)

    def expire_transaction(self) -> None:
        """Likewise, for the handler's own transaction."""
        self._stop_expired(StopReason.TRANSACTION)

    def _stop_expired(self, stop: StopReason) -> None:
        if self.stop_reason is None and self.handler is not None and not self.settling:
            self.stop_reason = stop
            self.handler.cancel()

    def record_extension(self, sent: float) -> None:
        """The store accepted an extension that was sent at ``sent``."""
        self.deadline = sent + self.job.lease_seconds
        self.extend_at = sent + self.job.lease_seconds / 3


class ActiveJobs:
    """Every lease this worker holds, by fence."""

    def __init__(self) -> None:
        self._by_fence: dict[int, ActiveJob] = {}

    def add(self, active: ActiveJob) -> None:
        self._by_fence[active.job.lease.fence] = active

    def remove(self, gone: Iterable[ActiveJob]) -> None:
        forget = self._by_fence.pop
        for active in gone:
            forget(active.job.lease.fence, None)

    def snapshot(self) -> list[ActiveJob]:
        """All of them, as of now; safe from any thread."""
        return list(self._by_fence.values())

    def __len__(self) -> int:
        return len(self._by_fence)

    def __contains__(self, active: ActiveJob) -> bool:
        return active.job.lease.fence in self._by_fence
