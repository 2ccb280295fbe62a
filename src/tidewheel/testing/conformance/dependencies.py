"""Jobs that run after others (Q24)."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    ActionResult,
    Cancelled,
    Completed,
    Count,
    DerivedState,
    Failed,
    JobFilter,
    NewJob,
    OnDuplicate,
    Relative,
    Retried,
    Settlement,
    State,
)
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.errors import LimitExceeded, ParentNotFound
from tidewheel.stores.bounds import MAX_PARENTS, MAX_PARENTS_PER_CALL, MAX_RELEASED_DEPENDENTS
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    LEASE_SECONDS,
    TOPIC,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    get_state,
    ids,
    job,
    make_cancelled,
    make_completed,
    make_failed,
    settle_one,
)

CHILDREN = "children"


async def child_of(store: Store, *parents: UUID, **options: Any) -> UUID:
    return await enqueue_one(store, CHILDREN, after=parents, **options)


async def run_next_job(store: Store, job_id: UUID, outcome: Any = None) -> None:
    """Run the job, which is the next of its topic."""
    claimed = await claim_one(store)
    assert claimed.lease.job_id == job_id
    assert await settle_one(store, claimed.lease, outcome or Completed())


async def assert_consistent(store: Store) -> None:
    assert await store.check() == []


async def test_a_job_waits_until_all_its_parents_have_completed(store: Store, clock: FrozenClock) -> None:
    """It is blocked by as many as have not ended, and ready with the end of the last."""
    first, second = await enqueue_many(store, 2)
    child = await child_of(store, first, second)
    record = await get_job(store, child)
    assert (record.blocked, record.shown_state(clock.now())) == (2, DerivedState.BLOCKED)
    assert record.after == (
        Relative(first, State.PENDING, waits=True),
        Relative(second, State.PENDING, waits=True),
    )
    assert await claim_jobs(store, CHILDREN) == []
    await run_next_job(store, first)
    record = await get_job(store, child)
    assert record.blocked == 1
    assert record.after == (
        Relative(first, State.COMPLETED),
        Relative(second, State.PENDING, waits=True),
    )
    assert await claim_jobs(store, CHILDREN) == []
    await run_next_job(store, second)
    assert (await get_job(store, child)).blocked == 0
    assert ids(await claim_jobs(store, CHILDREN)) == [child]
    await assert_consistent(store)


async def test_parents_are_shown_in_the_order_they_were_named(store: Store) -> None:
    """Whatever their numbers."""
    parents = await enqueue_many(store, 5)
    named = [parents[place] for place in (3, 0, 4, 1, 2)]
    child = await child_of(store, *named, after_any=True)
    record = await get_job(store, child)
    assert [parent.job_id for parent in record.after] == named
    assert record.after_any
    assert (await get_job(store, parents[0])).after == ()


async def test_a_delayed_child_stays_delayed_when_its_parents_have_ended(
    store: Store, clock: FrozenClock
) -> None:
    """To run after something is no reason to run before its time."""
    parent = await enqueue_one(store)
    child = await child_of(store, parent, delay=60.0)
    await run_next_job(store, parent)
    assert (await get_job(store, child)).shown_state(clock.now()) == DerivedState.DELAYED
    assert await claim_jobs(store, CHILDREN) == []
    clock.advance(60)
    assert ids(await claim_jobs(store, CHILDREN)) == [child]


async def test_a_blocked_job_that_is_due_is_not_promoted(store: Store, clock: FrozenClock) -> None:
    """Time does not end a wait for others."""
    parent = await enqueue_one(store)
    child = await child_of(store, parent, delay=1.0)
    clock.advance(10)
    assert await claim_jobs(store, CHILDREN) == []
    await run_next_job(store, parent)
    assert ids(await claim_jobs(store, CHILDREN)) == [child]


async def test_a_job_whose_parents_have_all_completed_is_not_blocked(store: Store) -> None:
    """There is nothing to wait for."""
    parent = await make_completed(store)
    child = await child_of(store, parent)
    record = await get_job(store, child)
    assert (record.blocked, record.after) == (0, (Relative(parent, State.COMPLETED),))
    assert ids(await claim_jobs(store, CHILDREN)) == [child]


@pytest.mark.parametrize("outcome", [Failed(BOOM), Cancelled(BOOM)])
async def test_a_parent_that_does_not_complete_cancels_its_children(store: Store, outcome: Any) -> None:
    """With a code and a message that name it and how it ended, all the way down."""
    parent = await enqueue_one(store)
    child = await child_of(store, parent)
    grandchild = await child_of(store, child)
    await run_next_job(store, parent, outcome)
    how = "failed" if isinstance(outcome, Failed) else "was cancelled"
    record = await get_job(store, child)
    assert (record.state, record.blocked) == (State.CANCELLED, 0)
    assert record.error_summary == f"parent_failed: job {parent}, which it waited for, {how}"
    assert record.newest_error is not None
    assert record.newest_error.code == "parent_failed"
    record = await get_job(store, grandchild)
    assert record.error_summary == f"parent_failed: job {child}, which it waited for, was cancelled"
    await assert_consistent(store)


async def test_a_parent_that_fails_after_its_last_attempt_cancels_its_children(store: Store) -> None:
    """Retries do not: they are not an end."""
    parent = await enqueue_one(store, max_attempts=2)
    child = await child_of(store, parent)
    await run_next_job(store, parent, Retried(0.0, BOOM))
    assert (await get_job(store, child)).blocked == 1
    await run_next_job(store, parent, Retried(0.0, BOOM))
    assert await get_state(store, child) is State.CANCELLED


async def test_after_any_runs_however_its_parents_end(store: Store) -> None:
    """To clean up, for example."""
    first, second = await enqueue_many(store, 2)
    child = await child_of(store, first, second, after_any=True)
    await run_next_job(store, first, Failed(BOOM))
    assert (await get_job(store, child)).blocked == 1
    await store.cancel([second])
    assert ids(await claim_jobs(store, CHILDREN)) == [child]
    assert (await get_job(store, child)).after == (
        Relative(first, State.FAILED),
        Relative(second, State.CANCELLED),
    )


@pytest.mark.parametrize("ending", [make_failed, make_cancelled])
async def test_a_parent_that_had_failed_already_cancels_the_child_at_once(store: Store, ending: Any) -> None:
    """An enqueue does not fail for a race: the job is there, and has ended."""
    parent = await ending(store)
    child = await child_of(store, parent)
    grandchild = await child_of(store, child)
    assert await get_state(store, child) is State.CANCELLED
    assert await get_state(store, grandchild) is State.CANCELLED
    anyway = await child_of(store, parent, after_any=True)
    assert ids(await claim_jobs(store, CHILDREN)) == [anyway]
    await assert_consistent(store)


async def test_a_parent_may_stand_earlier_in_the_same_call(store: Store) -> None:
    """A whole chain in one call; not the other way round, so nobody waits in a circle."""
    first = job(CHILDREN)
    second = job(CHILDREN, after=(first.id,))
    third = job(CHILDREN, after=(first.id, second.id))
    await store.enqueue([first, second, third])
    assert [(await get_job(store, one.id)).blocked for one in (first, second, third)] == [0, 1, 2]
    for one in (first, second, third):
        claimed = await claim_jobs(store, CHILDREN)
        assert ids(claimed) == [one.id]
        assert await settle_one(store, claimed[0].lease, Completed())
    late = job()
    with pytest.raises(ParentNotFound, match=str(late.id)):
        await store.enqueue([job(after=(late.id,)), late])
    itself = new_id()
    with pytest.raises(ParentNotFound, match=str(itself)):
        await store.enqueue([NewJob(id=itself, topic=TOPIC, after=(itself,))])
    assert await store.count(JobFilter(topic=TOPIC)) == Count(0)


async def test_a_chain_in_one_call_after_a_failed_job_ends_at_once(store: Store) -> None:
    """What is cancelled while it is written cancels what was written to run after it."""
    parent = await make_failed(store)
    first = job(CHILDREN, after=(parent,))
    second = job(CHILDREN, after=(first.id,))
    third = job(CHILDREN, after=(second.id,), after_any=True)
    await store.enqueue([first, second, third])
    assert [await get_state(store, one.id) for one in (first, second)] == [State.CANCELLED] * 2
    assert ids(await claim_jobs(store, CHILDREN)) == [third.id]
    await assert_consistent(store)


async def test_a_missing_parent_refuses_the_whole_call(store: Store) -> None:
    """By its id; nothing was written, of its neighbours neither."""
    missing = new_id()
    parent = await enqueue_one(store)
    with pytest.raises(ParentNotFound, match=str(missing)):
        await store.enqueue([job(CHILDREN), job(CHILDREN, after=(parent, missing))])
    assert await store.count(JobFilter(topic=CHILDREN)) == Count(0)
    assert (await store.dependents(parent)).total == Count(0)
    await run_next_job(store, parent)
    await assert_consistent(store)


async def test_a_parent_of_another_tenant_is_not_found(store: Store) -> None:
    """In the same words: who is not there cannot be told from who is not ours."""
    theirs = await enqueue_one(store, tenant="theirs")
    with pytest.raises(ParentNotFound) as other:
        await child_of(store, theirs, tenant="ours")
    with pytest.raises(ParentNotFound) as gone:
        await child_of(store, missing := new_id(), tenant="ours")
    assert str(other.value).replace(str(theirs), "") == str(gone.value).replace(str(missing), "")
    first = job(tenant="theirs")
    with pytest.raises(ParentNotFound):
        await store.enqueue([first, job(after=(first.id,), tenant="ours")])
    ended_there = await make_completed(store, "elsewhere", tenant="theirs")
    with pytest.raises(ParentNotFound):
        await child_of(store, ended_there, tenant="ours")
    ours = await enqueue_one(store, tenant="ours")
    child = await child_of(store, ours, tenant="ours")
    assert [one.job_id for one in (await store.dependents(ours, tenant="ours")).jobs] == [child]
    assert (await store.dependents(ours, tenant="theirs")).total == Count(0)


async def test_too_many_parents_are_refused(store: Store) -> None:
    """A thousand for one job, a hundred thousand in one call."""
    many = tuple(new_id() for _ in range(MAX_PARENTS + 1))
    with pytest.raises(LimitExceeded, match="1,001"):
        await child_of(store, *many)
    calls = [job(after=many[:MAX_PARENTS]) for _ in range(MAX_PARENTS_PER_CALL // MAX_PARENTS + 1)]
    with pytest.raises(LimitExceeded, match="101,000"):
        await store.enqueue(calls)


async def test_an_expired_parent_cancels_its_children(store: Store, clock: FrozenClock) -> None:
    """To expire is to be cancelled. A blocked job expires as any other that waits."""
    parent = await enqueue_one(store, expires_in=10.0)
    child = await child_of(store, parent)
    other = await enqueue_one(store, "other")
    waiting = await child_of(store, other, expires_in=10.0)
    clock.advance(10)
    assert (await store.rescue()).expired == 2
    record = await get_job(store, child)
    assert record.error_summary == f"parent_failed: job {parent}, which it waited for, was cancelled"
    record = await get_job(store, waiting)
    assert record.state is State.CANCELLED
    assert (record.error_summary or "").startswith("expired")
    await run_next_job_of(store, "other")
    assert await get_state(store, waiting) is State.CANCELLED
    await assert_consistent(store)


async def run_next_job_of(store: Store, topic: str) -> None:
    assert await settle_one(store, (await claim_one(store, topic)).lease, Completed())


async def test_a_parent_whose_worker_was_lost_for_good_cancels_its_children(
    store: Store, clock: FrozenClock
) -> None:
    """A rescue that fails a job is an end like others, also by a claim."""
    parent = await enqueue_one(store, max_attempts=1)
    child = await child_of(store, parent)
    await store.mark_started([(await claim_one(store)).lease])
    clock.advance(LEASE_SECONDS)
    await claim_jobs(store, "elsewhere")
    assert await get_state(store, parent) is State.FAILED
    assert await get_state(store, child) is State.CANCELLED


async def test_deleting_a_parent_that_had_not_ended_cancels_its_children(store: Store) -> None:
    """It will never complete."""
    parent = await enqueue_one(store)
    child = await child_of(store, parent)
    anyway = await child_of(store, parent, after_any=True)
    assert await store.delete([parent]) == [ActionResult.DONE]
    record = await get_job(store, child)
    assert record.error_summary == f"parent_failed: job {parent}, which it waited for, was deleted"
    assert record.after == (Relative(parent, None),)
    assert ids(await claim_jobs(store, CHILDREN)) == [anyway]
    await assert_consistent(store)


async def test_deleting_a_parent_that_has_ended_changes_nothing_for_its_children(store: Store) -> None:
    """They have what they waited for."""
    parent, other = await enqueue_many(store, 2)
    child = await child_of(store, parent, other)
    await run_next_job(store, parent)
    assert await store.delete([parent]) == [ActionResult.DONE]
    record = await get_job(store, child)
    assert record.blocked == 1
    assert record.after == (Relative(parent, None), Relative(other, State.PENDING, waits=True))
    await run_next_job(store, other)
    assert ids(await claim_jobs(store, CHILDREN)) == [child]
    await assert_consistent(store)


async def test_deleting_children_lets_their_parents_go_on(store: Store, clock: FrozenClock) -> None:
    """Nobody is told anything, and the parent's time is what it would have been."""
    parent = await enqueue_one(store, retention=60.0)
    child = await child_of(store, parent)
    assert await store.delete([child]) == [ActionResult.DONE]
    await run_next_job(store, parent)
    assert (await store.dependents(parent)).total == Count(0)
    await store.rescue()
    clock.advance(60)
    assert await store.prune() == {State.COMPLETED: 1}
    await assert_consistent(store)


