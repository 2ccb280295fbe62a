"""Operator actions: cancel, requeue, delete, take running jobs back, list and pause topics.

Jobs: Q15, Q27. Topics: Q24, Q30.
"""

from __future__ import annotations

import pytest

from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    FOREVER,
    ActionResult,
    BodyFormat,
    Completed,
    Failed,
    JobFilter,
    Lane,
    Progress,
    Report,
    Retried,
    State,
)
from tidewheel.core.reports import TopicStats
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
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


async def test_cancel_ends_a_pending_job_at_once(store: Store, clock: FrozenClock) -> None:
    """Due, delayed or retrying: DONE, with a reason and no made-up attempt."""
    retrying = await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Retried(60, BOOM))
    due, delayed = await enqueue_one(store), await enqueue_one(store, delay=60)
    clock.advance(1)
    assert await store.cancel([due, delayed, retrying]) == [ActionResult.DONE] * 3
    for job_id in (due, delayed, retrying):
        record = await get_job(store, job_id)
        assert (record.state, record.finished_at) == (State.CANCELLED, clock.now())
        assert record.error_summary is not None
        assert record.error_summary.startswith("job_canceled: ")
        assert not record.cancel_requested
    assert (await get_job(store, due)).attempts == ()
    assert len((await get_job(store, retrying)).attempts) == 1


async def test_cancel_asks_the_worker_of_a_running_job(store: Store) -> None:
    """REQUESTED, however often; the job runs on until its worker answers."""
    job_id = await enqueue_one(store)
    claimed = await claim_one(store)
    assert await store.cancel([job_id]) == [ActionResult.REQUESTED]
    assert await store.cancel([job_id]) == [ActionResult.REQUESTED]
    record = await get_job(store, job_id)
    assert (record.state, record.cancel_requested, record.finished_at) == (State.RUNNING, True, None)
    assert await store.cancel_requests([claimed.lease]) == [claimed.lease]
    assert await store.extend([claimed.lease], 60) == [True], "the lease holds on"


@pytest.mark.parametrize("ended", [make_completed, make_failed, make_cancelled])
async def test_cancel_refuses_a_finished_job(store: Store, ended: MakeFinished) -> None:
    """WRONG_STATE, and nothing changes."""
    job_id = await ended(store)
    before = await get_job(store, job_id)
    assert await store.cancel([job_id]) == [ActionResult.WRONG_STATE]
    assert await get_job(store, job_id) == before


async def test_requeue_lets_a_failed_job_go_on(store: Store, clock: FrozenClock) -> None:
    """Due now, attempts back to 0; its checkpoint is there for the next run, its progress is forgotten."""
    job_id = await enqueue_one(store, payload=b"[1]", format=BodyFormat.JSON, max_attempts=2, priority=4)
    claimed = await claim_one(store)
    await store.report([Report(claimed.lease, Progress(50, "half"), b'"checkpoint"')])
    await settle_one(store, claimed.lease, Retried(0, BOOM))
    await settle_one(store, (await claim_one(store)).lease, Failed(BOOM))
    clock.advance(100)
    assert await store.requeue([job_id]) == [ActionResult.DONE]
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.run_at) == (State.PENDING, 0, clock.now())
    assert (record.finished_at, record.claimed_at, record.started_at, record.worker) == (None,) * 4
    assert (record.result, record.progress, record.checkpoint) == (None, None, b'"checkpoint"')
    assert (record.payload, record.priority, record.max_attempts) == (b"[1]", 4, 2)
    assert [one.attempt for one in record.attempts] == [1, 2]
    assert record.error_summary == "boom: it broke"
    again = await claim_one(store)
    assert (again.attempt, again.checkpoint) == (1, b'"checkpoint"')
    await settle_one(store, again.lease, Retried(0, BOOM))
    assert [one.attempt for one in (await get_job(store, job_id)).attempts] == [1, 2, 1]


