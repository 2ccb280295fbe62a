"""Every write under a lease is fenced; a stale holder changes nothing and is told so (Q11)."""

# ruff: noqa: ARG001 - ways to spoil a lease share a signature, and few need all of it

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tidewheel.core.clock import to_datetime
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    Cancelled,
    Completed,
    Failed,
    JobFilter,
    JobRecord,
    Lease,
    NewStep,
    Outcome,
    Progress,
    Released,
    Report,
    Retried,
    Settlement,
    State,
)
from tidewheel.core.timeline import timeline
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
    settle_one,
)

OUTCOMES: list[Outcome] = [
    Completed(b"1"),
    Retried(1, BOOM),
    Failed(BOOM),
    Released(1, 7),
    Cancelled(BOOM),
]

Spoiler = Callable[[Store, FrozenClock, Lease], Awaitable[Lease]]


async def _every_write(store: Store, lease: Lease) -> list[bool]:
    """Each verb under this lease, once."""
    answers = await store.mark_started([lease])
    answers += await store.extend([lease], 500)
    step = NewStep("one", b"1", 0.5)
    answers += await store.report([Report(lease, Progress(50, "m", "s"), b'"checkpoint"', step)])
    answers += [await settle_one(store, lease, outcome, 1.0) for outcome in OUTCOMES]
    return answers


async def _wrong_fence(store: Store, clock: FrozenClock, lease: Lease) -> Lease:
    return Lease(lease.job_id, lease.fence + 1)


async def _older_fence(store: Store, clock: FrozenClock, lease: Lease) -> Lease:
    return Lease(lease.job_id, lease.fence - 1)


async def _unknown_job(store: Store, clock: FrozenClock, lease: Lease) -> Lease:
    return Lease(new_id(), lease.fence)


async def _ended_by_time(store: Store, clock: FrozenClock, lease: Lease) -> Lease:
    clock.advance(LEASE_SECONDS)
    return lease


async def _settled(store: Store, clock: FrozenClock, lease: Lease) -> Lease:
    await settle_one(store, lease, Completed(b'"first"'))
    return lease


async def _given_back(store: Store, clock: FrozenClock, lease: Lease) -> Lease:
    await settle_one(store, lease, Released())
    return lease


async def _rescued(store: Store, clock: FrozenClock, lease: Lease) -> Lease:
    clock.advance(LEASE_SECONDS)
    await store.rescue()
    return lease


async def _claimed_again(store: Store, clock: FrozenClock, lease: Lease) -> Lease:
    clock.advance(LEASE_SECONDS)
    assert await claim_jobs(store, worker="worker-2")
    return lease


async def _failed_and_requeued(store: Store, clock: FrozenClock, lease: Lease) -> Lease:
    await settle_one(store, lease, Failed(BOOM))
    await store.requeue([lease.job_id])
    assert await claim_jobs(store, worker="worker-2")
    return lease


SPOILERS: list[Spoiler] = [
    _wrong_fence,
    _older_fence,
    _unknown_job,
    _ended_by_time,
    _settled,
    _given_back,
    _rescued,
    _claimed_again,
    _failed_and_requeued,
]


@pytest.mark.parametrize("spoil", SPOILERS)
async def test_a_stale_lease_changes_nothing(store: Store, clock: FrozenClock, spoil: Spoiler) -> None:
    """Start, extend, report and every way to settle answer False, and every job stays as it is."""
    job_id = await enqueue_one(store)
    claimed = await claim_one(store)
    stale = await spoil(store, clock, claimed.lease)
    before = await get_job(store, job_id)
    statistics = await store.stats(window_seconds=3600)
    assert await _every_write(store, stale) == [False] * 8
    assert await get_job(store, job_id) == before
    assert await store.stats(window_seconds=3600) == statistics
    assert await store.cancel_requests([stale]) == []