async def test_a_parent_is_not_pruned_before_its_children(store: Store, clock: FrozenClock) -> None:
    """Its row stays while a child's does, however long ago its time was over, and goes next."""
    parent = await enqueue_one(store, retention=10.0)
    late = await make_completed(store, "late", retention=10.0)
    child = await child_of(store, parent, late, retention=60.0)
    await run_next_job(store, parent)
    clock.advance(30)
    assert await store.prune() == {}
    await run_next_job_of(store, CHILDREN)
    assert [await get_state(store, one) for one in (parent, late)] == [State.COMPLETED] * 2
    clock.advance(60)
    assert await store.prune() == {State.COMPLETED: 1}
    assert await get_state(store, child) is None
    await store.rescue()
    assert await store.prune() == {State.COMPLETED: 2}
    await assert_consistent(store)


async def test_a_cancelled_child_that_is_requeued_waits_for_what_has_not_ended(store: Store) -> None:
    """Failed parents count as over: somebody has decided that it is to run."""
    parent, other = await enqueue_many(store, 2)
    child = await child_of(store, parent, other)
    await run_next_job(store, parent, Failed(BOOM))
    assert await get_state(store, child) is State.CANCELLED
    assert await store.requeue([child]) == [ActionResult.DONE]
    record = await get_job(store, child)
    assert (record.state, record.blocked) == (State.PENDING, 1)
    assert record.after == (Relative(parent, State.FAILED), Relative(other, State.PENDING, waits=True))
    assert await claim_jobs(store, CHILDREN) == []
    await assert_consistent(store)
    await run_next_job(store, other)
    assert ids(await claim_jobs(store, CHILDREN)) == [child]
    await assert_consistent(store)


