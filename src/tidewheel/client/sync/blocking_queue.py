"""The twins behind ``.sync``, written by ``scripts/make_blocking_twins.py``: do not edit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from tidewheel.client.sync.blocking_jobs import BlockingJob
from tidewheel.client.sync.portal import BlockingWrapper

if TYPE_CHECKING:
    from tidewheel.pull.queue import Queue
    from tidewheel.pull.queue_stats import JobStats, QueueStats, Recovery, TopicState
    from tidewheel.pull.reserved_job import Reserved
    from tidewheel.tasks.options import PutOptions


class BlockingReserved(BlockingWrapper["Reserved"]):
    """Blocking twin of :class:`~tidewheel.pull.reserved_job.Reserved`."""

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self._inner.id

    @property
    def number(self) -> int:
        """Store-wide, in enqueue order; the job's id on the beanstalkd wire."""
        return self._inner.number

    @property
    def topic(self) -> str:
        """The lane it waited in."""
        return self._inner.topic

    @property
    def task(self) -> str:
        """The name of its task; empty when it was put by hand."""
        return self._inner.task

    @property
    def tenant(self) -> str:
        """Whom it belongs to."""
        return self._inner.tenant

    @property
    def priority(self) -> int:
        """Higher comes first."""
        return self._inner.priority

    @property
    def attempt(self) -> int:
        """How many runs have been counted, this one included."""
        return self._inner.attempt

    @property
    def ttr(self) -> float:
        """Seconds it is yours for, from the reservation or the last touch."""
        return self._inner.ttr

    @property
    def time_left(self) -> float:
        """Seconds until it is anybody's again; 0 when it is already."""
        return self._inner.time_left

    @property
    def raw(self) -> bytes:
        """The body as it is stored."""
        return self._inner.raw

    @property
    def body(self) -> Any:
        """The body: bytes as they were put, anything else as JSON tells it."""
        return self._inner.body

    def delete(self) -> None:
        """It is done. The job ends as completed."""
        self._portal.run(self._inner.delete)

    def release(self, *, priority: int | None = None, delay: float | timedelta = 0) -> None:
        """Give it back, to be reserved again: now or after ``delay`` seconds, by anybody."""
        self._portal.run(self._inner.release, priority=priority, delay=delay)

    def bury(self, *, priority: int | None = None, reason: str | None = None) -> None:
        """Put it away until somebody kicks it. The job ends as failed, and is kept without a limit."""
        self._portal.run(self._inner.bury, priority=priority, reason=reason)

    def touch(self) -> float:
        """Start its time to run anew; how many seconds that is. ``TouchLimitExceeded`` when it is too soon
        or too often, see ``max_touches``.
        """
        return self._portal.run(self._inner.touch)


