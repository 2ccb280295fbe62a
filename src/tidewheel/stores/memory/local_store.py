"""The store behind the lane of non-durable tasks: a memory store that keeps objects instead of bodies.

Arguments come in carried by a new job, stay beside it until it ends, and go to the worker carried by each
claim. Results come in carried by a settlement and stay until the job is forgotten. Rows hold neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final, NoReturn, Self
from uuid import UUID

from msgspec import structs

from tidewheel.core.clock import Clock
from tidewheel.core.model import (
    ActionResult,
    Claim,
    Claimed,
    ClaimRequest,
    Completed,
    Enqueued,
    JobError,
    Lane,
    Lease,
    NewDocument,
    NewJob,
    Settlement,
    State,
)
from tidewheel.core.payload import ObjectBody
from tidewheel.errors import Backpressure, JobNotFound, NotOpen, WrongState
from tidewheel.stores.memory import claims
from tidewheel.stores.memory import enqueue as enqueue_writes
from tidewheel.stores.memory import settlements as settlement_writes
from tidewheel.stores.memory.job_rows import JobRow
from tidewheel.stores.memory.job_table import JobTable
from tidewheel.stores.memory.store import MemoryStore
from tidewheel.stores.protocol import Wakeups

MAX_FINISHED: Final = 1000
"""Finished jobs that are remembered; those that would be pruned soonest are forgotten first."""


_PULL_UNSUPPORTED: Final = (
    "their jobs are run by the lane alone and cannot be pulled or kicked; make the task durable"
)


class LocalJobTable(JobTable):
    """Jobs with the objects that belong to them, and how many may wait."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.arguments: dict[UUID, Any] = {}  # of jobs that have not ended
        self.results: dict[UUID, Any] = {}  # of completed jobs, unless they are None
        self.dropped: list[Any] = []  # to be dropped when the verb at hand is done
        self.refused = 0
        self.ended: Counter[State] = Counter()
        self.closed = False
        self.manual = False  # only claims of others than the lane's own worker are granted

    def check_capacity(self, number: int) -> None:
        if self.closed:
            raise NotOpen("the app is being closed; nothing was enqueued, open it again to go on")
        if number and self.pending + number > self.capacity:
            self.refused += number
            raise Backpressure(
                f"{number:,} more do not fit into the lane of non-durable tasks; the limit is "
                f"{self.capacity:,} that wait (lane_capacity). Nothing was enqueued: try again later, "
                "enqueue less at a time, or raise it"
            )

    def finish(self, job: JobRow, state: State, now: int) -> None:
        super().finish(job, state, now)
        self._drop(self.arguments, job.id)
        self.ended[state] += 1
        if self.closed:
            return  # whoever waits for one of those dropped now is to find it
        while len(self.finished) + len(self.kept_for_ever) > MAX_FINISHED:
            if (oldest := self.finished.first() or self.kept_for_ever.first()) is not None:
                self.remove(oldest)

    def remove(self, job: JobRow) -> None:
        super().remove(job)
        self._drop(self.arguments, job.id)
        self._drop(self.results, job.id)

    def put(self, table: dict[UUID, Any], job_id: UUID, value: Any) -> None:
        """Keep an object beside a job, in the place of the one that is there."""
        self._drop(table, job_id)
        table[job_id] = value

    def _drop(self, table: dict[UUID, Any], job_id: UUID) -> None:
        if job_id in table:
            self.dropped.append(table.pop(job_id))


