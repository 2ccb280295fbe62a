"""Enqueue: jobs are written whole and in order, and read back unchanged.

A key admits one job for as long as its lifetime says (Q5). ``on_duplicate="replace"`` debounces (Q5).
"""

from __future__ import annotations

from typing import Any

import pytest

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import (
    ActionResult,
    BodyFormat,
    Claimed,
    Completed,
    Enqueued,
    Failed,
    JobFilter,
    KeyLifetime,
    NewJob,
    OnDuplicate,
    Released,
    Retried,
    State,
)
from tidewheel.errors import LimitExceeded, StoreError
from tidewheel.stores.bounds import MAX_ENQUEUE_BATCH
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    MakeFinished,
    claim_from,
    claim_jobs,
    claim_one,
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


async def test_a_job_is_read_back_as_it_was_enqueued(store: Store, clock: FrozenClock) -> None:
    """Every field given at enqueue is there when the job is read."""
    new = job(
        "mail",
        task="send",
        payload=b'{"to":"\xc3\xa9va"}',
        tenant="acme",
        priority=-7,
        delay=2.5,
        max_attempts=5,
        timeout=1.5,
        key="k",
        correlation_id="c",
        user_id="u",
        service_id="s",
    )
    [answer] = await store.enqueue([new])
    record = await get_job(store, new.id)
    assert (record.id, record.number) == (new.id, answer.number)
    assert (record.topic, record.task, record.tenant, record.key) == ("mail", "send", "acme", "k")
    assert (record.state, record.attempt, record.max_attempts, record.fence) == (State.PENDING, 0, 5, 0)
    assert (record.priority, record.timeout) == (-7, 1.5)
    assert (record.correlation_id, record.user_id, record.service_id) == ("c", "u", "s")
    assert (record.payload, record.format) == (new.payload, BodyFormat.JSON)
    assert (record.created_at, record.run_at) == (clock.now(), clock.now() + 2_500_000)
    assert (record.result, record.checkpoint, record.progress, record.attempts) == (None, None, None, ())
    assert (record.claimed_at, record.started_at, record.finished_at, record.leased_until) == (None,) * 4
    assert (record.worker, record.error_summary, record.cancel_requested) == (None, None, False)


async def test_jobs_written_together_keep_what_is_their_own(store: Store, clock: FrozenClock) -> None:
    """However many there are, and whichever of their values they share: nobody gets a neighbour's."""
    new = [
        job(
            f"topic-{n % 3}" if mixed else "mail",
            task="send" if n % 2 else "",
            payload=b"%d" % n,
            format=BodyFormat.BYTES if mixed and n % 7 == 0 else BodyFormat.JSON,
            tenant=f"tenant-{n % 4}" if mixed else "acme",
            priority=n % 5,
            delay=n % 2 * 0.5,
            max_attempts=None if n % 3 == 0 else n,
            timeout=None if n % 5 == 0 else n / 2,
            key=f"key-{n}" if n % 4 == 0 else None,
            correlation_id=f"request-{n}" if mixed else None,
            user_id="ann" if mixed and n % 2 else None,
        )
        for mixed in (False, True)
        for n in range(1, 140)
    ]
    for size in (1, 2, 5, 139, 131):
        batch, new = new[:size], new[size:]
        answers = await store.enqueue(batch)
        for one, answer in zip(batch, answers, strict=True):
            record = await get_job(store, one.id)
            assert (answer.job_id, answer.number, answer.duplicate) == (record.id, record.number, False)
            assert record.created_at == answer.created_at == clock.now()
            assert record.run_at == answer.run_at == clock.now() + one.delay * MICROSECONDS
            for field in ("topic", "task", "tenant", "priority", "max_attempts", "timeout", "key"):
                assert getattr(record, field) == getattr(one, field)
            assert (record.correlation_id, record.user_id) == (one.correlation_id, one.user_id)
            assert (record.payload, record.format) == (one.payload, one.format)
    assert await store.check() == []


async def test_a_raw_body_keeps_every_byte(store: Store) -> None:
    """Bytes are stored as they are, NUL and invalid UTF-8 included."""
    body = bytes(range(256))
    job_id = await enqueue_one(store, payload=body, format=BodyFormat.BYTES)
    record = await get_job(store, job_id)
    assert (record.payload, record.format) == (body, BodyFormat.BYTES)
    [claimed] = await claim_jobs(store)
    assert (claimed.payload, claimed.format) == (body, BodyFormat.BYTES)


