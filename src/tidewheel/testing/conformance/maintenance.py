"""Recovery and cleanup without an operator: ended leases, expired jobs, pruning, clock steps.

Ended leases are rescued and expired jobs cancelled (Q12, Q15). Finished jobs are kept for their retention,
then removed (Q30). A clock that jumps ahead deletes and cancels nothing until the step is confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.clock_guard import CONFIRM_SECONDS
from tidewheel.core.model import (
    ActionResult,
    Completed,
    Failed,
    FailureOrigin,
    JobFilter,
    NewDocument,
    Progress,
    Released,
    Report,
    RescuedJob,
    RescueResult,
    Retried,
    Settlement,
    State,
)
from tidewheel.core.reports import HealthFindingKind
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    LEASE_SECONDS,
    TOPIC,
    MakeFinished,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    get_state,
    ids,
    make_cancelled,
    make_completed,
    make_failed,
    settle_one,
)


async def test_nothing_to_rescue(store: Store) -> None:
    """Waiting and validly leased jobs are left alone."""
    await enqueue_many(store, 2)
    await claim_one(store)
    assert await store.rescue() == RescueResult()


async def test_a_lease_is_rescued_at_its_end_not_before(store: Store, clock: FrozenClock) -> None:
    """It holds while now < leased_until."""
    job_id = await enqueue_one(store)
    await claim_one(store)
    clock.advance(LEASE_SECONDS - 0.000001)
    assert await store.rescue() == RescueResult()
    clock.advance(0.000001)
    assert await store.rescue() == RescueResult(returned=1)
    assert await get_state(store, job_id) is State.PENDING


async def test_a_claim_rescues_before_it_chooses(store: Store, clock: FrozenClock) -> None:
    """No worker is told "empty" while an orphan waits."""
    job_id = await enqueue_one(store)
    first = await claim_one(store)
    clock.advance(LEASE_SECONDS)
    again = await claim_one(store, worker="worker-2")
    assert again.lease.job_id == job_id
    assert again.lease.fence > first.lease.fence


async def test_a_claim_of_other_lanes_rescues_too(store: Store, clock: FrozenClock) -> None:
    """Any live worker notices, whatever it is able to run."""
    job_id = await enqueue_one(store)
    await claim_one(store)
    clock.advance(LEASE_SECONDS)
    assert await claim_jobs(store, "elsewhere") == []
    assert await get_state(store, job_id) is State.PENDING


async def test_a_rescued_job_keeps_its_due_time_and_place(store: Store, clock: FrozenClock) -> None:
    """It has been due all along."""
    job_id = await enqueue_one(store)
    due = (await get_job(store, job_id)).run_at
    await claim_one(store)
    clock.advance(LEASE_SECONDS)
    await enqueue_one(store)
    await store.rescue()
    assert (await get_job(store, job_id)).run_at == due
    assert ids(await claim_jobs(store))[0] == job_id


def collect_rescued(store: Store) -> list[RescuedJob]:
    """What the store tells from now on."""
    told: list[RescuedJob] = []
    store.on_rescued = told.extend
    return told


@pytest.mark.parametrize("started", [False, True], ids=["unstarted", "started"])
async def test_a_rescued_job_is_told_of(store: Store, clock: FrozenClock, started: bool) -> None:
    """Which attempt of which worker was lost, counted or not; once, when it happens."""
    told = collect_rescued(store)
    job_id = await enqueue_one(store, correlation_id="c-1")
    await enqueue_one(store)  # a claim of one would count
    jobs = await claim_jobs(store, limit=2)
    if started:
        await store.mark_started([job.lease for job in jobs])
    clock.advance(LEASE_SECONDS)
    assert told == []
    await store.rescue()
    assert len(told) == 2
    [mine] = [one for one in told if one.job_id == job_id]
    assert mine == RescuedJob(job_id, TOPIC, "", "root", "c-1", 1, "worker-1", State.PENDING, "worker_lost")
    await store.rescue()
    await claim_jobs(store, limit=2)
    assert len(told) == 2


async def test_a_claim_and_a_grant_tell_what_they_rescue(store: Store, clock: FrozenClock) -> None:
    """Also of another topic; and a sibling tells the same listener."""
    told = collect_rescued(store)
    job_id = await enqueue_one(store)
    for rescuing in (
        lambda: claim_jobs(store, "elsewhere"),
        lambda: store.claim_job(UUID(int=1), worker="w", lease_seconds=60.0),
    ):
        await claim_one(store)
        clock.advance(LEASE_SECONDS)
        await rescuing()
    assert [(one.job_id, one.attempt) for one in told] == [(job_id, 1), (job_id, 2)]
    assert store.sibling().on_rescued == store.on_rescued


async def test_jobs_that_a_rescue_ends_are_told_of(store: Store, clock: FrozenClock) -> None:
    """Failed at the last attempt, cancelled on request, expired."""
    told = collect_rescued(store)
    failed = await enqueue_one(store, max_attempts=1)
    await claim_one(store)
    cancelled = await enqueue_one(store)
    await claim_one(store)
    await store.cancel([cancelled])
    late = await enqueue_one(store, expires_in=LEASE_SECONDS)
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
    job_id = await enqueue_one(store)
    await claim_one(store)
    clock.advance(LEASE_SECONDS)
    assert (await claim_one(store)).lease.job_id == job_id


async def test_an_extended_lease_is_not_rescued(store: Store, clock: FrozenClock) -> None:
    """A worker that reaches the store keeps its jobs."""
    await enqueue_one(store)
    claimed = await claim_one(store)
    for _ in range(5):
        clock.advance(LEASE_SECONDS - 1)
        assert await store.extend([claimed.lease], LEASE_SECONDS) == [True]
        assert await store.rescue() == RescueResult()
    assert await settle_one(store, claimed.lease, Completed())


async def test_a_job_without_attempts_left_fails(store: Store, clock: FrozenClock) -> None:
    """The dead letter says why."""
    job_id = await enqueue_one(store, max_attempts=1)
    await store.mark_started([(await claim_one(store)).lease])
    clock.advance(LEASE_SECONDS)
    assert await store.rescue() == RescueResult(failed=1)
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.finished_at) == (State.FAILED, 1, clock.now())
    assert [one.error.code for one in record.attempts] == ["worker_lost"]
    assert (record.worker, record.leased_until) == ("worker-1", None)


async def test_unlimited_attempts_never_run_out(store: Store, clock: FrozenClock) -> None:
    """``max_attempts`` None: it always comes back."""
    job_id = await enqueue_one(store, max_attempts=None)
    for _ in range(30):
        await store.mark_started([(await claim_one(store)).lease])
        clock.advance(LEASE_SECONDS)
        assert await store.rescue() == RescueResult(returned=1)
    assert (await get_job(store, job_id)).attempt == 30


async def test_an_ended_lease_with_a_cancel_request_becomes_cancelled(
    store: Store, clock: FrozenClock
) -> None:
    """Nobody is left to honour the request, so the store does; no error of an attempt is made up."""
    started, unstarted = await enqueue_many(store, 2)
    claimed = await claim_jobs(store)
    await store.mark_started([claimed[0].lease])
    assert await store.cancel([started, unstarted]) == [ActionResult.REQUESTED] * 2
    clock.advance(LEASE_SECONDS)
    assert await store.rescue() == RescueResult(cancelled=2)
    for job_id, attempt in ((started, 1), (unstarted, 0)):
        record = await get_job(store, job_id)
        assert (record.state, record.attempt, record.attempts) == (State.CANCELLED, attempt, ())
        assert record.finished_at == clock.now()
        assert record.error_summary is not None
        assert record.error_summary.startswith("job_canceled: ")


async def test_a_cancel_request_wins_over_running_out_of_attempts(store: Store, clock: FrozenClock) -> None:
    """What was asked for is what happens."""
    job_id = await enqueue_one(store, max_attempts=1)
    await store.mark_started([(await claim_one(store)).lease])
    await store.cancel([job_id])
    clock.advance(LEASE_SECONDS)
    assert await store.rescue() == RescueResult(cancelled=1)


async def test_the_limit_takes_the_longest_overdue_first(store: Store, clock: FrozenClock) -> None:
    """A bounded pass leaves the rest for the next."""
    job_ids = await enqueue_many(store, 3)
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
    relative = await enqueue_one(store, expires_in=10.0)
    absolute = await enqueue_one(store, expires_at=clock.now() + 10 * MICROSECONDS)
    delayed = await enqueue_one(store, delay=100, expires_in=10.0)
    clock.advance(9.999999)
    assert await store.rescue() == RescueResult()
    clock.advance(0.000001)
    assert await store.rescue() == RescueResult(expired=3)
    for job_id in (relative, absolute, delayed):
        record = await get_job(store, job_id)
        assert (record.state, record.finished_at) == (State.CANCELLED, clock.now())
        assert (record.attempts, record.started_at) == ((), None)
        assert record.error_summary is not None
        assert record.error_summary.startswith("expired: ")


async def test_a_claim_never_grants_an_expired_job(store: Store, clock: FrozenClock) -> None:
    """The claim itself cancels it."""
    expired = await enqueue_one(store, expires_in=10.0)
    kept = await enqueue_one(store)
    clock.advance(10)
    assert ids(await claim_jobs(store)) == [kept]
    assert await get_state(store, expired) is State.CANCELLED


async def test_a_claimed_job_does_not_expire(store: Store, clock: FrozenClock) -> None:
    """It was started in time."""
    await enqueue_one(store, expires_in=10.0)
    claimed = await claim_one(store)
    clock.advance(30)
    assert await store.rescue() == RescueResult()
    assert await settle_one(store, claimed.lease, Completed())


async def test_a_tried_job_does_not_expire(store: Store, clock: FrozenClock) -> None:
    """A counted attempt has started it; its retries may take their time."""
    job_id = await enqueue_one(store, expires_in=10.0)
    await settle_one(store, (await claim_one(store)).lease, Retried(30, BOOM))
    clock.advance(30)
    assert await store.rescue() == RescueResult()
    assert ids(await claim_jobs(store)) == [job_id]


@pytest.mark.parametrize("before_expiry", [True, False])
async def test_a_job_given_back_can_expire(store: Store, clock: FrozenClock, before_expiry: bool) -> None:
    """Released is as good as never claimed, whether its time came before or after."""
    await enqueue_one(store, expires_in=10.0)
    claimed = await claim_one(store)
    clock.advance(5 if before_expiry else 15)
    await settle_one(store, claimed.lease, Released())
    if before_expiry:
        assert await store.rescue() == RescueResult()
        clock.advance(5)
    assert await store.rescue() == RescueResult(expired=1)


async def test_an_uncounted_rescue_can_expire_in_the_same_pass(store: Store, clock: FrozenClock) -> None:
    """Back in the queue unstarted, and too late: both are reported."""
    await enqueue_many(store, 2, expires_in=10.0)
    await claim_jobs(store)
    clock.advance(LEASE_SECONDS)
    assert await store.rescue() == RescueResult(returned=2, expired=2)


async def test_a_requeued_job_forgets_its_expiry(store: Store, clock: FrozenClock) -> None:
    """Somebody wants it run now, so it must not expire again at once."""
    job_id = await enqueue_one(store, expires_in=10.0)
    clock.advance(10)
    await store.rescue()
    assert await store.requeue([job_id]) == [ActionResult.DONE]
    assert await store.rescue() == RescueResult()
    assert ids(await claim_jobs(store)) == [job_id]


DAY = 86_400.0


async def test_nothing_to_prune(store: Store) -> None:
    """No finished job, no answer."""
    await enqueue_one(store, retention=0.0)
    assert await store.prune() == {}


async def test_a_finished_job_is_kept_for_its_retention(store: Store, clock: FrozenClock) -> None:
    """Counted from its end, to the microsecond."""
    done, dropped = await make_completed(store, retention=DAY), await make_cancelled(store, retention=DAY)
    clock.advance(DAY - 0.000001)
    assert await store.prune() == {}
    clock.advance(0.000001)
    assert await store.prune() == {State.COMPLETED: 1, State.CANCELLED: 1}
    assert await store.states([done, dropped]) == [None, None]
    assert await store.topics() == []
    assert await store.check() == []


async def test_failed_jobs_have_a_retention_of_their_own(store: Store, clock: FrozenClock) -> None:
    """The other one does not apply to them."""
    job_id = await make_failed(store, retention=DAY, retention_failed=3 * DAY)
    clock.advance(2 * DAY)
    assert await store.prune() == {}
    clock.advance(DAY)
    assert await store.prune() == {State.FAILED: 1}
    assert await get_state(store, job_id) is None


async def test_without_a_retention_a_job_is_kept_for_ever(store: Store, clock: FrozenClock) -> None:
    """None means never, for failed jobs as for others."""
    await make_completed(store)
    await make_failed(store, retention=DAY)
    clock.advance(10_000 * DAY)
    assert await store.prune() == {}


async def test_a_buried_job_is_never_pruned(store: Store, clock: FrozenClock) -> None:
    """Somebody put it aside to look at it."""
    job_id = await enqueue_one(store, retention=DAY, retention_failed=DAY)
    await settle_one(store, (await claim_one(store)).lease, Failed(BOOM, FailureOrigin.BURIED))
    clock.advance(10_000 * DAY)
    assert await store.prune() == {}
    assert await store.requeue([job_id]) == [ActionResult.DONE]
    await settle_one(store, (await claim_one(store)).lease, Failed(BOOM))
    clock.advance(DAY)
    assert await store.prune() == {State.FAILED: 1}, "once kicked, it is a job like any other"


async def test_unfinished_jobs_are_never_pruned(store: Store, clock: FrozenClock) -> None:
    """However old."""
    running = await enqueue_one(store, retention=0.0)
    await claim_one(store, lease_seconds=86_400.0)
    pending = await enqueue_one(store, retention=0.0, delay=DAY)
    clock.advance(DAY / 2)
    assert await store.prune() == {}
    assert await store.states([running, pending]) == [State.RUNNING, State.PENDING]


async def test_a_requeued_job_is_not_pruned_for_its_former_end(store: Store, clock: FrozenClock) -> None:
    """Its retention starts again when it ends again."""
    job_id = await make_failed(store, retention_failed=DAY)
    clock.advance(DAY / 2)
    await store.requeue([job_id])
    clock.advance(DAY)
    assert await store.prune() == {}


async def test_pruning_goes_by_when_retention_ended_and_keeps_to_its_limit(
    store: Store, clock: FrozenClock
) -> None:
    """The longest overdue first; the rest next time."""
    long = await make_completed(store, retention=2 * DAY)
    short = await make_completed(store, retention=DAY)
    clock.advance(3 * DAY)
    assert await store.prune(limit=1) == {State.COMPLETED: 1}
    assert await store.states([long, short]) == [State.COMPLETED, None]
    assert await store.prune(limit=1) == {State.COMPLETED: 1}
    assert await store.prune(limit=1) == {}


async def test_jobs_that_were_deleted_do_not_count_as_pruned(store: Store, clock: FrozenClock) -> None:
    """Nor do those that were requeued, whose former ends have passed: the limit is for what goes."""
    gone = [await make_completed(store, retention=DAY) for _ in range(3)]
    again = await make_failed(store, retention_failed=DAY)
    clock.advance(1.0)
    last = await make_completed(store, retention=DAY)
    await store.delete(gone)
    await store.requeue([again])
    clock.advance(DAY)
    assert await store.prune(limit=1) == {State.COMPLETED: 1}
    assert await store.states([again, last]) == [State.PENDING, None]


@pytest.mark.parametrize("ended", [make_completed, make_failed, make_cancelled])
async def test_a_retention_of_zero_prunes_at_once(store: Store, ended: MakeFinished) -> None:
    """Kept no longer than asked for."""
    await ended(store, retention=0.0, retention_failed=0.0)
    assert sum((await store.prune()).values()) == 1
    assert (await store.count(JobFilter())).total == 0


async def test_pruning_leaves_the_series_alone(store: Store, clock: FrozenClock) -> None:
    """What happened stays happened; only the rows go."""
    job_id = await make_completed(store, retention=60.0)
    assert (await get_job(store, job_id)).state is State.COMPLETED
    clock.advance(60)
    before = await store.stats(window_seconds=3600)
    await store.prune()
    after = await store.stats(window_seconds=3600)
    assert (after.series, after.completed) == (before.series, 0)


async def test_more_than_one_call_removes_is_removed_by_many(store: Store, clock: FrozenClock) -> None:
    """None is left behind, and none is counted twice, however many ended at the same moment."""
    ids = await enqueue_many(store, 130, retention=DAY)
    leases = [claimed.lease for claimed in await claim_jobs(store, limit=130)]
    await store.settle([Settlement(lease, Completed()) for lease in leases])
    clock.advance(DAY)
    pruned = 0
    while removed := await store.prune(limit=60):
        assert sum(removed.values()) <= 60
        pruned += removed[State.COMPLETED]
    assert pruned == len(ids)
    assert await store.states(ids) == [None] * len(ids)
    assert await store.check() == []


async def test_what_belongs_to_a_job_goes_with_it(store: Store, clock: FrozenClock) -> None:
    """A large body, a result, progress, a checkpoint, errors: nothing is left that nobody could find."""
    job_id = await enqueue_one(store, payload=b'"' + b"x" * 5_000 + b'"', retention=DAY, key="once")
    lease = (await claim_one(store)).lease
    await settle_one(store, lease, Retried(0.0, BOOM))
    lease = (await claim_one(store)).lease
    await store.report([Report(lease, Progress(50.0, "half"), b'{"at": 1}')])
    await settle_one(store, lease, Completed(b'"' + b"y" * 5_000 + b'"'))
    clock.advance(DAY)
    assert await store.prune() == {State.COMPLETED: 1}
    assert await store.get(job_id) is None
    assert await store.check() == []
    await enqueue_one(store, key="once")


async def test_overdue_jobs_that_nobody_removes_are_an_ailment(store: Store, clock: FrozenClock) -> None:
    """From an hour on; not those that are only just over, and none once they are removed."""

    async def unpruned() -> list[object]:
        return [
            one.figures["seconds"] for one in await store.health() if one.kind is HealthFindingKind.UNPRUNED
        ]

    await make_completed(store, retention=DAY)
    await make_completed(store)
    clock.advance(DAY + 3_599)
    assert await unpruned() == []
    clock.advance(1)
    assert await unpruned() == [3_600.0]
    await store.prune()
    assert await unpruned() == []


STEP = 200 * DAY


async def test_a_clock_that_jumps_ahead_for_a_moment_deletes_nothing(
    store: Store, clock: FrozenClock
) -> None:
    """Finished jobs, documents such as audit lines, and pending jobs that expire are all there afterwards."""
    done, lost = await make_completed(store, retention=DAY), await make_failed(store, retention_failed=DAY)
    waiting = await enqueue_one(store, expires_at=clock.now() + seconds_to_microseconds(DAY))
    document = NewDocument("note", "a", b"1", clock.now() + seconds_to_microseconds(DAY))
    await store.write_documents([document])
    await claim_jobs(store, "other")
    assert await store.prune() == {}
    clock.step(STEP)
    assert await store.prune() == {}
    assert await store.rescue() == RescueResult()
    await claim_jobs(store, "other")  # looks for expired jobs of every topic
    assert store.clock_step_seconds > STEP - 1
    clock.advance(12)
    assert await store.prune() == {}
    await claim_jobs(store, "other")
    clock.step(-STEP)
    assert await store.prune() == {}
    assert store.clock_step_seconds == 0.0
    assert [await get_state(store, job_id) for job_id in (done, lost, waiting)] == [
        State.COMPLETED,
        State.FAILED,
        State.PENDING,
    ]
    assert await store.document("note", "a") is not None
    assert await store.check() == []


async def test_a_pause_for_some_time_outlives_a_jump(store: Store, clock: FrozenClock) -> None:
    """Upkeep forgets pauses that have ended; one that only seems to have ended is there afterwards."""
    until = clock.now() + seconds_to_microseconds(DAY)
    waiting = await enqueue_one(store, "mail")
    await store.pause("mail", until)
    assert await store.prune() == {}
    clock.step(STEP)
    assert await store.prune() == {}
    clock.step(-STEP)
    assert await claim_jobs(store, "mail") == []
    assert await get_state(store, waiting) is State.PENDING
    clock.advance(DAY)
    [granted] = await claim_jobs(store, "mail")
    assert granted.lease.job_id == waiting


async def test_a_job_that_a_jump_would_let_expire_can_be_run(store: Store, clock: FrozenClock) -> None:
    """By the time without the jump it is not over; jobs that are over by that time are cancelled as ever."""
    soon = await enqueue_one(store, expires_at=clock.now() + seconds_to_microseconds(5))
    later = await enqueue_one(store, expires_at=clock.now() + seconds_to_microseconds(DAY))
    await claim_jobs(store, "other")
    clock.step(STEP)
    clock.advance(120)
    [granted] = await claim_jobs(store)
    assert granted.lease.job_id == later
    assert await get_state(store, soon) is State.CANCELLED


async def test_a_clock_that_stays_ahead_is_believed_after_a_while(store: Store, clock: FrozenClock) -> None:
    """Then the step was real, and what is overdue goes."""
    await make_completed(store, retention=DAY)
    waiting = await enqueue_one(store, "mail", expires_at=clock.now() + seconds_to_microseconds(DAY))
    await claim_jobs(store, "other")
    assert await store.prune() == {}
    clock.step(STEP)
    assert await store.prune() == {}
    clock.advance(CONFIRM_SECONDS - 1)
    assert await store.prune() == {}
    clock.advance(1)
    assert await store.prune() == {State.COMPLETED: 1}
    await claim_jobs(store, "other")
    assert await get_state(store, waiting) is State.CANCELLED
    assert store.clock_step_seconds == 0.0


async def test_while_a_step_is_in_doubt_pruning_goes_by_the_time_before(
    store: Store, clock: FrozenClock
) -> None:
    """What becomes overdue without the step is removed: nothing piles up meanwhile."""
    await make_completed(store, retention=600)
    await make_completed(store, retention=DAY)
    assert await store.prune() == {}
    clock.step(STEP)
    assert await store.prune() == {}
    clock.advance(700)
    assert await store.prune() == {State.COMPLETED: 1}