async def test_a_failed_parent_that_is_requeued_leaves_its_cancelled_children(store: Store) -> None:
    """They come back when they are requeued themselves, and then wait for it."""
    parent = await make_failed(store)
    child = await child_of(store, parent)
    assert await store.requeue([parent]) == [ActionResult.DONE]
    assert await get_state(store, child) is State.CANCELLED
    assert await store.requeue([child]) == [ActionResult.DONE]
    assert (await get_job(store, child)).blocked == 1
    await run_next_job(store, parent)
    assert ids(await claim_jobs(store, CHILDREN)) == [child]
    await assert_consistent(store)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("verb", ["requeue", "kick_jobs"])
async def test_jobs_that_come_back_together_wait_for_each_other(
    store: Store, verb: str, backwards: bool
) -> None:
    """In whatever order they are named: lists have the newest first, and tasks have any names."""
    parent = await enqueue_one(store, task="z", max_attempts=1)
    child = await child_of(store, parent, after_any=True, task="a")
    for topic in (TOPIC, CHILDREN):
        await settle_one(store, (await claim_one(store, topic)).lease, Failed(BOOM))
    named = [child, parent] if backwards else [parent, child]
    assert await getattr(store, verb)(named) == [ActionResult.DONE] * 2
    record = await get_job(store, child)
    assert (record.blocked, record.after) == (1, (Relative(parent, State.PENDING, waits=True),))
    assert await claim_jobs(store, CHILDREN) == []
    await assert_consistent(store)
    await run_next_job(store, parent)
    assert ids(await claim_jobs(store, CHILDREN)) == [child]
    await assert_consistent(store)