async def test_unlimited_attempts_and_no_timeout_stay_unset(store: Store) -> None:
    """None is stored as none, not as a number."""
    await enqueue_one(store, max_attempts=None, timeout=None)
    [claimed] = await claim_jobs(store)
    assert (claimed.max_attempts, claimed.timeout, claimed.last_attempt) == (None, None, False)


async def test_topics_of_the_beanstalkd_door_are_accepted(store: Store) -> None:
    """A store takes every topic name beanstalkd allows."""
    topic = "a+b/c;d.e$f(g)_h-I9"
    job_id = await enqueue_one(store, topic)
    assert ids(await claim_jobs(store, topic)) == [job_id]


async def test_answers_come_in_the_order_of_the_jobs(store: Store, clock: FrozenClock) -> None:
    """The n-th answer is about the n-th job, and numbers grow in that order."""
    new = [job(f"topic-{index % 3}", priority=index % 2) for index in range(30)]
    answers = await store.enqueue(new)
    assert [answer.job_id for answer in answers] == [one.id for one in new]
    numbers = [answer.number for answer in answers]
    assert numbers == sorted(set(numbers))
    assert {(answer.created_at, answer.duplicate, answer.replaced) for answer in answers} == {
        (clock.now(), False, False)
    }
    [later] = await store.enqueue([job()])
    assert later.number > numbers[-1]


async def test_enqueueing_nothing_does_nothing(store: Store) -> None:
    """An empty batch has an empty answer."""
    assert await store.enqueue([]) == []
    assert (await store.count(JobFilter())).total == 0


async def test_without_a_due_time_a_job_is_due_now(store: Store, clock: FrozenClock) -> None:
    """The store's clock decides what now is."""
    [answer] = await store.enqueue([job()])
    assert answer.run_at == clock.now()
    assert ids(await claim_jobs(store)) == [answer.job_id]


async def test_a_due_time_in_the_past_means_now(store: Store, clock: FrozenClock) -> None:
    """A job cannot have been waiting before it existed."""
    [answer] = await store.enqueue([job(run_at=1)])
    assert answer.run_at == clock.now()
    assert (await get_job(store, answer.job_id)).run_at == clock.now()
    assert ids(await claim_jobs(store)) == [answer.job_id]


async def test_a_delayed_job_is_claimable_at_its_very_microsecond(store: Store, clock: FrozenClock) -> None:
    """Due means run_at <= now: not one microsecond earlier, not one later."""
    by_delay = await enqueue_one(store, delay=10)
    by_time = await enqueue_one(store, run_at=clock.now() + 10 * MICROSECONDS)
    clock.advance(9.999999)
    assert await claim_jobs(store) == []
    clock.advance(0.000001)
    assert ids(await claim_jobs(store)) == [by_delay, by_time]


async def test_a_taken_id_spoils_the_whole_batch(store: Store) -> None:
    """All or none: a batch that cannot be written whole leaves nothing."""
    first = job()
    await store.enqueue([first])
    fresh = job()
    with pytest.raises(StoreError):
        await store.enqueue([fresh, first])
    assert await store.get(fresh.id) is None
    assert (await store.count(JobFilter())).total == 1
    assert await store.check() == []


async def test_an_id_is_taken_as_long_as_its_job_is_there(store: Store) -> None:
    """Waiting, running, finished; and free again once the job was removed."""
    first, other = job(), job()
    await store.enqueue([first, other])

    async def is_refused() -> bool:
        try:
            await store.enqueue([job(), first])
        except StoreError:
            return True
        return False

    assert await is_refused()
    leases = {one.lease.job_id: one.lease for one in await claim_jobs(store)}
    assert await is_refused()
    assert await settle_one(store, leases[other.id], Completed())
    assert await is_refused()  # the one it was claimed with has ended
    assert await settle_one(store, leases[first.id], Completed())
    assert await is_refused()
    assert await store.delete([first.id]) == [ActionResult.DONE]
    assert not await is_refused()


