"""A key lets one job in, for as long as it was told to (Q5)."""

from __future__ import annotations

import pytest

from tidewheel.model import JobFilter, KeyLifetime, State, Verdict
from tidewheel.outcome import Completed, Failed, Released, Retried
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import (
    BOOM,
    End,
    cancelled,
    claim_one,
    completed,
    end,
    failed,
    job,
    look,
    put,
    state,
)

FINISHED = KeyLifetime.FINISHED


async def test_a_duplicate_answers_with_the_holder_and_changes_nothing(
    store: Store, clock: FrozenClock
) -> None:
    """The second job is not written, and nothing of it is merged into the first."""
    [first] = await store.enqueue([job(key="k", payload=b'"first"', priority=1)])
    before = await look(store, first.job_id)
    clock.advance(1)
    late = job(key="k", payload=b'"second"', priority=9, delay=5)
    [second] = await store.enqueue([late])
    assert (second.job_id, second.number) == (first.job_id, first.number)
    assert (second.created_at, second.run_at) == (first.created_at, first.run_at)
    assert (second.duplicate, second.replaced) == (True, False)
    assert await look(store, first.job_id) == before
    assert await store.get(late.id) is None
    assert (await store.count(JobFilter())).total == 1


async def test_two_jobs_of_one_call_can_be_duplicates(store: Store) -> None:
    """The rule holds inside a batch as well."""
    answers = await store.enqueue([job(key="k"), job(), job(key="k"), job(key="other")])
    assert [answer.duplicate for answer in answers] == [False, False, True, False]
    assert answers[2].job_id == answers[0].job_id
    assert (await store.count(JobFilter())).total == 3


@pytest.mark.parametrize(
    "other",
    [{"tenant": "other"}, {"task": "other"}, {"task": ""}, {"key": "other"}, {"key": None}],
    ids=["tenant", "task", "bare name", "key", "no key"],
)
async def test_a_key_is_unique_per_tenant_and_task(store: Store, other: dict[str, str]) -> None:
    """The same key of another tenant or task is another key."""
    mine = {"tenant": "acme", "task": "send", "key": "k"}
    await put(store, **mine)
    [answer] = await store.enqueue([job(**(mine | other))])
    assert not answer.duplicate


async def test_the_topic_does_not_matter_to_the_key_of_a_task(store: Store) -> None:
    """A task's key is the task's, whichever topic its jobs wait in."""
    first = await put(store, "one", task="send", key="k")
    [answer] = await store.enqueue([job("two", task="send", key="k")])
    assert (answer.duplicate, answer.job_id) == (True, first)


async def test_for_a_job_without_a_task_the_topic_stands_in(store: Store) -> None:
    """Bare names share a key within their topic only."""
    first = await put(store, "one", key="k")
    answers = await store.enqueue(
        [job("one", key="k"), job("two", key="k"), job("three", task="one", key="k")]
    )
    assert [answer.duplicate for answer in answers] == [True, False, True]
    assert answers[2].job_id == first


@pytest.mark.parametrize("ended", [completed, failed, cancelled])
async def test_a_key_until_pruned_outlives_the_end_of_its_job(store: Store, ended: End) -> None:
    """As long as the row exists, whatever its state, the key is taken."""
    holder = await ended(store, key="k")
    [answer] = await store.enqueue([job(key="k")])
    assert (answer.duplicate, answer.job_id) == (True, holder)


@pytest.mark.parametrize("ended", [completed, failed, cancelled])
async def test_a_key_until_finished_is_free_after_any_end(store: Store, ended: End) -> None:
    """Only a pending or running job keeps others out."""
    first = await ended(store, key="k", key_until=FINISHED)
    [answer] = await store.enqueue([job(key="k", key_until=FINISHED)])
    assert not answer.duplicate
    assert (await look(store, first)).key == "k", "the finished job still shows the key it had"


async def test_a_key_until_finished_is_kept_while_the_job_lives(store: Store) -> None:
    """Pending, running, released, retried: the key is taken all the way."""
    await put(store, key="k", key_until=FINISHED)

    async def taken() -> bool:
        [answer] = await store.enqueue([job(key="k", key_until=FINISHED)])
        return answer.duplicate

    assert await taken()
    claimed = await claim_one(store)
    assert await taken()
    await end(store, claimed.lease, Released())
    assert await taken()
    await end(store, (await claim_one(store)).lease, Retried(0, BOOM))
    assert await taken()
    await end(store, (await claim_one(store)).lease, Completed())
    assert not await taken()


async def test_the_holders_lifetime_decides_not_the_newcomers(store: Store) -> None:
    """Whoever holds the key said how long it is held."""
    await completed(store, key="pruned", key_until=KeyLifetime.PRUNED)
    await completed(store, key="finished", key_until=FINISHED)
    answers = await store.enqueue([job(key="pruned", key_until=FINISHED), job(key="finished")])
    assert [answer.duplicate for answer in answers] == [True, False]


async def test_deleting_a_job_frees_its_key(store: Store) -> None:
    """The key goes with the row."""
    holder = await put(store, key="k")
    assert await store.delete([holder]) == [Verdict.DONE]
    assert not (await store.enqueue([job(key="k")]))[0].duplicate


async def test_pruning_a_job_frees_its_key(store: Store, clock: FrozenClock) -> None:
    """``until="pruned"`` means until then."""
    await completed(store, key="k", retention=10.0)
    clock.advance(10)
    assert await store.prune() == {State.COMPLETED: 1}
    assert not (await store.enqueue([job(key="k")]))[0].duplicate


async def test_deleting_a_job_that_lost_its_key_leaves_the_new_holder_alone(store: Store) -> None:
    """A key is freed by its holder only."""
    old = await completed(store, key="k", key_until=FINISHED)
    new = await put(store, key="k", key_until=FINISHED)
    assert await store.delete([old]) == [Verdict.DONE]
    [answer] = await store.enqueue([job(key="k")])
    assert (answer.duplicate, answer.job_id) == (True, new)


async def test_requeue_is_refused_while_another_job_holds_the_key(store: Store) -> None:
    """Two live jobs never share a key; the refused one stays as it was."""
    old = await failed(store, key="k", key_until=FINISHED)
    before = await look(store, old)
    new = await put(store, key="k", key_until=FINISHED)
    assert await store.requeue([old]) == [Verdict.KEY_TAKEN]
    assert await look(store, old) == before
    await end(store, (await claim_one(store)).lease, Failed(BOOM))
    assert await store.requeue([old]) == [Verdict.DONE]
    assert await store.requeue([new]) == [Verdict.KEY_TAKEN]


async def test_requeue_is_refused_while_a_finished_job_holds_the_key(store: Store) -> None:
    """A key until pruned is held by a finished job, too."""
    old = await failed(store, key="k", key_until=FINISHED)
    await completed(store, key="k", key_until=KeyLifetime.PRUNED)
    assert await store.requeue([old]) == [Verdict.KEY_TAKEN]


async def test_a_requeued_job_holds_its_key_again(store: Store) -> None:
    """What was freed at its end is taken back."""
    old = await failed(store, key="k", key_until=FINISHED)
    assert await store.requeue([old]) == [Verdict.DONE]
    [answer] = await store.enqueue([job(key="k")])
    assert (answer.duplicate, answer.job_id) == (True, old)


async def test_a_job_does_not_block_its_own_requeue(store: Store) -> None:
    """A failed job that still holds its key may come back."""
    old = await failed(store, key="k", key_until=KeyLifetime.PRUNED)
    assert await store.requeue([old]) == [Verdict.DONE]
    assert await state(store, old) is State.PENDING