async def test_a_job_that_waits_again_for_another_keeps_its_place_in_strict_order(store: Store) -> None:
    """As one that is retried does: those behind it in its line wait for it."""
    await store.set_limits(CHILDREN, TopicLimits(ordered=True))
    parent = await make_failed(store)
    child = await child_of(store, parent, after_any=True, limit_key="k")
    await settle_one(store, (await claim_one(store, CHILDREN)).lease, Failed(BOOM))
    later = await enqueue_one(store, CHILDREN, limit_key="k")
    await store.requeue([parent, child])
    assert await claim_jobs(store, CHILDREN) == []
    await run_next_job(store, parent)
    assert ids(await claim_jobs(store, CHILDREN)) == [child]
    assert (await get_job(store, later)).reserves == 0


async def test_a_failed_job_that_would_have_to_wait_is_not_granted(store: Store) -> None:
    """Nor kicked into running: it waits again."""
    parent = await make_failed(store)
    child = await child_of(store, parent, after_any=True)
    await settle_one(store, (await claim_one(store, CHILDREN)).lease, Failed(BOOM))
    await store.requeue([parent])
    assert await store.claim_job(child, worker="w", lease_seconds=60.0) is None
    assert await get_state(store, child) is State.FAILED
    assert await store.kick(CHILDREN, 10) == 1
    assert (await get_job(store, child)).blocked == 1
    assert await store.claim_job(child, worker="w", lease_seconds=60.0) is None
    assert await store.kick_jobs([child]) == [ActionResult.WRONG_STATE]
    assert await store.kick(CHILDREN, 10) == 0
    await assert_consistent(store)