async def test_a_batch_over_the_limit_is_refused_whole(store: Store) -> None:
    """Every batch has a stated maximum, and passing it writes nothing."""
    with pytest.raises(LimitExceeded, match="10,001"):
        await store.enqueue([job() for _ in range(MAX_ENQUEUE_BATCH + 1)])
    assert (await store.count(JobFilter())).total == 0


async def test_a_large_batch_is_written_and_claimed_in_order(store: Store) -> None:
    """Thousands of jobs in one call behave like a few."""
    new = [job() for _ in range(2500)]
    await store.enqueue(new)
    claimed: list[Claimed] = []
    while (answer := await claim_from(store, limit=1000)).jobs:
        claimed += answer.jobs
    assert ids(claimed) == [one.id for one in new]


FINISHED = KeyLifetime.FINISHED


async def test_a_duplicate_answers_with_the_holder_and_changes_nothing(
    store: Store, clock: FrozenClock
) -> None:
    """The second job is not written, and nothing of it is merged into the first."""
    [first] = await store.enqueue([job(key="k", payload=b'"first"', priority=1)])
    before = await get_job(store, first.job_id)
    clock.advance(1)
    late = job(key="k", payload=b'"second"', priority=9, delay=5)
    [second] = await store.enqueue([late])
    assert (second.job_id, second.number) == (first.job_id, first.number)
    assert (second.created_at, second.run_at) == (first.created_at, first.run_at)
    assert (second.duplicate, second.replaced) == (True, False)
    assert await get_job(store, first.job_id) == before
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
    await enqueue_one(store, **mine)
    [answer] = await store.enqueue([job(**(mine | other))])
    assert not answer.duplicate


async def test_the_topic_does_not_matter_to_the_key_of_a_task(store: Store) -> None:
    """A task's key is the task's, whichever topic its jobs wait in."""
    first = await enqueue_one(store, "one", task="send", key="k")
    [answer] = await store.enqueue([job("two", task="send", key="k")])
    assert (answer.duplicate, answer.job_id) == (True, first)


async def test_for_a_job_without_a_task_the_topic_stands_in(store: Store) -> None:
    """Bare names share a key within their topic only."""
    first = await enqueue_one(store, "one", key="k")
    answers = await store.enqueue(
        [job("one", key="k"), job("two", key="k"), job("three", task="one", key="k")]
    )
    assert [answer.duplicate for answer in answers] == [True, False, True]
    assert answers[2].job_id == first


@pytest.mark.parametrize("ended", [make_completed, make_failed, make_cancelled])
async def test_a_key_until_pruned_outlives_the_end_of_its_job(store: Store, ended: MakeFinished) -> None:
    """As long as the row exists, whatever its state, the key is taken."""
    holder = await ended(store, key="k")
    [answer] = await store.enqueue([job(key="k")])
    assert (answer.duplicate, answer.job_id) == (True, holder)


@pytest.mark.parametrize("ended", [make_completed, make_failed, make_cancelled])
async def test_a_key_until_finished_is_free_after_any_end(store: Store, ended: MakeFinished) -> None:
    """Only a pending or running job keeps others out."""
    first = await ended(store, key="k", key_until=FINISHED)
    [answer] = await store.enqueue([job(key="k", key_until=FINISHED)])
    assert not answer.duplicate
    assert (await get_job(store, first)).key == "k", "the finished job still shows the key it had"


async def test_a_key_until_finished_is_kept_while_the_job_lives(store: Store) -> None:
    """Pending, running, released, retried: the key is taken all the way."""
    await enqueue_one(store, key="k", key_until=FINISHED)

    async def taken() -> bool:
        [answer] = await store.enqueue([job(key="k", key_until=FINISHED)])
        return answer.duplicate

    assert await taken()
    claimed = await claim_one(store)
    assert await taken()
    await settle_one(store, claimed.lease, Released())
    assert await taken()
    await settle_one(store, (await claim_one(store)).lease, Retried(0, BOOM))
    assert await taken()
    await settle_one(store, (await claim_one(store)).lease, Completed())
    assert not await taken()


