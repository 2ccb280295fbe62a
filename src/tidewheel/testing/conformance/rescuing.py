"""Recovery needs no operator: ended leases and expired jobs (Q12, Q15)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from tidewheel.clock import MICROSECONDS
from tidewheel.model import Rescued, RescuedJob, State, Verdict
from tidewheel.outcome import Completed, Released, Retried
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import (
    BOOM,
    LEASE_SECONDS,
    TOPIC,
    claim,
    claim_one,
    end,
    ids,
    look,
    put,
    put_many,
    state,
)


async def test_nothing_to_rescue(store: Store) -> None:
    """Waiting and validly leased jobs are left alone."""
    await put_many(store, 2)
    await claim_one(store)
    assert await store.rescue() == Rescued()


async def test_a_lease_is_rescued_at_its_end_not_before(store: Store, clock: FrozenClock) -> None:
    """It holds while now < leased_until."""
    job_id = await put(store)
    await claim_one(store)
    clock.advance(LEASE_SECONDS - 0.000001)
    assert await store.rescue() == Rescued()
    clock.advance(0.000001)
    assert await store.rescue() == Rescued(returned=1)
    assert await state(store, job_id) is State.PENDING


async def test_a_claim_rescues_before_it_chooses(store: Store, clock: FrozenClock) -> None:
    """No worker is told "empty" while an orphan waits."""
    job_id = await put(store)
    first = await claim_one(store)
    clock.advance(LEASE_SECONDS)
    again = await claim_one(store, worker="worker-2")
    assert again.lease.job_id == job_id
    assert again.lease.fence > first.lease.fence


async def test_a_claim_of_other_lanes_rescues_too(store: Store, clock: FrozenClock) -> None:
    """Any live worker notices, whatever it is able to run."""
    job_id = await put(store)
    await claim_one(store)
    clock.advance(LEASE_SECONDS)
    assert await claim(store, "elsewhere") == []
    assert await state(store, job_id) is State.PENDING


async def test_a_rescued_job_keeps_its_due_time_and_place(store: Store, clock: FrozenClock) -> None:
    """It has been due all along."""
    job_id = await put(store)
    due = (await look(store, job_id)).run_at
    await claim_one(store)
    clock.advance(LEASE_SECONDS)
    await put(store)
    await store.rescue()
    assert (await look(store, job_id)).run_at == due
    assert ids(await claim(store))[0] == job_id


def listen(store: Store) -> list[RescuedJob]:
    """What the store tells from now on."""
    told: list[RescuedJob] = []
    store.on_rescued = told.extend
    return told


@pytest.mark.parametrize("started", [False, True], ids=["unstarted", "started"])
async def test_a_rescued_job_is_told_of(store: Store, clock: FrozenClock, started: bool) -> None:
    """Which attempt of which worker was lost, counted or not; once, when it happens."""
    told = listen(store)
    job_id = await put(store, correlation_id="c-1")
    await put(store)  # a claim of one would count
    jobs = await claim(store, limit=2)
    if started:
        await store.start([job.lease for job in jobs])
    clock.advance(LEASE_SECONDS)
    assert told == []
    await store.rescue()
    assert len(told) == 2
    [mine] = [one for one in told if one.job_id == job_id]
    assert mine == RescuedJob(job_id, TOPIC, "", "root", "c-1", 1, "worker-1", State.PENDING, "worker_lost")
    await store.rescue()
    await claim(store, limit=2)
    assert len(told) == 2


async def test_a_claim_and_a_grant_tell_what_they_rescue(store: Store, clock: FrozenClock) -> None:
    """Also of another topic; and a sibling tells the same listener."""
    told = listen(store)
    job_id = await put(store)
    for rescuing in (
        lambda: claim(store, "elsewhere"),
        lambda: store.grant(UUID(int=1), worker="w", lease_seconds=60.0),
    ):
        await claim_one(store)
        clock.advance(LEASE_SECONDS)
        await rescuing()
    assert [(one.job_id, one.attempt) for one in told] == [(job_id, 1), (job_id, 2)]
    assert store.sibling().on_rescued == store.on_rescued


async def test_jobs_that_a_rescue_ends_are_told_of(store: Store, clock: FrozenClock) -> None:
    """Failed at the last attempt, cancelled on request, expired."""
    told = listen(store)
    failed = await put(store, max_attempts=1)
    await claim_one(store)
    cancelled = await put(store)
    await claim_one(store)
    await store.cancel([cancelled])
    late = await put(store, expires_in=LEASE_SECONDS)
    clock.advance(LEASE_SECONDS)
    await store.rescue()
    assert {one.job_id: (one.attempt, one.worker, one.state, one.code) for one in told} == {
        failed: (1, "worker-1", State.FAILED, "worker_lost"),
        cancelled: (1, "worker-1", State.CANCELLED, "job_canceled"),
        late: (0, None, State.CANCELLED, "expired"),
    }


async def test_a_listener_that_raises_spoils_no_claim(store: Store, clock: FrozenClock) -> None:
    """What was rescued is written, whatever becomes of who is told."""

    def raise_(jobs: Sequence[RescuedJob]) -> None:
        raise RuntimeError(len(jobs))

    store.on_rescued = raise_
    job_id = await put(store)
    await claim_one(store)
    clock.advance(LEASE_SECONDS)
    assert (await claim_one(store)).lease.job_id == job_id


async def test_an_extended_lease_is_not_rescued(store: Store, clock: FrozenClock) -> None:
    """A worker that reaches the store keeps its jobs."""
    await put(store)
    claimed = await claim_one(store)
    for _ in range(5):
        clock.advance(LEASE_SECONDS - 1)
        assert await store.extend([claimed.lease], LEASE_SECONDS) == [True]
        assert await store.rescue() == Rescued()
    assert await end(store, claimed.lease, Completed())


async def test_a_job_without_attempts_left_fails(store: Store, clock: FrozenClock) -> None:
    """The dead letter says why."""
    job_id = await put(store, max_attempts=1)
    await store.start([(await claim_one(store)).lease])
    clock.advance(LEASE_SECONDS)
    assert await store.rescue() == Rescued(failed=1)
    record = await look(store, job_id)
    assert (record.state, record.attempt, record.finished_at) == (State.FAILED, 1, clock.now())
    assert [one.error.code for one in record.attempts] == ["worker_lost"]
    assert (record.worker, record.leased_until) == ("worker-1", None)


async def test_unlimited_attempts_never_run_out(store: Store, clock: FrozenClock) -> None:
    """``max_attempts`` None: it always comes back."""
    job_id = await put(store, max_attempts=None)
    for _ in range(30):
        await store.start([(await claim_one(store)).lease])
        clock.advance(LEASE_SECONDS)
        assert await store.rescue() == Rescued(returned=1)
    assert (await look(store, job_id)).attempt == 30


async def test_an_ended_lease_with_a_cancel_request_becomes_cancelled(
    store: Store, clock: FrozenClock
) -> None:
    """Nobody is left to honour the request, so the store does; no error of an attempt is made up."""
    started, unstarted = await put_many(store, 2)
    claimed = await claim(store)
    await store.start([claimed[0].lease])
    assert await store.cancel([started, unstarted]) == [Verdict.REQUESTED] * 2
    clock.advance(LEASE_SECONDS)
    assert await store.rescue() == Rescued(cancelled=2)
    for job_id, attempt in ((started, 1), (unstarted, 0)):
        record = await look(store, job_id)
        assert (record.state, record.attempt, record.attempts) == (State.CANCELLED, attempt, ())
        assert record.finished_at == clock.now()
        assert record.error_summary is not None
        assert record.error_summary.startswith("job_canceled: ")


async def test_a_cancel_request_wins_over_running_out_of_attempts(store: Store, clock: FrozenClock) -> None:
    """What was asked for is what happens."""
    job_id = await put(store, max_attempts=1)
    await store.start([(await claim_one(store)).lease])
    await store.cancel([job_id])
    clock.advance(LEASE_SECONDS)
    assert await store.rescue() == Rescued(cancelled=1)


async def test_the_limit_takes_the_longest_overdue_first(store: Store, clock: FrozenClock) -> None:
    """A bounded pass leaves the rest for the next."""
    job_ids = await put_many(store, 3)
    for seconds in (30.0, 10.0, 20.0):
        await claim_one(store, lease_seconds=seconds)
    clock.advance(60)
    states = []
    for _ in job_ids:
        assert (await store.rescue(limit=1)).returned == 1
        states.append(await store.states(job_ids))
    pending, running = State.PENDING, State.RUNNING
    assert states == [[running, pending, running], [running, pending, pending], [pending] * 3]


async def test_a_job_not_started_in_time_expires(store: Store, clock: FrozenClock) -> None:
    """Cancelled with ``expired`` at that moment, by rescue."""
    relative = await put(store, expires_in=10.0)
    absolute = await put(store, expires_at=clock.now() + 10 * MICROSECONDS)
    delayed = await put(store, delay=100, expires_in=10.0)
    clock.advance(9.999999)
    assert await store.rescue() == Rescued()
    clock.advance(0.000001)
    assert await store.rescue() == Rescued(expired=3)
    for job_id in (relative, absolute, delayed):
        record = await look(store, job_id)
        assert (record.state, record.finished_at) == (State.CANCELLED, clock.now())
        assert (record.attempts, record.started_at) == ((), None)
        assert record.error_summary is not None
        assert record.error_summary.startswith("expired: ")


async def test_a_claim_never_grants_an_expired_job(store: Store, clock: FrozenClock) -> None:
    """The claim itself cancels it."""
    expired = await put(store, expires_in=10.0)
    kept = await put(store)
    clock.advance(10)
    assert ids(await claim(store)) == [kept]
    assert await state(store, expired) is State.CANCELLED


async def test_a_claimed_job_does_not_expire(store: Store, clock: FrozenClock) -> None:
    """It was started in time."""
    await put(store, expires_in=10.0)
    claimed = await claim_one(store)
    clock.advance(30)
    assert await store.rescue() == Rescued()
    assert await end(store, claimed.lease, Completed())


async def test_a_tried_job_does_not_expire(store: Store, clock: FrozenClock) -> None:
    """A counted attempt has started it; its retries may take their time."""
    job_id = await put(store, expires_in=10.0)
    await end(store, (await claim_one(store)).lease, Retried(30, BOOM))
    clock.advance(30)
    assert await store.rescue() == Rescued()
    assert ids(await claim(store)) == [job_id]


@pytest.mark.parametrize("before_expiry", [True, False])
async def test_a_job_given_back_can_expire(store: Store, clock: FrozenClock, before_expiry: bool) -> None:
    """Released is as good as never claimed, whether its time came before or after."""
    await put(store, expires_in=10.0)
    claimed = await claim_one(store)
    clock.advance(5 if before_expiry else 15)
    await end(store, claimed.lease, Released())
    if before_expiry:
        assert await store.rescue() == Rescued()
        clock.advance(5)
    assert await store.rescue() == Rescued(expired=1)


async def test_an_uncounted_rescue_can_expire_in_the_same_pass(store: Store, clock: FrozenClock) -> None:
    """Back in the queue unstarted, and too late: both are reported."""
    await put_many(store, 2, expires_in=10.0)
    await claim(store)
    clock.advance(LEASE_SECONDS)
    assert await store.rescue() == Rescued(returned=2, expired=2)


async def test_a_requeued_job_forgets_its_expiry(store: Store, clock: FrozenClock) -> None:
    """Somebody wants it run now, so it must not expire again at once."""
    job_id = await put(store, expires_in=10.0)
    clock.advance(10)
    await store.rescue()
    assert await store.requeue([job_id]) == [Verdict.DONE]
    assert await store.rescue() == Rescued()
    assert ids(await claim(store)) == [job_id]
