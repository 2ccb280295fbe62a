"""A store that writes down every call that matters, before it is sent and after it came back."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

from tidewheel.core.model import (
    ActionResult,
    Cancelled,
    Claim,
    Claimed,
    ClaimRequest,
    Completed,
    Enqueued,
    Failed,
    Lease,
    NewDocument,
    NewJob,
    Outcome,
    Released,
    Retried,
    Settlement,
)
from tidewheel.errors import InvalidInput, StoreError, StoreUnavailable
from tidewheel.stores.protocol import Store
from tidewheel.verification.history import (
    CancelAnswered,
    CancelCalled,
    ClaimAnswered,
    ClaimCalled,
    EnqueueAnswered,
    EnqueueCalled,
    ExtendAnswered,
    ExtendCalled,
    Granted,
    HeldLease,
    Recorder,
    RequestedJob,
    RequestedSettlement,
    Result,
    SettleAnswered,
    SettleCalled,
)

T = TypeVar("T")
_Answers = TypeVar("_Answers", list[Enqueued], list[Enqueued] | None)

_OUTCOME_WORDS: dict[type[Outcome], str] = {
    Completed: "complete",
    Retried: "retry",
    Failed: "fail",
    Released: "release",
    Cancelled: "cancel",
}

_numbers = itertools.count(1)
"""Of the calls of this process, whichever store they go to."""


class RecordingStore:
    """Every verb of ``inner``; those that promises are about leave their traces with ``recorder``."""

    def __init__(self, inner: Store, recorder: Recorder, numbers: Iterator[int] = _numbers) -> None:
        self._inner = inner
        self._recorder = recorder
        self._numbers = numbers
        # On SQLite a commit that failed is rolled back by the same process: whoever is told knows.
        self._unavailable = Result.FAILED if inner.url.startswith("sqlite:") else Result.UNKNOWN

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def sibling(self) -> RecordingStore:
        return RecordingStore(self._inner.sibling(), self._recorder, self._numbers)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._enqueue(jobs, self._inner.enqueue(jobs))

    async def enqueue_with_document(
        self, document: NewDocument, jobs: Sequence[NewJob]
    ) -> list[Enqueued] | None:
        """An enqueue that, where the document kept its jobs out, has changed nothing for certain."""
        return await self._enqueue(jobs, self._inner.enqueue_with_document(document, jobs))

    async def _enqueue(self, jobs: Sequence[NewJob], call: Awaitable[_Answers]) -> _Answers:
        number, me = next(self._numbers), self._recorder
        me.write(EnqueueCalled(at=me.now(), process=me.name, call=number, jobs=[_asked(job) for job in jobs]))
        try:
            answers = await call
        except BaseException as error:
            self._over(EnqueueAnswered, number, error)
            raise
        if answers is None:
            me.write(EnqueueAnswered(at=me.now(), process=me.name, call=number, result=Result.FAILED))
            return answers
        me.write(
            EnqueueAnswered(
                at=me.now(),
                process=me.name,
                call=number,
                result=Result.OK,
                ids=[answer.job_id for answer in answers],
                duplicates=[answer.duplicate for answer in answers],
            )
        )
        return answers

    async def claim(self, request: ClaimRequest) -> Claim:
        number, me = next(self._numbers), self._recorder
        # Of topics in which this worker has no room it is told nothing, and so nothing wrong.
        room = request.topic_limits
        topics = list(dict.fromkeys(lane.topic for lane in request.lanes if room.get(lane.topic, 1) > 0))
        me.write(ClaimCalled(at=me.now(), process=me.name, call=number, topics=topics, limit=request.limit))
        try:
            claim = await self._inner.claim(request)
        except BaseException as error:
            self._over(ClaimAnswered, number, error)
            raise
        grants = [_granted(job) for job in claim.jobs]
        me.write(ClaimAnswered(at=me.now(), process=me.name, call=number, result=Result.OK, grants=grants))
        return claim

    async def claim_job(
        self, job_id: UUID, *, worker: str, lease_seconds: float, tenant: str | None = None
    ) -> Claimed | None:
        """A claim that asks for no topic: nothing can be missing from its answer."""
        number, me = next(self._numbers), self._recorder
        me.write(ClaimCalled(at=me.now(), process=me.name, call=number, topics=[], limit=1))
        try:
            job = await self._inner.claim_job(
                job_id, worker=worker, lease_seconds=lease_seconds, tenant=tenant
            )
        except BaseException as error:
            self._over(ClaimAnswered, number, error)
            raise
        grants = [] if job is None else [_granted(job)]
        me.write(ClaimAnswered(at=me.now(), process=me.name, call=number, result=Result.OK, grants=grants))
        return job

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        number, me = next(self._numbers), self._recorder
        held = [HeldLease(lease.job_id, lease.fence) for lease in leases]
        me.write(ExtendCalled(at=me.now(), process=me.name, call=number, leases=held, seconds=lease_seconds))
        try:
            kept = await self._inner.extend(leases, lease_seconds)
        except BaseException as error:
            self._over(ExtendAnswered, number, error)
            raise
        me.write(ExtendAnswered(at=me.now(), process=me.name, call=number, result=Result.OK, kept=kept))
        return kept

    async def touch(self, leases: Sequence[Lease], lease_seconds: float) -> list[float | None]:
        """An extension by as much as its answer says."""
        number, me = next(self._numbers), self._recorder
        held = [HeldLease(lease.job_id, lease.fence) for lease in leases]
        me.write(ExtendCalled(at=me.now(), process=me.name, call=number, leases=held, seconds=lease_seconds))
        try:
            touched = await self._inner.touch(leases, lease_seconds)
        except BaseException as error:
            self._over(ExtendAnswered, number, error)
            raise
        kept = [one is not None for one in touched]
        seconds = [lease_seconds if one is None else one for one in touched]
        me.write(
            ExtendAnswered(
                at=me.now(), process=me.name, call=number, result=Result.OK, kept=kept, seconds=seconds
            )
        )
        return touched

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        number, me = next(self._numbers), self._recorder
        endings = [_ending(settlement) for settlement in settlements]
        me.write(SettleCalled(at=me.now(), process=me.name, call=number, settlements=endings))
        try:
            accepted = await self._inner.settle(settlements)
        except BaseException as error:
            self._over(SettleAnswered, number, error)
            raise
        me.write(
            SettleAnswered(at=me.now(), process=me.name, call=number, result=Result.OK, accepted=accepted)
        )
        return accepted

    async def cancel(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        number, me = next(self._numbers), self._recorder
        me.write(CancelCalled(at=me.now(), process=me.name, call=number, ids=list(job_ids)))
        try:
            verdicts = await self._inner.cancel(job_ids, tenant=tenant)
        except BaseException as error:
            self._over(CancelAnswered, number, error)
            raise
        words = [verdict.value for verdict in verdicts]
        me.write(CancelAnswered(at=me.now(), process=me.name, call=number, result=Result.OK, verdicts=words))
        return verdicts

    def _over(self, answered: Callable[..., Any], number: int, error: BaseException) -> None:
        """The call ended without an answer of the store's."""
        me = self._recorder
        me.write(answered(at=me.now(), process=me.name, call=number, result=self._known_after(error)))

    def _known_after(self, error: BaseException) -> Result:
        if isinstance(error, StoreUnavailable):
            return self._unavailable
        # Anything else that is ours says for certain that nothing happened; a cancellation says nothing.
        return Result.FAILED if isinstance(error, StoreError | InvalidInput) else Result.UNKNOWN


def _asked(job: NewJob) -> RequestedJob:
    return RequestedJob(
        id=job.id,
        topic=job.topic,
        tenant=job.tenant,
        task=job.task,
        key=job.key,
        delay=job.delay,
        max_attempts=job.max_attempts,
        after=job.after,
        after_any=job.after_any,
    )


def _granted(job: Claimed) -> Granted:
    return Granted(
        id=job.lease.job_id,
        fence=job.lease.fence,
        attempt=job.attempt,
        lease=job.lease_seconds,
        topic=job.topic,
        tenant=job.tenant,
        alone=job.losses > 0,
    )


def _ending(settlement: Settlement) -> RequestedSettlement:
    outcome = settlement.outcome
    delay = outcome.delay if isinstance(outcome, Retried | Released) else 0.0
    return RequestedSettlement(
        settlement.lease.job_id, settlement.lease.fence, _OUTCOME_WORDS[type(outcome)], delay
    )
