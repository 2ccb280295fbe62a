"""``on_duplicate="replace"``: debounce (Q5)."""

from __future__ import annotations

from typing import Any

from tidewheel.model import BodyFormat, Enqueued, KeyLifetime, NewJob, OnDuplicate, State, Verdict
from tidewheel.outcome import Completed, Released, Retried
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import BOOM, claim, claim_one, end, ids, job, look, put


def _replacement(**options: Any) -> NewJob:
    return job(**({"key": "k", "on_duplicate": OnDuplicate.REPLACE} | options))


async def _replace(store: Store, **options: Any) -> Enqueued:
    [answer] = await store.enqueue([_replacement(**options)])
    return answer


async def test_replace_updates_a_job_that_has_not_started(store: Store, clock: FrozenClock) -> None:
    """Payload, format, priority and due time are the new job's; everything else stays."""
    [first] = await store.enqueue([job(key="k", payload=b"1", correlation_id="old", max_attempts=3)])
    before = await look(store, first.job_id)
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
    after = await look(store, first.job_id)
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
    job_id = await put(store, key="k")
    await _replace(store, delay=10)
    assert await claim(store) == []
    clock.advance(5)
    await _replace(store, delay=10)
    clock.advance(5)
    assert await claim(store) == []
    await _replace(store)
    assert ids(await claim(store)) == [job_id]


async def test_a_replaced_priority_decides_the_order(store: Store) -> None:
    """The job moves to where its new priority puts it."""
    replaced = await put(store, key="k", priority=0)
    other = await put(store, priority=1)
    await _replace(store, priority=2)
    assert ids(await claim(store)) == [replaced, other]


async def test_replace_brings_its_own_expiry(store: Store, clock: FrozenClock) -> None:
    """The old expiry is forgotten, the new one holds."""
    forgotten = await put(store, key="k", expires_in=5.0)
    await _replace(store, expires_in=None)
    new = await put(store, key="m")
    await _replace(store, key="m", expires_in=5.0)
    sooner = await put(store, key="n", expires_in=60.0)
    await _replace(store, key="n", expires_in=5.0)
    clock.advance(5)
    assert (await store.rescue()).expired == 2
    assert await store.states([forgotten, new, sooner]) == [State.PENDING, State.CANCELLED, State.CANCELLED]


async def test_replace_does_not_touch_a_running_job(store: Store) -> None:
    """Its worker already has the old payload."""
    job_id = await put(store, key="k", payload=b"1")
    claimed = await claim_one(store)
    before = await look(store, job_id)
    answer = await _replace(store, payload=b"2", priority=3)
    assert (answer.duplicate, answer.replaced, answer.run_at) == (True, False, before.run_at)
    assert await look(store, job_id) == before
    assert await end(store, claimed.lease, Completed())
    assert not (await _replace(store)).replaced, "nor a finished one"


async def test_replace_does_not_touch_a_job_that_was_tried(store: Store) -> None:
    """A counted attempt has started it."""
    job_id = await put(store, key="k")
    await end(store, (await claim_one(store)).lease, Retried(0, BOOM))
    before = await look(store, job_id)
    assert not (await _replace(store, payload=b"2")).replaced
    assert await look(store, job_id) == before


async def test_replace_takes_effect_on_a_job_given_back(store: Store) -> None:
    """Released is as good as never claimed."""
    await put(store, key="k")
    await end(store, (await claim_one(store)).lease, Released())
    assert (await _replace(store, payload=b"2")).replaced
    [claimed] = await claim(store)
    assert (claimed.payload, claimed.attempt) == (b"2", 1)


async def test_replace_works_within_one_call(store: Store) -> None:
    """The last job of a call wins."""
    answers = await store.enqueue([_replacement(payload=b"1"), _replacement(payload=b"2"), job()])
    assert [(answer.duplicate, answer.replaced) for answer in answers] == [
        (False, False),
        (True, True),
        (False, False),
    ]
    assert (await look(store, answers[0].job_id)).payload == b"2"


async def test_a_requeued_job_can_be_replaced(store: Store) -> None:
    """Requeue puts the attempts back to 0, so it has not started."""
    job_id = await put(store, key="k")
    await store.cancel([job_id])
    assert await store.requeue([job_id]) == [Verdict.DONE]
    assert (await _replace(store, payload=b"2")).replaced
