"""Taking running jobs back from their holders."""

from __future__ import annotations

import pytest

from tidewheel.ids import new_id
from tidewheel.model import Lane, Progress, Report, State, Verdict
from tidewheel.outcome import Completed
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import (
    TOPIC,
    End,
    cancelled,
    claim,
    claim_one,
    completed,
    end,
    failed,
    ids,
    look,
    put,
    put_many,
)


async def test_a_job_that_is_taken_back_is_pending_and_uncounted(store: Store, clock: FrozenClock) -> None:
    """Due since it was, with its number and priority; the attempt and the holder are forgotten."""
    job_id = await put(store, max_attempts=1, lease_seconds=3600)
    before = await look(store, job_id)
    claimed = await claim_one(store, worker="pull:gone")
    await store.start([claimed.lease])
    clock.advance(5)
    assert await store.take_back([job_id]) == [Verdict.DONE]
    record = await look(store, job_id)
    assert (record.state, record.attempt, record.run_at) == (State.PENDING, 0, before.run_at)
    assert (record.worker, record.claimed_at, record.started_at, record.leased_until) == (None,) * 4
    assert (record.number, record.attempts, record.releases) == (before.number, (), 0)
    again = await claim_one(store)
    assert (again.lease.job_id, again.attempt) == (job_id, 1)
    assert again.lease.fence > claimed.lease.fence
    assert await store.check() == []


async def test_the_old_holder_of_a_taken_job_can_write_nothing(store: Store) -> None:
    """Refused while the job waits, and while another has it."""
    job_id = await put(store)
    lease = (await claim_one(store)).lease
    assert await store.take_back([job_id]) == [Verdict.DONE]
    for _ in range(2):
        assert await store.extend([lease], 60) == [False]
        assert await store.report([Report(lease, Progress(50))]) == [False]
        assert not await end(store, lease, Completed(b"1"))
        await claim(store)
    assert (await look(store, job_id)).state is State.RUNNING


async def test_jobs_that_were_claimed_together_are_taken_back_one_by_one(store: Store) -> None:
    """The others of the claim stay with their holder."""
    job_ids = await put_many(store, 5)
    leases = {one.lease.job_id: one.lease for one in await claim(store, limit=5)}
    assert await store.take_back([job_ids[1], job_ids[3], job_ids[1]]) == [
        Verdict.DONE,
        Verdict.DONE,
        Verdict.WRONG_STATE,
    ]
    assert ids(await claim(store, limit=5)) == [job_ids[1], job_ids[3]]
    assert [await end(store, leases[job_id], Completed()) for job_id in job_ids] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert await store.check() == []


async def test_a_job_whose_lease_has_ended_can_be_taken_back(store: Store, clock: FrozenClock) -> None:
    """Nobody may have looked since; the attempt is not counted then, either."""
    job_id = await put(store, lease_seconds=10)
    await claim_one(store)
    clock.advance(11)
    assert await store.take_back([job_id]) == [Verdict.DONE]
    record = await look(store, job_id)
    assert (record.state, record.attempt, record.attempts) == (State.PENDING, 0, ())


async def test_a_job_with_a_cancel_request_ends_when_it_is_taken_back(store: Store) -> None:
    """As cancelled, uncounted; jobs that wait for it are dealt with."""
    job_id = await put(store)
    child = await put(store, after=(job_id,))
    await claim_one(store)
    await store.cancel([job_id])
    assert await store.take_back([job_id]) == [Verdict.DONE]
    record = await look(store, job_id)
    assert (record.state, record.attempt, record.cancel_requested) == (State.CANCELLED, 0, False)
    assert (await look(store, child)).state is State.CANCELLED
    assert await store.check() == []


@pytest.mark.parametrize("ended", [put, completed, failed, cancelled])
async def test_a_job_that_does_not_run_cannot_be_taken_back(store: Store, ended: End) -> None:
    """WRONG_STATE, and nothing changes; NOT_FOUND for an id that no job has."""
    job_id = await ended(store)
    before = await look(store, job_id)
    assert await store.take_back([job_id, new_id()]) == [Verdict.WRONG_STATE, Verdict.NOT_FOUND]
    assert await look(store, job_id) == before
    assert await store.take_back([]) == []


async def test_a_job_that_is_taken_back_is_counted_as_pending(store: Store) -> None:
    """Counters follow, and the job can be claimed at once."""
    job_id = await put(store)
    await claim_one(store)
    await store.take_back([job_id])
    [lane] = await store.lanes(window_seconds=60)
    assert (lane.pending, lane.running, lane.due) == (1, 0, 1)
    assert ids(await claim(store, Lane(TOPIC))) == [job_id]
