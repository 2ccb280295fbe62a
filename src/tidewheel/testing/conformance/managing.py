"""What operators do to jobs (Q15, Q27)."""

from __future__ import annotations

import pytest

from tidewheel.ids import new_id
from tidewheel.model import BodyFormat, JobFilter, Progress, Report, State, Verdict
from tidewheel.outcome import Completed, Failed, Retried
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import (
    BOOM,
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
    state,
)


async def test_cancel_ends_a_pending_job_at_once(store: Store, clock: FrozenClock) -> None:
    """Due, delayed or retrying: DONE, with a reason and no made-up attempt."""
    retrying = await put(store)
    await end(store, (await claim_one(store)).lease, Retried(60, BOOM))
    due, delayed = await put(store), await put(store, delay=60)
    clock.advance(1)
    assert await store.cancel([due, delayed, retrying]) == [Verdict.DONE] * 3
    for job_id in (due, delayed, retrying):
        record = await look(store, job_id)
        assert (record.state, record.finished_at) == (State.CANCELLED, clock.now())
        assert record.error_summary is not None
        assert record.error_summary.startswith("job_canceled: ")
        assert not record.cancel_requested
    assert (await look(store, due)).attempts == ()
    assert len((await look(store, retrying)).attempts) == 1


async def test_cancel_asks_the_worker_of_a_running_job(store: Store) -> None:
    """REQUESTED, however often; the job runs on until its worker answers."""
    job_id = await put(store)
    claimed = await claim_one(store)
    assert await store.cancel([job_id]) == [Verdict.REQUESTED]
    assert await store.cancel([job_id]) == [Verdict.REQUESTED]
    record = await look(store, job_id)
    assert (record.state, record.cancel_requested, record.finished_at) == (State.RUNNING, True, None)
    assert await store.cancel_requests([claimed.lease]) == [claimed.lease]
    assert await store.extend([claimed.lease], 60) == [True], "the lease holds on"


@pytest.mark.parametrize("ended", [completed, failed, cancelled])
async def test_cancel_refuses_a_finished_job(store: Store, ended: End) -> None:
    """WRONG_STATE, and nothing changes."""
    job_id = await ended(store)
    before = await look(store, job_id)
    assert await store.cancel([job_id]) == [Verdict.WRONG_STATE]
    assert await look(store, job_id) == before


async def test_requeue_lets_a_failed_job_go_on(store: Store, clock: FrozenClock) -> None:
    """Due now, attempts back to 0; its checkpoint is there for the next run, its progress is forgotten."""
    job_id = await put(store, payload=b"[1]", format=BodyFormat.JSON, max_attempts=2, priority=4)
    claimed = await claim_one(store)
    await store.report([Report(claimed.lease, Progress(50, "half"), b'"checkpoint"')])
    await end(store, claimed.lease, Retried(0, BOOM))
    await end(store, (await claim_one(store)).lease, Failed(BOOM))
    clock.advance(100)
    assert await store.requeue([job_id]) == [Verdict.DONE]
    record = await look(store, job_id)
    assert (record.state, record.attempt, record.run_at) == (State.PENDING, 0, clock.now())
    assert (record.finished_at, record.claimed_at, record.started_at, record.worker) == (None,) * 4
    assert (record.result, record.progress, record.checkpoint) == (None, None, b'"checkpoint"')
    assert (record.payload, record.priority, record.max_attempts) == (b"[1]", 4, 2)
    assert [one.attempt for one in record.attempts] == [1, 2]
    assert record.error_summary == "boom: it broke"
    again = await claim_one(store)
    assert (again.attempt, again.checkpoint) == (1, b'"checkpoint"')
    await end(store, again.lease, Retried(0, BOOM))
    assert [one.attempt for one in (await look(store, job_id)).attempts] == [1, 2, 1]


async def test_requeue_brings_a_cancelled_job_back(store: Store) -> None:
    """The request that ended it is forgotten with it."""
    job_id = await put(store)
    claimed = await claim_one(store)
    await store.cancel([job_id])
    await end(store, claimed.lease, Retried(0, BOOM))
    assert await store.requeue([job_id]) == [Verdict.DONE]
    again = await claim_one(store)
    assert await store.cancel_requests([again.lease]) == []
    assert await end(store, again.lease, Completed())


