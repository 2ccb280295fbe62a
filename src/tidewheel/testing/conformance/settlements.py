"""How an attempt ends, and what the job then shows."""

from __future__ import annotations

import pytest

from tidewheel.core.model import (
    ActionResult,
    Cancelled,
    Completed,
    Failed,
    JobError,
    JobFilter,
    Outcome,
    Progress,
    Released,
    Report,
    RescueResult,
    Retried,
    State,
)
from tidewheel.stores.bounds import KEPT_ERRORS_FIRST, KEPT_ERRORS_LAST, MAX_SUMMARY_LENGTH
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    LEASE_SECONDS,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    ids,
    settle_one,
)


async def test_a_completed_job_shows_result_and_times(store: Store, clock: FrozenClock) -> None:
    """Final, with its result, who ran it and when; its lease is over."""
    job_id = await enqueue_one(store)
    claimed = await claim_one(store, worker="anna")
    took = clock.now()
    clock.advance(1)
    await store.mark_started([claimed.lease])
    began = clock.now()
    clock.advance(2)
    assert await settle_one(store, claimed.lease, Completed(b'{"ok":true}'), 2.0)
    record = await get_job(store, job_id)
    assert (record.state, record.result, record.attempt) == (State.COMPLETED, b'{"ok":true}', 1)
    assert (record.claimed_at, record.started_at, record.finished_at) == (took, began, clock.now())
    assert (record.worker, record.leased_until, record.fence) == ("anna", None, claimed.lease.fence)
    assert (record.error_summary, record.attempts) == (None, ())
    assert await claim_jobs(store) == []


async def test_a_job_may_complete_without_a_result(store: Store) -> None:
    """None is no result, and differs from JSON null."""
    nothing, null = await enqueue_many(store, 2)
    first, second = await claim_jobs(store)
    await settle_one(store, first.lease, Completed())
    await settle_one(store, second.lease, Completed(b"null"))
    assert (await get_job(store, nothing)).result is None
    assert (await get_job(store, null)).result == b"null"


async def test_a_completed_job_shows_full_progress(store: Store, clock: FrozenClock) -> None:
    """Whatever the handler last said about how far it was; what else it said stays."""
    silent, talkative = await enqueue_many(store, 2)
    first, second = await claim_jobs(store)
    await store.report([Report(second.lease, Progress(40, "rendering", "two"))])
    told = clock.now()
    clock.advance(1)
    await settle_one(store, first.lease, Completed())
    await settle_one(store, second.lease, Completed())
    assert (await get_job(store, silent)).progress == Progress(100, updated_at=clock.now())
    assert (await get_job(store, talkative)).progress == Progress(100, "rendering", "two", updated_at=told)
    page = await store.list_jobs(JobFilter(), limit=10)
    assert [item.progress and item.progress.percent for item in page.items] == [100, 100]


async def test_a_start_that_was_not_recorded_follows_from_the_run_time(
    store: Store, clock: FrozenClock
) -> None:
    """A quick job need not record its start to show one."""
    job_id = await enqueue_one(store)
    claimed = await claim_one(store)
    clock.advance(5)
    await settle_one(store, claimed.lease, Completed(), 1.5)
    assert (await get_job(store, job_id)).started_at == clock.now() - 1_500_000


async def test_a_retried_job_waits_and_keeps_its_error(store: Store, clock: FrozenClock) -> None:
    """Counted, recorded, due after the delay, and no longer anybody's."""
    job_id = await enqueue_one(store)
    claimed = await claim_one(store, worker="anna")
    await store.mark_started([claimed.lease])
    began = clock.now()
    clock.advance(1)
    assert await settle_one(store, claimed.lease, Retried(10, BOOM), 1.0)
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.run_at) == (State.PENDING, 1, clock.now() + 10_000_000)
    assert (record.worker, record.claimed_at, record.started_at, record.leased_until) == (None,) * 4
    assert (record.finished_at, record.error_summary) == (None, "boom: it broke")
    [attempt] = record.attempts
    assert (attempt.attempt, attempt.worker, attempt.started_at, attempt.ended_at) == (
        1,
        "anna",
        began,
        clock.now(),
    )
    assert attempt.error == BOOM
    clock.advance(9.999999)
    assert await claim_jobs(store) == []
    clock.advance(0.000001)
    assert (await claim_one(store)).attempt == 2