async def test_requeue_brings_a_cancelled_job_back(store: Store) -> None:
    """The request that ended it is forgotten with it."""
    job_id = await enqueue_one(store)
    claimed = await claim_one(store)
    await store.cancel([job_id])
    await settle_one(store, claimed.lease, Retried(0, BOOM))
    assert await store.requeue([job_id]) == [ActionResult.DONE]
    again = await claim_one(store)
    assert await store.cancel_requests([again.lease]) == []
    assert await settle_one(store, again.lease, Completed())


async def test_requeue_refuses_what_has_not_failed(store: Store) -> None:
    """Pending, running and completed jobs are in the wrong state."""
    done = await make_completed(store)
    running = await enqueue_one(store)
    await claim_one(store)
    pending = await enqueue_one(store)
    assert await store.requeue([done, running, pending]) == [ActionResult.WRONG_STATE] * 3
    assert await store.states([done, running, pending]) == [State.COMPLETED, State.RUNNING, State.PENDING]


async def test_delete_removes_every_trace(store: Store) -> None:
    """Pending, delayed or finished: gone from every view."""
    job_ids = [await make_completed(store), await make_failed(store), await make_cancelled(store)]
    job_ids += [await enqueue_one(store), await enqueue_one(store, delay=10)]
    assert await store.delete(job_ids) == [ActionResult.DONE] * 5
    assert await store.states(job_ids) == [None] * 5
    assert [await store.get(job_id) for job_id in job_ids] == [None] * 5
    assert (await store.count(JobFilter())).total == 0
    assert await store.topics() == []
    assert await claim_jobs(store) == []
    assert await store.check() == []


async def test_delete_refuses_a_running_job(store: Store) -> None:
    """Its worker would settle into nothing."""
    job_id = await enqueue_one(store)
    claimed = await claim_one(store)
    assert await store.delete([job_id]) == [ActionResult.WRONG_STATE]
    assert await settle_one(store, claimed.lease, Completed())
    assert await store.delete([job_id]) == [ActionResult.DONE]


async def test_unknown_jobs_are_not_found(store: Store) -> None:
    """Each verb says so, and goes on with the rest."""
    known = await enqueue_one(store)
    assert await store.cancel([new_id(), known, new_id()]) == [
        ActionResult.NOT_FOUND,
        ActionResult.DONE,
        ActionResult.NOT_FOUND,
    ]
    assert await store.requeue([new_id(), known]) == [ActionResult.NOT_FOUND, ActionResult.DONE]
    assert await store.delete([new_id(), known]) == [ActionResult.NOT_FOUND, ActionResult.DONE]


async def test_the_same_job_twice_in_a_batch_is_judged_twice(store: Store) -> None:
    """The second time it meets what the first left."""
    first, second = await enqueue_many(store, 2)
    assert await store.cancel([first, first]) == [ActionResult.DONE, ActionResult.WRONG_STATE]
    assert await store.requeue([first, first]) == [ActionResult.DONE, ActionResult.WRONG_STATE]
    assert await store.delete([second, second]) == [ActionResult.DONE, ActionResult.NOT_FOUND]


async def test_empty_batches_do_nothing(store: Store) -> None:
    """Nothing named, nothing done."""
    assert await store.cancel([]) == []
    assert await store.requeue([]) == []
    assert await store.delete([]) == []
    assert await store.states([]) == []


async def test_another_tenants_job_is_not_found(store: Store) -> None:
    """Neither seen nor changed, and indistinguishable from one that does not exist."""
    mine, theirs = await enqueue_one(store, tenant="me"), await enqueue_one(store, tenant="them")
    before = await get_job(store, theirs)
    assert await store.get(theirs, tenant="me") is None
    assert (await store.get(mine, tenant="me")) is not None
    assert await store.cancel([theirs, mine], tenant="me") == [ActionResult.NOT_FOUND, ActionResult.DONE]
    assert await store.requeue([theirs, mine], tenant="me") == [ActionResult.NOT_FOUND, ActionResult.DONE]
    assert await store.delete([theirs, mine], tenant="me") == [ActionResult.NOT_FOUND, ActionResult.DONE]
    assert await get_job(store, theirs) == before


async def test_without_a_tenant_all_jobs_are_meant(store: Store) -> None:
    """None narrows nothing."""
    job_ids = [await enqueue_one(store, tenant="a"), await enqueue_one(store, tenant="b")]
    assert await store.cancel(job_ids) == [ActionResult.DONE] * 2