async def test_the_holders_lifetime_decides_not_the_newcomers(store: Store) -> None:
    """Whoever holds the key said how long it is held."""
    await make_completed(store, key="pruned", key_until=KeyLifetime.PRUNED)
    await make_completed(store, key="finished", key_until=FINISHED)
    answers = await store.enqueue([job(key="pruned", key_until=FINISHED), job(key="finished")])
    assert [answer.duplicate for answer in answers] == [True, False]


async def test_deleting_a_job_frees_its_key(store: Store) -> None:
    """The key goes with the row."""
    holder = await enqueue_one(store, key="k")
    assert await store.delete([holder]) == [ActionResult.DONE]
    assert not (await store.enqueue([job(key="k")]))[0].duplicate


async def test_pruning_a_job_frees_its_key(store: Store, clock: FrozenClock) -> None:
    """``until="pruned"`` means until then."""
    await make_completed(store, key="k", retention=10.0)
    clock.advance(10)
    assert await store.prune() == {State.COMPLETED: 1}
    assert not (await store.enqueue([job(key="k")]))[0].duplicate


async def test_deleting_a_job_that_lost_its_key_leaves_the_new_holder_alone(store: Store) -> None:
    """A key is freed by its holder only."""
    old = await make_completed(store, key="k", key_until=FINISHED)
    new = await enqueue_one(store, key="k", key_until=FINISHED)
    assert await store.delete([old]) == [ActionResult.DONE]
    [answer] = await store.enqueue([job(key="k")])
    assert (answer.duplicate, answer.job_id) == (True, new)


async def test_requeue_is_refused_while_another_job_holds_the_key(store: Store) -> None:
    """Two live jobs never share a key; the refused one stays as it was."""
    old = await make_failed(store, key="k", key_until=FINISHED)
    before = await get_job(store, old)
    new = await enqueue_one(store, key="k", key_until=FINISHED)
    assert await store.requeue([old]) == [ActionResult.KEY_TAKEN]
    assert await get_job(store, old) == before
    await settle_one(store, (await claim_one(store)).lease, Failed(BOOM))
    assert await store.requeue([old]) == [ActionResult.DONE]
    assert await store.requeue([new]) == [ActionResult.KEY_TAKEN]


async def test_requeue_is_refused_while_a_finished_job_holds_the_key(store: Store) -> None:
    """A key until pruned is held by a finished job, too."""
    old = await make_failed(store, key="k", key_until=FINISHED)
    await make_completed(store, key="k", key_until=KeyLifetime.PRUNED)
    assert await store.requeue([old]) == [ActionResult.KEY_TAKEN]


async def test_a_requeued_job_holds_its_key_again(store: Store) -> None:
    """What was freed at its end is taken back."""
    old = await make_failed(store, key="k", key_until=FINISHED)
    assert await store.requeue([old]) == [ActionResult.DONE]
    [answer] = await store.enqueue([job(key="k")])
    assert (answer.duplicate, answer.job_id) == (True, old)


async def test_a_job_does_not_block_its_own_requeue(store: Store) -> None:
    """A failed job that still holds its key may come back."""
    old = await make_failed(store, key="k", key_until=KeyLifetime.PRUNED)
    assert await store.requeue([old]) == [ActionResult.DONE]
    assert await get_state(store, old) is State.PENDING


def _replacement(**options: Any) -> NewJob:
    return job(**({"key": "k", "on_duplicate": OnDuplicate.REPLACE} | options))


async def _replace(store: Store, **options: Any) -> Enqueued:
    [answer] = await store.enqueue([_replacement(**options)])
    return answer


async def test_replace_updates_a_job_that_has_not_started(store: Store, clock: FrozenClock) -> None:
    """Payload, format, priority and due time are the new job's; everything else stays."""
    [first] = await store.enqueue([job(key="k", payload=b"1", correlation_id="old", max_attempts=3)])
    before = await get_job(store, first.job_id)
    clock.advance(1)
    answer = await _replace(
        store,
        payload=b"\x00new",
        format=BodyFormat.BYTES,
        priority=5,
        delay=30,
        correlation_id="new",
        max_attempts=9,
        key_until=KeyLifetime.FINISHED,
    )
    due = clock.now() + 30_000_000
    told = Enqueued(first.job_id, first.number, first.created_at, due, True, True, answer.holder)
    assert answer == told
    after = await get_job(store, first.job_id)
    assert (after.payload, after.format, after.priority, after.run_at) == (
        b"\x00new",
        BodyFormat.BYTES,
        5,
        due,
    )
    assert (after.correlation_id, after.max_attempts, after.created_at) == ("old", 3, before.created_at)