async def test_a_retry_after_the_last_attempt_fails_the_job(store: Store) -> None:
    """No job is ever granted more attempts than it has, whatever its worker asks for."""
    job_id = await enqueue_one(store, max_attempts=1)
    assert await settle_one(store, (await claim_one(store)).lease, Retried(0, BOOM))
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.attempts[-1].error) == (State.FAILED, 1, BOOM)


@pytest.mark.parametrize("outcome", [Retried(0, BOOM), Released()], ids=["retried", "released"])
async def test_a_job_given_back_at_once_has_been_due_all_along(
    store: Store, clock: FrozenClock, outcome: Outcome
) -> None:
    """Without a delay the due time stays, so its wait is measured from there."""
    job_id = await enqueue_one(store)
    due = (await get_job(store, job_id)).run_at
    claimed = await claim_one(store)
    clock.advance(1)
    await settle_one(store, claimed.lease, outcome)
    assert (await get_job(store, job_id)).run_at == due


async def test_a_failed_job_is_the_dead_letter(store: Store, clock: FrozenClock) -> None:
    """Final, kept, with its error."""
    job_id = await enqueue_one(store)
    clock.advance(1)
    assert await settle_one(store, (await claim_one(store)).lease, Failed(BOOM), 0.25)
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.finished_at) == (State.FAILED, 1, clock.now())
    assert record.error_summary == "boom: it broke"
    assert [(one.attempt, one.error) for one in record.attempts] == [(1, BOOM)]
    assert record.started_at == record.attempts[0].started_at == clock.now() - 250_000
    assert await claim_jobs(store) == []


async def test_a_released_job_is_as_before_the_claim(store: Store) -> None:
    """Not counted, no error, same priority."""
    job_id = await enqueue_one(store, priority=3)
    before = await get_job(store, job_id)
    claimed = await claim_one(store)
    await store.mark_started([claimed.lease])
    assert await settle_one(store, claimed.lease, Released())
    after = await get_job(store, job_id)
    assert (after.state, after.attempt, after.priority) == (State.PENDING, 0, 3)
    assert (after.worker, after.claimed_at, after.started_at, after.leased_until) == (None,) * 4
    assert (after.attempts, after.error_summary, after.run_at) == ((), None, before.run_at)
    assert (await claim_one(store)).attempt == 1


async def test_release_can_delay_and_reprioritise(store: Store, clock: FrozenClock) -> None:
    """As beanstalkd's release does."""
    job_id = await enqueue_one(store)
    other = await enqueue_one(store, priority=1)
    [_, mine] = await claim_jobs(store)
    await settle_one(store, mine.lease, Released(delay=5, priority=-2))
    assert (await get_job(store, mine.lease.job_id)).priority == -2
    assert await claim_jobs(store) == []
    clock.advance(5)
    await store.cancel([other])
    assert ids(await claim_jobs(store)) == [job_id]


async def test_a_cancelled_outcome_ends_the_job(store: Store, clock: FrozenClock) -> None:
    """The handler's own reason is kept with the attempt."""
    job_id = await enqueue_one(store)
    reason = JobError("job_canceled", "no longer needed", retryable=False)
    assert await settle_one(store, (await claim_one(store)).lease, Cancelled(reason), 1.0)
    record = await get_job(store, job_id)
    assert (record.state, record.finished_at) == (State.CANCELLED, clock.now())
    assert record.error_summary == "job_canceled: no longer needed"
    assert [(one.attempt, one.error) for one in record.attempts] == [(1, reason)]


async def test_a_handler_that_finishes_first_beats_the_cancel_request(store: Store) -> None:
    """Completed and failed stand; the request is moot."""
    job_ids = await enqueue_many(store, 2)
    first, second = await claim_jobs(store)
    assert await store.cancel(job_ids) == [ActionResult.REQUESTED] * 2
    await settle_one(store, first.lease, Completed(b"1"))
    await settle_one(store, second.lease, Failed(BOOM))
    assert await store.states(job_ids) == [State.COMPLETED, State.FAILED]
    for job_id in job_ids:
        assert not (await get_job(store, job_id)).cancel_requested