async def test_a_job_with_a_request_whose_lease_ended_can_still_be_asked(
    store: Store, clock: FrozenClock
) -> None:
    """Until a rescue notices, it is running."""
    job_id = await enqueue_one(store)
    await claim_one(store)
    clock.advance(60)
    assert await store.cancel([job_id]) == [ActionResult.REQUESTED]
    assert ids(await claim_jobs(store)) == []
    assert await get_state(store, job_id) is State.CANCELLED


async def test_a_job_that_is_taken_back_is_pending_and_uncounted(store: Store, clock: FrozenClock) -> None:
    """Due since it was, with its number and priority; the attempt and the holder are forgotten."""
    job_id = await enqueue_one(store, max_attempts=1, lease_seconds=3600)
    before = await get_job(store, job_id)
    claimed = await claim_one(store, worker="pull:gone")
    await store.mark_started([claimed.lease])
    clock.advance(5)
    assert await store.take_back([job_id]) == [ActionResult.DONE]
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.run_at) == (State.PENDING, 0, before.run_at)
    assert (record.worker, record.claimed_at, record.started_at, record.leased_until) == (None,) * 4
    assert (record.number, record.attempts, record.releases) == (before.number, (), 0)
    again = await claim_one(store)
    assert (again.lease.job_id, again.attempt) == (job_id, 1)
    assert again.lease.fence > claimed.lease.fence
    assert await store.check() == []


async def test_the_old_holder_of_a_taken_job_can_write_nothing(store: Store) -> None:
    """Refused while the job waits, and while another has it."""
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease
    assert await store.take_back([job_id]) == [ActionResult.DONE]
    for _ in range(2):
        assert await store.extend([lease], 60) == [False]
        assert await store.report([Report(lease, Progress(50))]) == [False]
        assert not await settle_one(store, lease, Completed(b"1"))
        await claim_jobs(store)
    assert (await get_job(store, job_id)).state is State.RUNNING


async def test_jobs_that_were_claimed_together_are_taken_back_one_by_one(store: Store) -> None:
    """The others of the claim stay with their holder."""
    job_ids = await enqueue_many(store, 5)
    leases = {one.lease.job_id: one.lease for one in await claim_jobs(store, limit=5)}
    assert await store.take_back([job_ids[1], job_ids[3], job_ids[1]]) == [
        ActionResult.DONE,
        ActionResult.DONE,
        ActionResult.WRONG_STATE,
    ]
    assert ids(await claim_jobs(store, limit=5)) == [job_ids[1], job_ids[3]]
    assert [await settle_one(store, leases[job_id], Completed()) for job_id in job_ids] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert await store.check() == []


async def test_a_job_whose_lease_has_ended_can_be_taken_back(store: Store, clock: FrozenClock) -> None:
    """Nobody may have looked since; the attempt is not counted then, either."""
    job_id = await enqueue_one(store, lease_seconds=10)
    await claim_one(store)
    clock.advance(11)
    assert await store.take_back([job_id]) == [ActionResult.DONE]
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.attempts) == (State.PENDING, 0, ())


async def test_a_job_with_a_cancel_request_ends_when_it_is_taken_back(store: Store) -> None:
    """As cancelled, uncounted; jobs that wait for it are dealt with."""
    job_id = await enqueue_one(store)
    child = await enqueue_one(store, after=(job_id,))
    await claim_one(store)
    await store.cancel([job_id])
    assert await store.take_back([job_id]) == [ActionResult.DONE]
    record = await get_job(store, job_id)
    assert (record.state, record.attempt, record.cancel_requested) == (State.CANCELLED, 0, False)
    assert (await get_job(store, child)).state is State.CANCELLED
    assert await store.check() == []


