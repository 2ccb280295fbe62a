"""A reserved job, the verbs that end its reservation, and the limits on extending it.

The limits apply to one reservation: how many touches, how much time they add, and the interval between two.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

from tidewheel.client.sync.blocking_queue import BlockingReserved
from tidewheel.client.sync.portal import BlockingWrapper
from tidewheel.core import payload
from tidewheel.core.model import (
    BodyFormat,
    Completed,
    Failed,
    FailureOrigin,
    JobError,
    Outcome,
    Released,
    Settlement,
)
from tidewheel.core.names import check_text
from tidewheel.core.validation import check_integer, check_seconds
from tidewheel.errors import InvalidInput, NotReserved, TouchLimitExceeded
from tidewheel.pull.dispatcher import reservations_of
from tidewheel.pull.job_returner import PulledJob
from tidewheel.settings import Settings
from tidewheel.tasks.options import MAX_PRIORITY

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.client.connections import LoopConnections

DEFAULT_BURY_ERROR: Final = JobError("buried", "put away by hand; kick brings it back", retryable=False)
"""What is kept of a job that was buried without a reason."""


class Reserved:
    """A job that is yours until its time to run is over. One verb ends that: delete, release or bury.

    Each of them raises ``NotReserved`` when the time was over already, and then changes nothing.
    """

    def __init__(
        self, app: Tidewheel, connections: LoopConnections, pulled: PulledJob, limits: TouchLimits
    ) -> None:
        self._app = app
        self._connections = connections
        self._job = pulled.job
        self._granted_at = pulled.granted_at
        self._ends_at = pulled.granted_at + pulled.job.lease_seconds
        self._limits = limits
        self._touched_at = pulled.granted_at
        self._touches = 0

    def __repr__(self) -> str:
        return f"<Reserved {self.id} of {self.topic}>"

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self._job.lease.job_id

    @property
    def number(self) -> int:
        """Store-wide, in enqueue order; the job's id on the beanstalkd wire."""
        return self._job.number

    @property
    def topic(self) -> str:
        """The lane it waited in."""
        return self._job.topic

    @property
    def task(self) -> str:
        """The name of its task; empty when it was put by hand."""
        return self._job.task

    @property
    def tenant(self) -> str:
        """Whom it belongs to."""
        return self._job.tenant

    @property
    def priority(self) -> int:
        """Higher comes first."""
        return self._job.priority

    @property
    def attempt(self) -> int:
        """How many runs have been counted, this one included."""
        return self._job.attempt

    @property
    def ttr(self) -> float:
        """Seconds it is yours for, from the reservation or the last touch."""
        return self._job.lease_seconds

    @property
    def time_left(self) -> float:
        """Seconds until it is anybody's again; 0 when it is already."""
        return max(0.0, self._ends_at - self._app.clock.monotonic())

    @property
    def raw(self) -> bytes:
        """The body as it is stored."""
        return self._job.payload

    @property
    def body(self) -> Any:
        """The body: bytes as they were put, anything else as JSON tells it."""
        return self.raw if self._job.format is BodyFormat.BYTES else payload.decode(self.raw)

    async def delete(self) -> None:
        """It is done. The job ends as completed."""
        await self._end(Completed(), "deleted")

    def start_delete(self, *, next_topics: frozenset[str] | None, calls_again: bool) -> asyncio.Future[bool]:
        """The same for who does not wait for it here; False when it was not yours any more.

        ``then``: you are going to ask for a job of these topics at once, as you did before.
        ``quick``: you are going to do something at once.
        """
        return self._start_end(Completed(), next_topics, quick=calls_again)

    async def release(self, *, priority: int | None = None, delay: float | timedelta = 0) -> None:
        """Give it back, to be reserved again: now or after ``delay`` seconds, by anybody."""
        seconds = check_seconds("delay", delay, 0)
        await self._end(Released(seconds, _check_priority(priority)), "released")

    async def bury(self, *, priority: int | None = None, reason: str | None = None) -> None:
        """Put it away until somebody kicks it. The job ends as failed, and is kept without a limit."""
        error = DEFAULT_BURY_ERROR
        if reason is not None:
            error = JobError("buried", check_text("reason", reason, 1000), retryable=False)
        await self._end(Failed(error, FailureOrigin.BURIED, _check_priority(priority)), "buried")

    async def touch(self) -> float:
        """Start its time to run anew; how many seconds that is. ``TouchLimitExceeded`` when it is too soon
        or too often, see ``max_touches``.
        """
        now = self._app.clock.monotonic()
        problem = self._limits.find_violation(
            touches=self._touches, since_last=now - self._touched_at, added=now - self._granted_at
        )
        if problem is not None:
            raise TouchLimitExceeded(problem)
        seconds = await reservations_of(self._connections).touch(self._job.lease, self.ttr)
        if seconds is None:
            raise self._lost("touched")
        self._touches += 1
        self._touched_at = now
        self._ends_at = now + seconds
        return seconds

    async def _end(self, outcome: Outcome, done: str) -> None:
        held = await self._start_end(outcome)
        self._ends_at = 0.0
        if not held:
            raise self._lost(done)

    def _start_end(
        self, outcome: Outcome, then: frozenset[str] | None = None, *, quick: bool = True
    ) -> asyncio.Future[bool]:
        settlement = Settlement(self._job.lease, outcome, self._app.clock.monotonic() - self._granted_at)
        return reservations_of(self._connections).end(settlement, next_topics=then, calls_again=quick)

    def _lost(self, done: str) -> NotReserved:
        return NotReserved(
            f"job {self.id} cannot be {done}: it is not reserved by you any more, because its {self.ttr:g} s "
            "(ttr) were over or it was ended before; put it with a longer ttr, or touch it in time"
        )

    @property
    def sync(self) -> BlockingReserved:
        """The same with blocking calls."""
        return BlockingReserved(self, self._app.portal)