async def test_a_job_to_be_cancelled_does_not_come_back(store: Store, clock: FrozenClock) -> None:
    """Retried and released jobs with a request end as cancelled: the one counted, the other not."""
    retried, released = await enqueue_many(store, 2)
    first, second = await claim_jobs(store)
    await store.cancel([retried, released])
    assert await settle_one(store, first.lease, Retried(5, BOOM))
    assert await settle_one(store, second.lease, Released(5, priority=7))
    for job_id, attempt, errors in ((retried, 1, [BOOM]), (released, 0, [])):
        record = await get_job(store, job_id)
        assert (record.state, record.attempt, record.finished_at) == (State.CANCELLED, attempt, clock.now())
        assert [one.error for one in record.attempts] == errors
        assert record.error_summary is not None
        assert record.error_summary.startswith("job_canceled: ")
        assert (record.cancel_requested, record.priority) == (False, 0)
    clock.advance(5)
    assert await claim_jobs(store) == []


async def test_a_failed_job_is_nobodys_until_it_is_requeued(store: Store, clock: FrozenClock) -> None:
    """However long one waits: that is for an operator to decide."""
    job_id = await enqueue_one(store, retention_failed=None)
    await settle_one(store, (await claim_one(store)).lease, Failed(BOOM))
    clock.advance(10 * 365 * 86_400)
    assert await store.rescue() == RescueResult()
    assert await store.prune() == {}
    assert await claim_jobs(store) == []
    assert (await get_job(store, job_id)).error_summary == "boom: it broke"
    await store.requeue([job_id])
    assert (await claim_one(store)).attempt == 1


async def test_a_job_keeps_its_moment_of_creation_and_shows_the_last_claim(
    store: Store, clock: FrozenClock
) -> None:
    """Through retries, releases, rescues, a requeue and its end."""
    job_id = await enqueue_one(store)
    created = clock.now()
    for outcome in (Retried(0, BOOM), Released(), None, Failed(BOOM), Completed()):
        clock.advance(LEASE_SECONDS)
        claimed = await claim_one(store)
        assert (await get_job(store, job_id)).claimed_at == clock.now()
        if outcome is not None:  # else its worker is lost
            clock.advance(1)
            await settle_one(store, claimed.lease, outcome)
        if isinstance(outcome, Failed):
            await store.requeue([job_id])
        record = await get_job(store, job_id)
        assert record.created_at == created
        assert record.finished_at == (clock.now() if isinstance(outcome, Completed) else None)


async def test_of_many_errors_the_first_and_the_last_are_kept(store: Store) -> None:
    """Ten of each: how it began and how it is now."""
    job_id = await enqueue_one(store, max_attempts=None)
    for number in range(1, 31):
        await settle_one(
            store, (await claim_one(store)).lease, Retried(0, JobError("boom", f"error {number}"))
        )
    record = await get_job(store, job_id)
    kept = [*range(1, KEPT_ERRORS_FIRST + 1), *range(31 - KEPT_ERRORS_LAST, 31)]
    assert [one.attempt for one in record.attempts] == kept
    assert [one.error.message for one in record.attempts] == [f"error {number}" for number in kept]
    assert record.error_summary == "boom: error 30"


async def test_all_errors_are_kept_as_long_as_they_fit(store: Store) -> None:
    """Nothing is dropped before it has to be."""
    job_id = await enqueue_one(store, max_attempts=None)
    for _ in range(KEPT_ERRORS_FIRST + KEPT_ERRORS_LAST):
        await settle_one(store, (await claim_one(store)).lease, Retried(0, BOOM))
    assert [one.attempt for one in (await get_job(store, job_id)).attempts] == list(range(1, 21))


async def test_the_error_summary_is_cut(store: Store) -> None:
    """A list shows a line, the job itself the whole message."""
    job_id = await enqueue_one(store)
    error = JobError("boom", "é" * 1000)
    await settle_one(store, (await claim_one(store)).lease, Failed(error))
    record = await get_job(store, job_id)
    assert record.error_summary == ("boom: " + "é" * 1000)[:MAX_SUMMARY_LENGTH]
    assert record.attempts[0].error == error


async def test_the_error_of_an_earlier_attempt_stays_with_a_completed_job(store: Store) -> None:
    """That it erred before is part of its story."""
    job_id = await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Retried(0, BOOM))
    await settle_one(store, (await claim_one(store)).lease, Completed())
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.error_summary) == (State.COMPLETED, 2, "boom: it broke")
    assert len(record.attempts) == 1
