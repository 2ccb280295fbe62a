"""Poison jobs run alone and do not take neighbours with them (Q23)."""

from __future__ import annotations

from uuid import UUID

from tidewheel.core.model import JobFilter, JobRecord, Released, RescueResult, Retried, State
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    LEASE_SECONDS,
    claim_from,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    ids,
    settle_one,
)


async def _lose_worker(store: Store, clock: FrozenClock) -> RescueResult:
    clock.advance(LEASE_SECONDS)
    return await store.rescue()


async def test_unstarted_jobs_of_a_lost_worker_are_not_counted(store: Store, clock: FrozenClock) -> None:
    """Nobody can tell which of them killed it, so none is charged."""
    job_ids = await enqueue_many(store, 3)
    await claim_jobs(store)
    assert await _lose_worker(store, clock) == RescueResult(returned=3)
    for job_id in job_ids:
        record = await get_job(store, job_id)
        assert (record.state, record.attempt, record.attempts) == (State.PENDING, 0, ())
        assert (record.worker, record.claimed_at, record.leased_until) == (None, None, None)


async def test_suspects_are_granted_one_by_one(store: Store, clock: FrozenClock) -> None:
    """Each in a claim of its own, and the claim says so."""
    job_ids = await enqueue_many(store, 3)
    await claim_jobs(store)
    await _lose_worker(store, clock)
    for job_id in job_ids:
        answer = await claim_from(store)
        assert ids(list(answer.jobs)) == [job_id]
        assert answer.jobs[0].losses == 1
        assert answer.next_due_in == 0, "there may be more"
    assert await claim_jobs(store) == []


async def test_a_suspect_ends_the_claim_before_it(store: Store, clock: FrozenClock) -> None:
    """Jobs before it are granted together; jobs after it wait for the next claim."""
    await enqueue_many(store, 2)
    await claim_jobs(store)
    await _lose_worker(store, clock)
    first_suspect, second_suspect = (one.id for one in (await _pending(store)))
    before = await enqueue_many(store, 2, priority=1)
    after = await enqueue_many(store, 2, priority=-1)
    answer = await claim_from(store)
    assert ids(list(answer.jobs)) == before
    assert answer.next_due_in == 0
    assert ids(await claim_jobs(store)) == [first_suspect]
    assert ids(await claim_jobs(store)) == [second_suspect]
    assert ids(await claim_jobs(store)) == after


async def test_a_suspect_of_a_full_topic_does_not_block_other_topics(
    store: Store, clock: FrozenClock
) -> None:
    """What may not be granted anyway cannot end a claim."""
    await enqueue_many(store, 2, "risky")
    await claim_jobs(store, "risky")
    await _lose_worker(store, clock)
    safe = await enqueue_many(store, 2, "safe")
    assert ids(await claim_jobs(store, "risky", "safe", topic_limits={"risky": 0})) == safe


async def test_losing_the_worker_of_a_job_granted_alone_counts(store: Store, clock: FrozenClock) -> None:
    """It was the only one there, so it is charged, started or not."""
    job_ids = await enqueue_many(store, 2)
    await claim_jobs(store)
    await _lose_worker(store, clock)
    await claim_jobs(store)
    assert await _lose_worker(store, clock) == RescueResult(returned=1)
    record = await get_job(store, job_ids[0])
    assert record.attempt == 1
    assert [(one.attempt, one.error.code) for one in record.attempts] == [(1, "worker_lost")]
    assert record.attempts[0].worker == "worker-1"
    assert record.attempts[0].ended_at == clock.now()
    assert record.attempts[0].error.retryable
    assert record.error_summary is not None
    assert record.error_summary.startswith("worker_lost: ")


async def test_the_only_job_of_a_claim_was_granted_alone(store: Store, clock: FrozenClock) -> None:
    """A claimer that does not report starts has begun the only job of its claim, as far as is known."""
    job_id = await enqueue_one(store)
    assert (await claim_one(store)).losses == 0
    assert await _lose_worker(store, clock) == RescueResult(returned=1)
    assert (await get_job(store, job_id)).attempt == 1


async def test_jobs_never_started_by_a_worker_that_reports_starts_are_not_counted(
    store: Store, clock: FrozenClock
) -> None:
    """Also the only job of its claim: its worker may hold it unstarted, or have heard of it too late."""
    job_id = await enqueue_one(store, max_attempts=1)
    for losses in range(4):
        only = await claim_one(store, reports_starts=True)
        assert (only.losses, only.attempt) == (losses, 1)
        assert await _lose_worker(store, clock) == RescueResult(returned=1)
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.attempts) == (State.PENDING, 0, ())