class LocalStore(MemoryStore):
    """The lane's jobs, shared by every thread and event loop of the process."""

    _table: LocalJobTable

    def __init__(self, *, clock: Clock, capacity: int) -> None:
        super().__init__(clock=clock)
        self._table = LocalJobTable(capacity)
        self._open = True  # there is nothing to connect to
        self.is_manual = False  # claims nothing while jobs are run by hand

    def sibling(self) -> Self:
        other = type(self)(clock=self._clock, capacity=self._table.capacity)
        other._table = self._table
        return other

    async def close(self) -> None:
        """Nothing: its jobs are dropped with ``drop_waiting``, and siblings share them."""

    # -- verbs that deal with objects -------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As everywhere, and ``Backpressure`` when more would wait than may. However many: all or none."""
        with self._verb() as table:
            answers = enqueue_writes.enqueue(table, jobs, self._limits, self._clock.now())
            for job, answer in zip(jobs, answers, strict=True):
                if isinstance(job.payload, ObjectBody) and (answer.replaced or not answer.duplicate):
                    table.put(table.arguments, answer.job_id, job.payload.take())
            return answers

    async def enqueue_with_document(self, document: NewDocument, jobs: Sequence[NewJob]) -> NoReturn:  # noqa: ARG002
        """Refused: jobs that are made from a document have bodies, and the lane's have none."""
        raise WrongState(f"{len(jobs):,} jobs of a document are durable; they are in no lane")

    async def claim(self, request: ClaimRequest) -> Claim:
        """Of any lane: whatever is in here was enqueued by this app, for tasks it has."""
        with self._verb() as table:
            if self.is_manual and table.manual:
                return Claim((), None)
            lanes = tuple(Lane(topic) for topic in table.counts)
            claim = claims.claim(table, replace(request, lanes=lanes), self._clock.now())
            jobs = tuple(_with_arguments(table, job) for job in claim.jobs)
            return Claim(jobs, claim.next_due_in, claim.needs_more_slots)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        with self._verb() as table:
            now = self._clock.now()
            answers = []
            for settlement in settlements:
                answers.append(settlement_writes.settle(table, settlement, now))
                outcome, job_id = settlement.outcome, settlement.lease.job_id
                if isinstance(outcome, Completed) and isinstance(outcome.result, ObjectBody):
                    result = outcome.result.take()
                    if answers[-1] and job_id in table.jobs:
                        table.put(table.results, job_id, result)
                    else:
                        table.dropped.append(result)
            return answers

    async def requeue(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        """Refused: the arguments of a job that ended are gone."""
        with self._verb() as table:
            found = [table.find(job_id, tenant) for job_id in job_ids]
        for job in found:
            if job is not None and job.state in (State.FAILED, State.CANCELLED):
                raise WrongState(
                    f"job {job.id} is {job.state} and cannot be requeued: its task is not durable, and its "
                    "arguments were let go when it ended; enqueue it anew"
                )
        return [ActionResult.NOT_FOUND if job is None else ActionResult.WRONG_STATE for job in found]

    async def claim_job(self, job_id: UUID, **_: Any) -> NoReturn:
        """Refused, as the other verbs of those who pull jobs by hand: they are about bodies."""
        raise WrongState(f"job {job_id} is of a task that is not durable; {_PULL_UNSUPPORTED}")

    async def kick(self, topic: str, limit: int, **_: Any) -> NoReturn:  # noqa: ARG002
        raise WrongState(f"the jobs of topic {topic} are of tasks that are not durable; {_PULL_UNSUPPORTED}")

    async def kick_jobs(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> NoReturn:  # noqa: ARG002
        raise WrongState(f"{len(job_ids):,} jobs are of tasks that are not durable; {_PULL_UNSUPPORTED}")

    async def begin_transaction(self, lease: Lease, **_: Any) -> NoReturn:
        """Refused: there is no database to end such a job in."""
        raise WrongState(
            f"job {lease.job_id} is of a task that is not durable, and ctx.transaction ends with a durable "
            "job; make the task durable, or enqueue a durable one from it"
        )

    def wakeups(
        self, *, topics: Collection[str] | None = (), finished: bool = False
    ) -> AbstractAsyncContextManager[Wakeups]:
        """Who asks for any topic hears of all, as claims do."""
        return super().wakeups(topics=None if topics is None or topics else (), finished=finished)

    # -- for the lane -----------------------------------------------------------------------------------

    def __contains__(self, job_id: UUID) -> bool:
        return job_id in self._table.jobs

    def result_of(self, job_id: UUID) -> Any:
        """What a completed job's handler returned, the object itself."""
        with self._verb() as table:
            if job_id not in table.jobs:
                raise JobNotFound(
                    f"there is no job {job_id}; it has been deleted, or forgotten since it ended"
                )
            return table.results.get(job_id)

    @property
    def granted(self) -> int:
        """How many claims of jobs were granted so far; it grows as long as anything happens."""
        return self._table.grant_count

    def idle(self) -> bool:
        """Whether nothing runs and nothing is due."""
        with self._verb() as table:
            table.promote(self._clock.now())
            return not table.leases and len(table.waiting) == table.pending

    def wake_claimers(self) -> None:
        """Have whoever claims here look now: time may have passed that nobody slept through."""
        self._table.hub.notify_ready()

    def counts(self) -> tuple[int, int, Counter[State], int]:
        """Waiting and running jobs, those that ended so far by state, and those that were refused."""
        with self._verb() as table:
            return table.pending, len(table.leases), table.ended.copy(), table.refused

    def set_manual(self, by_hand: bool) -> None:
        """Whether the lane's own worker is to leave the jobs alone."""
        with self._verb() as table:
            table.manual = by_hand
        self.wake_claimers()

    def drop_waiting(self, reason: JobError) -> int:
        """Take no more jobs and cancel those that wait; how many."""
        with self._verb() as table:
            table.closed = True
            waiting = [job for job in table.jobs.values() if job.state is State.PENDING]
            for job in waiting:
                settlement_writes.cancel_job(table, job, reason, self._clock.now())
            return len(waiting)

    @contextmanager
    def _verb(self) -> Iterator[LocalJobTable]:
        let_go: list[Any] = []
        with super()._verb():
            yield self._table
            # Kept until the lock is free: the end of a user's object may run code of theirs.
            let_go, self._table.dropped = self._table.dropped, []
        del let_go


def _with_arguments(table: LocalJobTable, job: Claimed) -> Claimed:
    return structs.replace(job, payload=ObjectBody.wrap(table.arguments[job.lease.job_id]))