async def return_abandoned(reserved: Reserved) -> None:
    """Its holder is gone: the job is released, and not counted as that, because nobody asked for it."""
    await reserved._end(Released(counted=False), "given back")


def _check_priority(value: int | None) -> int | None:
    return None if value is None else check_integer("priority", value, -MAX_PRIORITY, MAX_PRIORITY)


def check_reserved(value: Any) -> Reserved:
    """A reserved job, or its blocking version."""
    reserved = value.inner if isinstance(value, BlockingWrapper) else value
    if not isinstance(reserved, Reserved):
        raise InvalidInput(
            f"this was given a {type(value).__name__}; it takes what reserve() answered, because only who "
            "has reserved a job may do this to it"
        )
    return reserved


@dataclass(frozen=True, slots=True)
class TouchLimits:
    """None is no limit."""

    max_touches: int | None = None  # touches of one reservation
    max_seconds: float | None = None  # seconds that all of them together may add
    min_interval: float | None = None  # seconds from one to the next; the first may come at once

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        return cls(settings.max_touches, settings.max_touch_duration, settings.min_touch_interval)

    def find_violation(self, *, touches: int, since_last: float, added: float) -> str | None:
        """What is wrong with one more touch; None when nothing is.

        ``touches``: how many there were. ``since_last``: seconds; it counts only after a touch. ``added``:
        seconds beyond the reservation's first end that the job would be held for then.
        """
        if self.max_touches is not None and touches >= self.max_touches:
            return f"this job was touched {touches} times; the limit is {self.max_touches} (max_touches)"
        if self.min_interval is not None and touches and since_last < self.min_interval:
            return (
                f"this job was touched {since_last:.1f} s ago; "
                f"{self.min_interval:g} s have to lie between two touches (min_touch_interval)"
            )
        if self.max_seconds is not None and added > self.max_seconds:
            return (
                f"this touch would make it {added:.0f} s longer than it was reserved for; "
                f"the limit is {self.max_seconds:g} s (max_touch_duration)"
            )
        return None


NO_TOUCH_LIMITS = TouchLimits()
