"""Jobs go in whole, in order, and come out as they were put in."""

from __future__ import annotations

import pytest

from tidewheel.clock import MICROSECONDS
from tidewheel.errors import LimitExceeded, StoreError
from tidewheel.model import BodyFormat, Claimed, JobFilter, State, Verdict
from tidewheel.outcome import Completed
from tidewheel.stores.protocol import MAX_ENQUEUE_BATCH, Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import ask, claim, end, ids, job, look, put


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
    record = await look(store, new.id)
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
            record = await look(store, one.id)
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
    job_id = await put(store, payload=body, format=BodyFormat.BYTES)
    record = await look(store, job_id)
    assert (record.payload, record.format) == (body, BodyFormat.BYTES)
    [claimed] = await claim(store)
    assert (claimed.payload, claimed.format) == (body, BodyFormat.BYTES)


async def test_unlimited_attempts_and_no_timeout_stay_unset(store: Store) -> None:
    """None is stored as none, not as a number."""
    await put(store, max_attempts=None, timeout=None)
    [claimed] = await claim(store)
    assert (claimed.max_attempts, claimed.timeout, claimed.last_attempt) == (None, None, False)


async def test_topics_of_the_beanstalkd_door_are_accepted(store: Store) -> None:
    """A store takes every topic name beanstalkd allows."""
    topic = "a+b/c;d.e$f(g)_h-I9"
    job_id = await put(store, topic)
    assert ids(await claim(store, topic)) == [job_id]


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
    assert ids(await claim(store)) == [answer.job_id]


async def test_a_due_time_in_the_past_means_now(store: Store, clock: FrozenClock) -> None:
    """A job cannot have been waiting before it existed."""
    [answer] = await store.enqueue([job(run_at=1)])
    assert answer.run_at == clock.now()
    assert (await look(store, answer.job_id)).run_at == clock.now()
    assert ids(await claim(store)) == [answer.job_id]


async def test_a_delayed_job_is_claimable_at_its_very_microsecond(store: Store, clock: FrozenClock) -> None:
    """Due means run_at <= now: not one microsecond earlier, not one later."""
    by_delay = await put(store, delay=10)
    by_time = await put(store, run_at=clock.now() + 10 * MICROSECONDS)
    clock.advance(9.999999)
    assert await claim(store) == []
    clock.advance(0.000001)
    assert ids(await claim(store)) == [by_delay, by_time]


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
    leases = {one.lease.job_id: one.lease for one in await claim(store)}
    assert await is_refused()
    assert await end(store, leases[other.id], Completed())
    assert await is_refused()  # the one it was claimed with has ended
    assert await end(store, leases[first.id], Completed())
    assert await is_refused()
    assert await store.delete([first.id]) == [Verdict.DONE]
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
    while (answer := await ask(store, limit=1000)).jobs:
        claimed += answer.jobs
    assert ids(claimed) == [one.id for one in new]