@pytest.mark.parametrize("ended", [enqueue_one, make_completed, make_failed, make_cancelled])
async def test_a_job_that_does_not_run_cannot_be_taken_back(store: Store, ended: MakeFinished) -> None:
    """WRONG_STATE, and nothing changes; NOT_FOUND for an id that no job has."""
    job_id = await ended(store)
    before = await get_job(store, job_id)
    assert await store.take_back([job_id, new_id()]) == [ActionResult.WRONG_STATE, ActionResult.NOT_FOUND]
    assert await get_job(store, job_id) == before
    assert await store.take_back([]) == []


async def test_a_job_that_is_taken_back_is_counted_as_pending(store: Store) -> None:
    """Counters follow, and the job can be claimed at once."""
    job_id = await enqueue_one(store)
    await claim_one(store)
    await store.take_back([job_id])
    [lane] = await store.lanes(window_seconds=60)
    assert (lane.pending, lane.running, lane.due) == (1, 0, 1)
    assert ids(await claim_jobs(store, Lane(TOPIC))) == [job_id]


async def test_topics_with_jobs_are_listed_by_name(store: Store) -> None:
    """In any state, sorted the way computers sort."""
    await enqueue_one(store, "b")
    await make_completed(store, "B")
    await enqueue_one(store, "a")
    await enqueue_one(store, "b", delay=60)
    assert await store.topics() == [
        TopicStats("B", completed=1),
        TopicStats("a", pending=1),
        TopicStats("b", pending=2),
    ]


async def test_a_topic_disappears_with_its_last_job(store: Store) -> None:
    """Nothing has to be dropped by hand."""
    job_id = await enqueue_one(store, "once")
    await store.delete([job_id])
    assert await store.topics() == []


async def test_a_paused_topic_grants_nothing(store: Store) -> None:
    """Other topics go on, and enqueueing into it does too."""
    await store.pause("paused", FOREVER)
    waiting = await enqueue_one(store, "paused", priority=9)
    other = await enqueue_one(store, "other")
    assert ids(await claim_jobs(store, "paused", "other")) == [other]
    await store.pause("paused", None)
    assert ids(await claim_jobs(store, "paused", "other")) == [waiting]


async def test_a_pause_ends_by_itself_at_its_time(store: Store, clock: FrozenClock) -> None:
    """Until then, not longer."""
    await store.pause("mail", clock.now() + 10_000_000)
    job_id = await enqueue_one(store, "mail")
    clock.advance(9.999999)
    assert await claim_jobs(store, "mail") == []
    clock.advance(0.000001)
    assert ids(await claim_jobs(store, "mail")) == [job_id]
    assert (await store.topics())[0].paused_until is None


async def test_a_paused_topic_is_listed_even_without_jobs(store: Store, clock: FrozenClock) -> None:
    """So that somebody can find and resume it; once over, it is gone."""
    until = clock.now() + 1_000_000
    await store.pause("empty", until)
    assert await store.topics() == [TopicStats("empty", paused_until=until)]
    assert (await store.stats(window_seconds=60)).topics == (TopicStats("empty", paused_until=until),)
    clock.advance(1)
    assert await store.topics() == []


async def test_a_second_pause_replaces_the_first(store: Store, clock: FrozenClock) -> None:
    """Longer or shorter, the last word counts."""
    await store.pause("mail", FOREVER)
    assert (await store.topics())[0].paused_until == FOREVER
    await store.pause("mail", clock.now() + 1_000_000)
    assert (await store.topics())[0].paused_until == clock.now() + 1_000_000


async def test_a_pause_that_is_already_over_is_none(store: Store, clock: FrozenClock) -> None:
    """Nothing is paused until a past moment."""
    job_id = await enqueue_one(store)
    await store.pause("mail", clock.now())
    assert (await store.topics())[0].paused_until is None
    assert ids(await claim_jobs(store)) == [job_id]


async def test_resuming_what_is_not_paused_does_nothing(store: Store) -> None:
    """Idempotent."""
    await store.pause("mail", None)
    assert await store.topics() == []


async def test_a_pause_does_not_touch_running_jobs(store: Store) -> None:
    """It stops granting, not working."""
    await enqueue_one(store)
    claimed = await claim_one(store)
    await store.pause("mail", FOREVER)
    assert await store.extend([claimed.lease], 60) == [True]
    assert await settle_one(store, claimed.lease, Completed())