async def test_a_lease_of_a_deleted_job_is_stale(store: Store) -> None:
    """Nothing comes back from the dead."""
    job_id = await enqueue_one(store)
    claimed = await claim_one(store)
    await settle_one(store, claimed.lease, Released())
    await store.delete([job_id])
    assert await _every_write(store, claimed.lease) == [False] * 8
    assert (await store.count(JobFilter())).total == 0


async def test_a_lease_holds_until_its_last_microsecond(store: Store, clock: FrozenClock) -> None:
    """At ``leased_until`` it has ended."""
    await enqueue_many(store, 2)
    first, second = await claim_jobs(store)
    clock.advance(LEASE_SECONDS - 0.000001)
    assert await settle_one(store, first.lease, Completed())
    clock.advance(0.000001)
    assert not await settle_one(store, second.lease, Completed())


async def test_one_stale_lease_does_not_spoil_its_neighbours(store: Store) -> None:
    """A batch is judged item by item."""
    job_ids = await enqueue_many(store, 3)
    leases = [one.lease for one in await claim_jobs(store)]
    stale = Lease(leases[1].job_id, leases[1].fence + 100)
    mixed = [leases[0], stale, leases[2]]
    assert await store.mark_started(mixed) == [True, False, True]
    assert await store.extend(mixed, 90) == [True, False, True]
    assert await store.report([Report(lease, Progress(1)) for lease in mixed]) == [True, False, True]
    assert await store.settle([Settlement(lease, Completed()) for lease in mixed]) == [True, False, True]
    completed, running = State.COMPLETED, State.RUNNING
    assert await store.states(job_ids) == [completed, running, completed]
    record = await get_job(store, job_ids[1])
    assert (record.started_at, record.progress) == (None, None)


async def test_a_lease_is_settled_once_even_within_a_batch(store: Store) -> None:
    """The first settlement ends it; the second finds it ended."""
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease
    answers = await store.settle([Settlement(lease, Completed(b"1")), Settlement(lease, Failed(BOOM))])
    assert answers == [True, False]
    record = await get_job(store, job_id)
    assert (record.state, record.result, record.attempts) == (State.COMPLETED, b"1", ())


async def test_a_stale_lease_cannot_complete_a_job_claimed_again(store: Store, clock: FrozenClock) -> None:
    """A worker that lost its lease is told so, and the newer attempt is left alone."""
    job_id = await enqueue_one(store)
    old = await claim_one(store)
    clock.advance(LEASE_SECONDS)
    new = await claim_one(store, worker="worker-2")
    assert not await settle_one(store, old.lease, Completed(b'"old"'))
    assert await settle_one(store, new.lease, Completed(b'"new"'))
    assert (await get_job(store, job_id)).result == b'"new"'


async def test_extend_counts_from_now(store: Store, clock: FrozenClock) -> None:
    """Longer or shorter: the lease lasts exactly that long from this moment."""
    job_id = await enqueue_one(store, lease_seconds=60.0)
    lease = (await claim_one(store)).lease
    clock.advance(10)
    assert await store.extend([lease], 100) == [True]
    assert (await get_job(store, job_id)).leased_until == clock.now() + 100_000_000
    assert await store.extend([lease], 5) == [True]
    clock.advance(5)
    assert await store.extend([lease], 60) == [False], "an ended lease is not revived"


async def test_start_is_recorded_once(store: Store, clock: FrozenClock) -> None:
    """The first report of the start is the start."""
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease
    clock.advance(1)
    assert await store.mark_started([lease]) == [True]
    began = clock.now()
    clock.advance(1)
    assert await store.mark_started([lease]) == [True]
    assert (await get_job(store, job_id)).started_at == began