async def test_a_blocked_job_can_be_cancelled_and_deleted(store: Store) -> None:
    """And its parent's end then changes nothing."""
    parent = await enqueue_one(store)
    first, second = await child_of(store, parent), await child_of(store, parent)
    assert await store.cancel([first]) == [ActionResult.DONE]
    assert await store.delete([second]) == [ActionResult.DONE]
    await run_next_job(store, parent)
    record = await get_job(store, first)
    assert (record.state, record.error_summary) == (State.CANCELLED, "job_canceled: cancelled on request")
    await assert_consistent(store)


async def test_parents_and_children_can_be_cancelled_in_one_call(store: Store) -> None:
    """What follows from an end comes after the call: each is answered for itself."""
    parent = await enqueue_one(store)
    child = await child_of(store, parent)
    grandchild = await child_of(store, child)
    assert await store.cancel([parent, child]) == [ActionResult.DONE, ActionResult.DONE]
    assert (await get_job(store, child)).error_summary == "job_canceled: cancelled on request"
    assert await get_state(store, grandchild) is State.CANCELLED
    await assert_consistent(store)


async def test_a_duplicate_ignores_what_it_was_to_run_after(store: Store) -> None:
    """Also a parent that is not there; and a holder that is replaced keeps its own parents."""
    parent = await enqueue_one(store)
    child = await child_of(store, parent, key="k")
    [answer] = await store.enqueue([job(CHILDREN, key="k", after=(new_id(),))])
    assert (answer.job_id, answer.duplicate) == (child, True)
    assert [one.job_id for one in (await get_job(store, child)).after] == [parent]


async def test_a_replaced_holder_stays_blocked(store: Store) -> None:
    """Debounce does not let it run before its parents have ended."""
    parent, other = await enqueue_many(store, 2)
    child = await child_of(store, parent, key="k")
    replacing = job(CHILDREN, key="k", payload=b"[2]", on_duplicate=OnDuplicate.REPLACE, after=(other,))
    [answer] = await store.enqueue([replacing])
    assert (answer.job_id, answer.replaced) == (child, True)
    record = await get_job(store, child)
    assert (record.payload, record.blocked) == (b"[2]", 1)
    assert [one.job_id for one in record.after] == [parent]
    assert await claim_jobs(store, CHILDREN) == []
    await run_next_job(store, parent)
    assert ids(await claim_jobs(store, CHILDREN)) == [child]
    await assert_consistent(store)