async def test_jobs_that_were_started_in_company_are_not_counted(store: Store, clock: FrozenClock) -> None:
    """Any of them may have killed the worker, so none is charged, not even on its last attempt."""
    job_ids = await enqueue_many(store, 3, max_attempts=1)
    claimed = await claim_jobs(store, reports_starts=True)
    assert await store.mark_started([one.lease for one in claimed], alone=False) == [True] * 3
    assert await _lose_worker(store, clock) == RescueResult(returned=3)
    for job_id in job_ids:
        record = await get_job(store, job_id)
        assert (record.state, record.attempt, record.attempts) == (State.PENDING, 0, ())


async def test_a_job_that_was_started_alone_is_counted(store: Store, clock: FrozenClock) -> None:
    """Nothing else can have killed its worker, also if a start in company was reported before or after."""
    job_id = await enqueue_one(store, max_attempts=3)
    for attempt, order in enumerate([(True,), (False, True), (True, False)], 1):
        only = await claim_one(store, reports_starts=True)
        assert (only.attempt, only.losses) == (attempt, attempt - 1)
        for alone in order:
            assert await store.mark_started([only.lease], alone=alone) == [True]
        await _lose_worker(store, clock)
    record = await get_job(store, job_id)
    assert (record.state, record.attempt) == (State.FAILED, 3)
    assert [one.attempt for one in record.attempts] == [1, 2, 3]


async def test_a_started_job_is_counted_its_neighbour_is_not(store: Store, clock: FrozenClock) -> None:
    """A start that was reported without company is proof enough."""
    started, unstarted = await enqueue_many(store, 2)
    claimed = await claim_jobs(store)
    clock.advance(1)
    await store.mark_started([claimed[0].lease])
    began = clock.now()
    await _lose_worker(store, clock)
    record = await get_job(store, started)
    assert (record.attempt, record.attempts[0].started_at, record.started_at) == (1, began, None)
    assert (await get_job(store, unstarted)).attempt == 0


async def test_every_lost_worker_makes_a_suspect_and_is_counted_as_a_loss(
    store: Store, clock: FrozenClock
) -> None:
    """A counted attempt proves nothing; the number of losses says how much company a job may have."""
    await enqueue_many(store, 2, max_attempts=9)
    for losses in range(3):
        if losses == 0:
            claimed = await claim_jobs(store)
        else:
            claimed = [await claim_one(store), await claim_one(store)]
        assert [one.losses for one in claimed] == [losses, losses]
        await store.mark_started([one.lease for one in claimed], alone=losses == 1)
        await _lose_worker(store, clock)


async def test_an_ordinary_last_attempt_has_company(store: Store) -> None:
    """Only a lost worker makes a job suspect: a single attempt by choice does not."""
    await enqueue_many(store, 3, max_attempts=1)
    claimed = await claim_jobs(store)
    assert [(one.losses, one.last_attempt) for one in claimed] == [(0, True)] * 3


async def test_a_poison_job_fails_after_its_attempts(store: Store, clock: FrozenClock) -> None:
    """A job that kills every worker ends, and its neighbour comes through uncharged."""
    poison, neighbour = await enqueue_many(store, 2, max_attempts=3)
    for _ in range(20):
        if await _is_final(store, poison):
            break
        await claim_jobs(store)  # and the worker dies before it can say anything
        for one in await claim_jobs(store):
            if one.lease.job_id == neighbour:
                await settle_one(store, one.lease, Released())
        await _lose_worker(store, clock)
    record = await get_job(store, poison)
    assert (record.state, record.attempt) == (State.FAILED, 3)
    assert [one.attempt for one in record.attempts] == [1, 2, 3]
    assert record.finished_at == clock.now()
    assert (await get_job(store, neighbour)).state is State.PENDING


async def test_a_retry_clears_the_suspicion_a_release_does_not(store: Store, clock: FrozenClock) -> None:
    """A worker that lived to report an error clears the job; giving it back unstarted proves nothing."""
    await enqueue_many(store, 2)
    await claim_jobs(store)
    await _lose_worker(store, clock)
    suspect = await claim_one(store)
    await settle_one(store, suspect.lease, Released())
    suspect = await claim_one(store)
    assert suspect.losses == 1
    await settle_one(store, suspect.lease, Retried(0, BOOM))
    assert (await claim_one(store)).losses == 0


async def test_requeue_clears_the_suspicion(store: Store, clock: FrozenClock) -> None:
    """An operator who brings a job back starts it afresh."""
    job_ids = await enqueue_many(store, 2)
    await claim_jobs(store)
    await _lose_worker(store, clock)
    await store.cancel(job_ids)
    await store.requeue(job_ids)
    assert [one.losses for one in await claim_jobs(store)] == [0, 0]


async def _is_final(store: Store, job_id: UUID) -> bool:
    found = (await store.states([job_id]))[0]
    return found is not None and found.final


async def _pending(store: Store) -> list[JobRecord]:
    page = await store.list_jobs(JobFilter(state=State.PENDING), limit=10)
    return list(reversed(page.items))