async def test_a_start_is_when_the_handler_began_and_does_not_move(store: Store, clock: FrozenClock) -> None:
    """Recorded late it is told how late; whatever comes after, up to the end of the run, leaves it alone."""
    jobs = await enqueue_many(store, 3)
    started, reported, unrecorded = await claim_jobs(store)
    clock.advance(1)
    began = clock.now()
    clock.advance(0.75)
    assert await store.mark_started([started.lease], run_seconds=[0.75]) == [True]
    progress = Progress(33.0)
    assert await store.report([Report(reported.lease, progress, run_seconds=0.75)]) == [True]
    for job_id, shown in zip(jobs, (began, began, None), strict=True):
        assert (await get_job(store, job_id)).started_at == shown
    assert (await get_job(store, jobs[1])).shown_state(clock.now()) == "running", "it has progress"
    clock.advance(2)
    assert await store.report([Report(started.lease, progress, run_seconds=9.0)]) == [True]
    # Measured on another clock, a run is a little shorter or longer.
    for one, seconds in ((started, 2.7), (reported, 2.8), (unrecorded, 2.75)):
        assert await settle_one(store, one.lease, Failed(BOOM), seconds)
    for job_id in jobs:
        record = await get_job(store, job_id)
        assert (record.started_at, record.attempts[0].started_at) == (began, began)
        starts = [entry.at for entry in timeline(record) if entry.what == "started"]
        assert starts == [to_datetime(began)]


async def test_reports_are_remembered(store: Store, clock: FrozenClock) -> None:
    """Progress and checkpoint are kept apart: one does not wipe the other."""
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease

    async def after(report: Report) -> JobRecord:
        assert await store.report([report]) == [True]
        return await get_job(store, job_id)

    clock.advance(1)
    record = await after(Report(lease, Progress(12.5, "rendering", "two")))
    first = Progress(12.5, "rendering", "two", updated_at=clock.now())
    assert (record.progress, record.checkpoint) == (first, None)
    clock.advance(1)
    record = await after(Report(lease, checkpoint=b'"page 3"'))
    assert (record.progress, record.checkpoint) == (first, b'"page 3"')
    record = await after(Report(lease, Progress(20)))
    assert record.progress == Progress(20, None, None, updated_at=clock.now())
    assert record.checkpoint == b'"page 3"'
    assert await after(Report(lease)) == record


async def test_a_checkpoint_alone_shows_no_progress(store: Store) -> None:
    """Nothing was said about how far the job is."""
    job_id = await enqueue_one(store)
    await store.report([Report((await claim_one(store)).lease, checkpoint=b'"x"')])
    assert (await get_job(store, job_id)).progress is None


async def test_a_checkpoint_reaches_the_next_attempt(store: Store, clock: FrozenClock) -> None:
    """Whatever ended the attempt: a retry, a release or a lost worker."""
    await enqueue_one(store)
    lease = (await claim_one(store)).lease
    await store.report([Report(lease, checkpoint=b'"one"')])
    await settle_one(store, lease, Retried(0, BOOM))
    claimed = await claim_one(store)
    assert claimed.checkpoint == b'"one"'
    await store.report([Report(claimed.lease, checkpoint=b'"two"')])
    await settle_one(store, claimed.lease, Released())
    claimed = await claim_one(store)
    assert claimed.checkpoint == b'"two"'
    clock.advance(LEASE_SECONDS)
    assert (await claim_one(store)).checkpoint == b'"two"'


async def test_cancel_requests_names_held_leases_that_were_asked_for(
    store: Store, clock: FrozenClock
) -> None:
    """In the order asked, and only those that still hold."""
    await enqueue_many(store, 4)
    leases = [one.lease for one in await claim_jobs(store)]
    assert await store.cancel_requests(leases) == []
    await store.cancel([leases[2].job_id, leases[0].job_id, leases[3].job_id])
    await settle_one(store, leases[3], Completed())
    assert await store.cancel_requests(leases) == [leases[0], leases[2]]
    assert await store.cancel_requests([Lease(leases[0].job_id, leases[0].fence + 50)]) == []
    assert await store.cancel_requests([]) == []
    clock.advance(LEASE_SECONDS)
    assert await store.cancel_requests(leases) == []


async def test_empty_batches_are_answered_with_nothing(store: Store) -> None:
    """Nothing asked, nothing answered, nothing done."""
    assert await store.mark_started([]) == []
    assert await store.extend([], 60) == []
    assert await store.settle([]) == []
    assert await store.report([]) == []
