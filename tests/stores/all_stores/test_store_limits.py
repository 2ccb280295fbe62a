"""Limits only a store can check, because they are about what is already there (Q7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tidewheel.core.model import ActionResult, Completed, JobFilter, NewDocument
from tidewheel.errors import LimitExceeded
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.enqueue import count_new_jobs_by_topic
from tidewheel.stores.protocol import Store
from tidewheel.testing.conformance.helpers import (
    claim_one,
    enqueue_many,
    enqueue_one,
    job,
    make_completed,
    settle_one,
)

MakeStore = Callable[[StoreLimits], Awaitable[Store]]


async def _total(store: Store) -> int:
    return (await store.count(JobFilter())).total


async def test_a_full_topic_refuses_more(make_store: MakeStore) -> None:
    """Up to the limit, not one beyond it; other topics are not concerned."""
    store = await make_store(StoreLimits(max_jobs_per_topic=3))
    await enqueue_many(store, 3)
    with pytest.raises(LimitExceeded, match=r"mail.*3.*max_jobs_per_topic"):
        await enqueue_one(store)
    await enqueue_one(store, "other")
    assert await _total(store) == 4


async def test_a_batch_that_would_pass_the_limit_leaves_nothing(make_store: MakeStore) -> None:
    """All or none, jobs of other topics included."""
    store = await make_store(StoreLimits(max_jobs_per_topic=3))
    await enqueue_many(store, 2)
    with pytest.raises(LimitExceeded):
        await store.enqueue([job("other"), job(), job()])
    assert await _total(store) == 2
    assert await store.check() == []


async def test_jobs_that_would_pass_the_limit_keep_their_document_out(make_store: MakeStore) -> None:
    """Whoever is told of the limit has written nothing; whoever came too late is told that instead."""
    store = await make_store(StoreLimits(max_jobs_per_topic=1))
    await enqueue_one(store)
    with pytest.raises(LimitExceeded):
        await store.enqueue_with_document(NewDocument("turn", "t", b"", expected_version=0), [job()])
    assert await store.document("turn", "t") is None
    assert (
        await store.enqueue_with_document(NewDocument("turn", "t", b"", expected_version=1), [job()]) is None
    )
    assert await store.enqueue_with_document(
        NewDocument("turn", "t", b"", expected_version=0), [job("other")]
    )


async def test_pending_and_running_jobs_count_finished_ones_do_not(make_store: MakeStore) -> None:
    """The limit is about outstanding work."""
    store = await make_store(StoreLimits(max_jobs_per_topic=2))
    await make_completed(store)
    await enqueue_one(store, delay=60)
    await enqueue_one(store)
    claimed = await claim_one(store)
    with pytest.raises(LimitExceeded):
        await enqueue_one(store)
    await settle_one(store, claimed.lease, Completed())
    await enqueue_one(store)


async def test_a_duplicate_is_answered_even_when_the_topic_is_full(make_store: MakeStore) -> None:
    """It adds nothing, so it passes no limit."""
    store = await make_store(StoreLimits(max_topics=1, max_jobs_per_topic=1))
    holder = await enqueue_one(store, task="send", key="k")
    answers = await store.enqueue([job(task="send", key="k"), job("other", task="send", key="k")])
    assert [(answer.duplicate, answer.job_id) for answer in answers] == [(True, holder)] * 2


async def test_a_requeue_is_not_refused_by_a_full_topic(make_store: MakeStore) -> None:
    """The job was accepted once; an operator brings it back."""
    store = await make_store(StoreLimits(max_jobs_per_topic=1))
    old = await enqueue_one(store)
    await store.cancel([old])
    await enqueue_one(store)
    assert await store.requeue([old]) == [ActionResult.DONE]


async def test_a_new_topic_beyond_the_limit_is_refused(make_store: MakeStore) -> None:
    """Known topics go on; a topic is known as long as it has jobs."""
    store = await make_store(StoreLimits(max_topics=2))
    await enqueue_one(store, "a")
    last = await enqueue_one(store, "b")
    with pytest.raises(LimitExceeded, match=r"2.*max_topics"):
        await store.enqueue([job("a"), job("c")])
    await enqueue_one(store, "a")
    assert await _total(store) == 3
    await store.delete([last])
    await enqueue_one(store, "c")


async def test_several_new_topics_at_once_are_counted_together(make_store: MakeStore) -> None:
    """Two that would fit one by one may be too many together."""
    store = await make_store(StoreLimits(max_topics=2))
    await enqueue_one(store, "a")
    with pytest.raises(LimitExceeded):
        await store.enqueue([job("b"), job("c")])
    assert await _total(store) == 1


async def test_without_limits_nothing_is_refused(make_store: MakeStore) -> None:
    """Zero is unlimited, the default."""
    store = await make_store(StoreLimits())
    await store.enqueue([job(f"topic-{number}") for number in range(50)])
    assert len(await store.topics()) == 50


async def test_another_tenants_key_lets_no_job_past_a_limit(make_store: MakeStore) -> None:
    """What would be a duplicate for one tenant is a new job for another, and counts."""
    store = await make_store(StoreLimits(max_jobs_per_topic=1))
    await enqueue_one(store, task="send", key="k", tenant="acme")
    with pytest.raises(LimitExceeded):
        await enqueue_one(store, task="send", key="k", tenant="globex")


async def test_the_words_of_a_limit_tell_nothing_of_others(make_store: MakeStore) -> None:
    """Topics and limits are shared by all tenants; how far they are used up is nobody's business."""
    store = await make_store(StoreLimits(max_topics=9, max_jobs_per_topic=7))
    await store.enqueue([job(f"secret-{number}", tenant="other") for number in range(8)])
    await enqueue_many(store, 7, tenant="other")
    with pytest.raises(LimitExceeded) as full:
        await enqueue_many(store, 2, tenant="acme")
    assert str(full.value) == (
        "topic 'mail' has no room for 2 more; the limit is 7 pending and running jobs (max_jobs_per_topic); "
        "wait for workers or raise it"
    )
    with pytest.raises(LimitExceeded) as too_many:
        await enqueue_one(store, "new", tenant="acme")
    assert str(too_many.value) == (
        "there is no room for new topics ('new'); the limit is 9 (max_topics); "
        "use an existing topic or raise it"
    )


def test_the_same_key_of_two_tenants_is_two_jobs() -> None:
    """A duplicate adds nothing to a topic; a key of somebody else's makes none."""
    jobs = [job("mail", key="k", tenant=tenant) for tenant in ("a", "b", "a")]
    assert count_new_jobs_by_topic(jobs, set()) == {"mail": 2}
    assert count_new_jobs_by_topic(jobs, {("a", "mail", "k")}) == {"mail": 1}