async def test_jobs_that_wait_are_listed_and_counted_as_blocked(store: Store) -> None:
    """Neither as ready nor as delayed."""
    parent = await enqueue_one(store)
    child = await child_of(store, parent)
    page = await store.list_jobs(JobFilter(state=DerivedState.BLOCKED), limit=10)
    assert [record.id for record in page.items] == [child]
    assert await store.count(JobFilter(state=DerivedState.DELAYED)) == Count(0)
    [depth] = await store.topic_depths([CHILDREN])
    assert (depth.ready, depth.delayed) == (0, 0)
    stats = await store.stats(window_seconds=60.0)
    assert (stats.pending, stats.delayed) == (2, 0)
    [lane] = [one for one in await store.lanes(window_seconds=60.0) if one.topic == CHILDREN]
    assert (lane.pending, lane.due) == (1, 0)


async def test_a_running_parent_is_waited_for(store: Store) -> None:
    """Also one of many that were claimed together."""
    parents = await enqueue_many(store, 30)
    leases = [one.lease for one in await claim_jobs(store)]
    child = await child_of(store, parents[3], parents[17])
    assert (await get_job(store, child)).blocked == 2
    answers = await store.settle([Settlement(lease, Completed(), 0.001) for lease in leases])
    assert answers == [True] * 30
    assert ids(await claim_jobs(store, CHILDREN)) == [child]
    await assert_consistent(store)


async def test_dependents_are_told_up_to_a_limit_and_counted(store: Store) -> None:
    """The first by number."""
    parent = await enqueue_one(store)
    children = [one.job_id for one in await store.enqueue([job(CHILDREN, after=(parent,)) for _ in range(5)])]
    found = await store.dependents(parent, limit=3)
    assert [one.job_id for one in found.jobs] == children[:3]
    assert all(one.waits and one.state is State.PENDING for one in found.jobs)
    assert found.total == Count(5)
    assert (await store.dependents(new_id())).total == Count(0)


async def resolve_dependents(store: Store) -> None:
    """Until all are told: by rescues, unless whoever ended the parent is at it."""
    async with asyncio.timeout(30):
        while (await store.count(JobFilter(state=DerivedState.BLOCKED))).total:
            await store.rescue()


async def test_a_parent_with_more_children_than_one_transaction_takes(store: Store) -> None:
    """The rest is told soon after; rescue goes on with it, and nobody waits for ever."""
    parent = await enqueue_one(store)
    number = MAX_RELEASED_DEPENDENTS + 50
    await store.enqueue([job(CHILDREN, after=(parent,)) for _ in range(number)])
    await run_next_job(store, parent)
    await resolve_dependents(store)
    assert (await store.stats(window_seconds=60.0)).pending == number
    await assert_consistent(store)


async def test_a_long_chain_is_cancelled_to_its_end(store: Store) -> None:
    """However deep: no recursion, and no transaction takes more than so many."""
    chain = [job(CHILDREN)]
    for _ in range(MAX_RELEASED_DEPENDENTS + 50):
        chain.append(job(CHILDREN, after=(chain[-1].id,)))
    await store.enqueue(chain)
    assert await store.cancel([chain[0].id]) == [ActionResult.DONE]
    await resolve_dependents(store)
    assert (await store.stats(window_seconds=60.0)).cancelled == len(chain)
    await assert_consistent(store)


async def test_whoever_waits_for_a_child_is_woken_when_it_becomes_ready(store: Store) -> None:
    """A worker that sleeps has to learn of it."""
    parent = await enqueue_one(store)
    await child_of(store, parent)
    claimed = await claim_one(store)
    async with store.wakeups(topics=[CHILDREN]) as wakeups:
        while await wakeups.wait(0.05):
            pass
        await settle_one(store, claimed.lease, Completed())
        assert await wakeups.wait(60.0)