class BlockingQueue(BlockingWrapper["Queue"]):
    """Blocking twin of :class:`~tidewheel.pull.queue.Queue`."""

    def put(
        self,
        topic: str,
        body: Any = None,
        *,
        ttr: float | timedelta | None = None,
        **options: Unpack[PutOptions],
    ) -> BlockingJob[Any]:
        """Make a job: bytes are kept as they are, anything else as JSON.

        ``ttr``: seconds a reservation of it lasts, at least 1; None is the setting ``default_ttr``. Attempts
        are not limited unless ``max_attempts`` is given. Other options are those of ``enqueue``.
        """
        return BlockingJob(self._portal.run(self._inner.put, topic, body, ttr=ttr, **options), self._portal)

    def reserve(
        self, topics: str | Iterable[str], timeout: float | timedelta | None = None
    ) -> BlockingReserved:
        """Wait for the next job of these topics and take it, for as long as its ``ttr``.

        ``ReserveTimeout`` when there was none within ``timeout`` seconds; 0 is one look, None waits on.
        """
        return BlockingReserved(self._portal.run(self._inner.reserve, topics, timeout), self._portal)

    def reserve_job(self, job_id: UUID | str) -> BlockingReserved:
        """Take just this job, whether it is ready, delayed or buried, and whether its topic is paused.

        ``WrongState`` when it is in none of these states, ``JobNotFound`` when there is no such job.
        """
        return BlockingReserved(self._portal.run(self._inner.reserve_job, job_id), self._portal)

    def delete(self, job: Reserved | BlockingReserved | UUID | str) -> None:
        """A reserved job is done, and ends as completed; any other that nobody has reserved is removed."""
        self._portal.run(self._inner.delete, job)

    def release(
        self,
        reserved: Reserved | BlockingReserved,
        *,
        priority: int | None = None,
        delay: float | timedelta = 0,
    ) -> None:
        """See :meth:`Reserved.release`."""
        self._portal.run(self._inner.release, reserved, priority=priority, delay=delay)

    def bury(
        self, reserved: Reserved | BlockingReserved, *, priority: int | None = None, reason: str | None = None
    ) -> None:
        """See :meth:`Reserved.bury`."""
        self._portal.run(self._inner.bury, reserved, priority=priority, reason=reason)

    def touch(self, reserved: Reserved | BlockingReserved) -> float:
        """See :meth:`Reserved.touch`."""
        return self._portal.run(self._inner.touch, reserved)

    def kick(self, topic: str, bound: int = 1) -> int:
        """Bring back up to ``bound`` buried jobs of a topic, those buried first first; where there are none,
        make as many delayed ones ready. How many it were.
        """
        return self._portal.run(self._inner.kick, topic, bound)

    def kick_job(self, job_id: UUID | str) -> None:
        """The same for one job, buried or delayed; ``NotBuried`` for another."""
        self._portal.run(self._inner.kick_job, job_id)

    def peek(self, job_id: UUID | str) -> BlockingJob[Any]:
        """One job with its body, or ``JobNotFound``."""
        return BlockingJob(self._portal.run(self._inner.peek, job_id), self._portal)

    def job_id(self, number: int) -> UUID | None:
        """The id of the job with this number; None when there is none."""
        return self._portal.run(self._inner.job_id, number)

    def peek_ready(self, topic: str) -> BlockingJob[Any] | None:
        """The job of this topic that would be reserved next; None when none is ready."""
        return (
            None
            if (answer := self._portal.run(self._inner.peek_ready, topic)) is None
            else BlockingJob(answer, self._portal)
        )

    def peek_delayed(self, topic: str) -> BlockingJob[Any] | None:
        """The delayed job of this topic that will be ready next."""
        return (
            None
            if (answer := self._portal.run(self._inner.peek_delayed, topic)) is None
            else BlockingJob(answer, self._portal)
        )

    def peek_buried(self, topic: str) -> BlockingJob[Any] | None:
        """The job of this topic that would be kicked next."""
        return (
            None
            if (answer := self._portal.run(self._inner.peek_buried, topic)) is None
            else BlockingJob(answer, self._portal)
        )

    def stats(self) -> QueueStats:
        """Counts over all topics."""
        return self._portal.run(self._inner.stats)

    def stats_topic(self, topic: str) -> TopicState:
        """Counts of one topic; zeros for one that has no jobs."""
        return self._portal.run(self._inner.stats_topic, topic)

    def stats_job(self, job_id: UUID | str) -> JobStats:
        """What happened to one job so far, or ``JobNotFound``."""
        return self._portal.run(self._inner.stats_job, job_id)

    def list_topics(self) -> list[str]:
        """Every topic that has jobs or is paused, by name. One that has none any more is not listed."""
        return self._portal.run(self._inner.list_topics)

    def pause(self, topic: str, seconds: float | timedelta | None = None) -> None:
        """Give out no jobs of this topic, for some time or until ``app.resume``."""
        self._portal.run(self._inner.pause, topic, seconds)

    def wait_for_recovery(
        self,
        timeout: float | timedelta | None = None,
        callback: Callable[[Recovery], Awaitable[None] | None] | None = None,
    ) -> Recovery:
        """What there is after a start. Returns at once: jobs are where they were, in the database.

        ``timeout`` is there for programs that expect to wait. ``callback`` is called once, with the same.
        """
        return self._portal.run(self._inner.wait_for_recovery, timeout, callback)