async def test_replace_without_a_holder_is_an_ordinary_enqueue(store: Store) -> None:
    """Nothing to replace, nothing said about it."""
    answer = await _replace(store)
    assert (answer.duplicate, answer.replaced) == (False, False)


async def test_a_replaced_due_time_counts_in_both_directions(store: Store, clock: FrozenClock) -> None:
    """A ready job can be put off, and a delayed one brought forward."""
    job_id = await enqueue_one(store, key="k")
    await _replace(store, delay=10)
    assert await claim_jobs(store) == []
    clock.advance(5)
    await _replace(store, delay=10)
    clock.advance(5)
    assert await claim_jobs(store) == []
    await _replace(store)
    assert ids(await claim_jobs(store)) == [job_id]


async def test_a_replaced_priority_decides_the_order(store: Store) -> None:
    """The job moves to where its new priority puts it."""
    replaced = await enqueue_one(store, key="k", priority=0)
    other = await enqueue_one(store, priority=1)
    await _replace(store, priority=2)
    assert ids(await claim_jobs(store)) == [replaced, other]


async def test_replace_brings_its_own_expiry(store: Store, clock: FrozenClock) -> None:
    """The old expiry is forgotten, the new one holds."""
    forgotten = await enqueue_one(store, key="k", expires_in=5.0)
    await _replace(store, expires_in=None)
    new = await enqueue_one(store, key="m")
    await _replace(store, key="m", expires_in=5.0)
    sooner = await enqueue_one(store, key="n", expires_in=60.0)
    await _replace(store, key="n", expires_in=5.0)
    clock.advance(5)
    assert (await store.rescue()).expired == 2
    assert await store.states([forgotten, new, sooner]) == [State.PENDING, State.CANCELLED, State.CANCELLED]


async def test_replace_does_not_touch_a_running_job(store: Store) -> None:
    """Its worker already has the old payload."""
    job_id = await enqueue_one(store, key="k", payload=b"1")
    claimed = await claim_one(store)
    before = await get_job(store, job_id)
    answer = await _replace(store, payload=b"2", priority=3)
    assert (answer.duplicate, answer.replaced, answer.run_at) == (True, False, before.run_at)
    assert await get_job(store, job_id) == before
    assert await settle_one(store, claimed.lease, Completed())
    assert not (await _replace(store)).replaced, "nor a finished one"


async def test_replace_does_not_touch_a_job_that_was_tried(store: Store) -> None:
    """A counted attempt has started it."""
    job_id = await enqueue_one(store, key="k")
    await settle_one(store, (await claim_one(store)).lease, Retried(0, BOOM))
    before = await get_job(store, job_id)
    assert not (await _replace(store, payload=b"2")).replaced
    assert await get_job(store, job_id) == before


async def test_replace_takes_effect_on_a_job_given_back(store: Store) -> None:
    """Released is as good as never claimed."""
    await enqueue_one(store, key="k")
    await settle_one(store, (await claim_one(store)).lease, Released())
    assert (await _replace(store, payload=b"2")).replaced
    [claimed] = await claim_jobs(store)
    assert (claimed.payload, claimed.attempt) == (b"2", 1)


async def test_replace_works_within_one_call(store: Store) -> None:
    """The last job of a call wins."""
    answers = await store.enqueue([_replacement(payload=b"1"), _replacement(payload=b"2"), job()])
    assert [(answer.duplicate, answer.replaced) for answer in answers] == [
        (False, False),
        (True, True),
        (False, False),
    ]
    assert (await get_job(store, answers[0].job_id)).payload == b"2"


async def test_a_requeued_job_can_be_replaced(store: Store) -> None:
    """Requeue puts the attempts back to 0, so it has not started."""
    job_id = await enqueue_one(store, key="k")
    await store.cancel([job_id])
    assert await store.requeue([job_id]) == [ActionResult.DONE]
    assert (await _replace(store, payload=b"2")).replaced