async def test_requeue_refuses_what_has_not_failed(store: Store) -> None:
    """Pending, running and completed jobs are in the wrong state."""
    done = await completed(store)
    running = await put(store)
    await claim_one(store)
    pending = await put(store)
    assert await store.requeue([done, running, pending]) == [Verdict.WRONG_STATE] * 3
    assert await store.states([done, running, pending]) == [State.COMPLETED, State.RUNNING, State.PENDING]


async def test_delete_removes_every_trace(store: Store) -> None:
    """Pending, delayed or finished: gone from every view."""
    job_ids = [await completed(store), await failed(store), await cancelled(store)]
    job_ids += [await put(store), await put(store, delay=10)]
    assert await store.delete(job_ids) == [Verdict.DONE] * 5
    assert await store.states(job_ids) == [None] * 5
    assert [await store.get(job_id) for job_id in job_ids] == [None] * 5
    assert (await store.count(JobFilter())).total == 0
    assert await store.topics() == []
    assert await claim(store) == []
    assert await store.check() == []


async def test_delete_refuses_a_running_job(store: Store) -> None:
    """Its worker would settle into nothing."""
    job_id = await put(store)
    claimed = await claim_one(store)
    assert await store.delete([job_id]) == [Verdict.WRONG_STATE]
    assert await end(store, claimed.lease, Completed())
    assert await store.delete([job_id]) == [Verdict.DONE]


async def test_unknown_jobs_are_not_found(store: Store) -> None:
    """Each verb says so, and goes on with the rest."""
    known = await put(store)
    assert await store.cancel([new_id(), known, new_id()]) == [
        Verdict.NOT_FOUND,
        Verdict.DONE,
        Verdict.NOT_FOUND,
    ]
    assert await store.requeue([new_id(), known]) == [Verdict.NOT_FOUND, Verdict.DONE]
    assert await store.delete([new_id(), known]) == [Verdict.NOT_FOUND, Verdict.DONE]


async def test_the_same_job_twice_in_a_batch_is_judged_twice(store: Store) -> None:
    """The second time it meets what the first left."""
    first, second = await put_many(store, 2)
    assert await store.cancel([first, first]) == [Verdict.DONE, Verdict.WRONG_STATE]
    assert await store.requeue([first, first]) == [Verdict.DONE, Verdict.WRONG_STATE]
    assert await store.delete([second, second]) == [Verdict.DONE, Verdict.NOT_FOUND]


async def test_empty_batches_do_nothing(store: Store) -> None:
    """Nothing named, nothing done."""
    assert await store.cancel([]) == []
    assert await store.requeue([]) == []
    assert await store.delete([]) == []
    assert await store.states([]) == []


async def test_another_tenants_job_is_not_found(store: Store) -> None:
    """Neither seen nor changed, and indistinguishable from one that does not exist."""
    mine, theirs = await put(store, tenant="me"), await put(store, tenant="them")
    before = await look(store, theirs)
    assert await store.get(theirs, tenant="me") is None
    assert (await store.get(mine, tenant="me")) is not None
    assert await store.cancel([theirs, mine], tenant="me") == [Verdict.NOT_FOUND, Verdict.DONE]
    assert await store.requeue([theirs, mine], tenant="me") == [Verdict.NOT_FOUND, Verdict.DONE]
    assert await store.delete([theirs, mine], tenant="me") == [Verdict.NOT_FOUND, Verdict.DONE]
    assert await look(store, theirs) == before


async def test_without_a_tenant_all_jobs_are_meant(store: Store) -> None:
    """None narrows nothing."""
    job_ids = [await put(store, tenant="a"), await put(store, tenant="b")]
    assert await store.cancel(job_ids) == [Verdict.DONE] * 2


async def test_a_job_with_a_request_whose_lease_ended_can_still_be_asked(
    store: Store, clock: FrozenClock
) -> None:
    """Until a rescue notices, it is running."""
    job_id = await put(store)
    await claim_one(store)
    clock.advance(60)
    assert await store.cancel([job_id]) == [Verdict.REQUESTED]
    assert ids(await claim(store)) == []
    assert await state(store, job_id) is State.CANCELLED
