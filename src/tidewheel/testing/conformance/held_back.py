"""Which limit it is that lets no due job of a topic start (Q29)."""

from __future__ import annotations

from dataclasses import replace

from tidewheel.limits import HeldBack, HeldBackBy, Rate, TopicLimits
from tidewheel.outcome import Completed, Retried
from tidewheel.stores.protocol import MAX_HELD_BACK, Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import BOOM, TOPIC, claim, claim_one, end, job, put, put_many


async def test_topics_that_have_room_are_not_held_back(store: Store, clock: FrozenClock) -> None:
    """Nor are those without due jobs, those without limits, and paused ones, which have another reason."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=2))
    assert await store.held_back() == []
    await put_many(store, 3)
    await put(store, "plain")
    assert await store.held_back() == []
    await claim(store)
    [told] = await store.held_back()
    assert told.topic == TOPIC
    await store.pause(TOPIC, clock.now() + 1_000_000)
    assert await store.held_back() == []
    clock.advance(1)
    assert await store.held_back() == [told]
    await store.set_limits(TOPIC, TopicLimits(fair=True))
    assert await store.held_back() == []


async def test_a_limit_on_what_runs_is_told(store: Store, clock: FrozenClock) -> None:
    """With how many run, and since when the first of the others is due."""
    limits = TopicLimits(concurrency=2, key_concurrency=1)
    await store.set_limits(TOPIC, limits)
    await put(store, limit_key="a", tenant="acme")
    clock.advance(5)
    waiting = await put_many(store, 3, limit_key="a", tenant="acme")
    due = clock.now()
    first = await claim_one(store)
    clock.advance(5)
    of_key = HeldBack(TOPIC, limits, HeldBackBy.KEY_CONCURRENCY, 1, due, None, "acme", "a")
    assert await store.held_back() == [of_key]
    await put(store)
    assert await store.held_back() == []
    await claim(store)
    assert await store.held_back() == [HeldBack(TOPIC, limits, HeldBackBy.CONCURRENCY, 2, due)]
    await end(store, first.lease, Completed())
    assert (await claim_one(store)).lease.job_id == waiting[0]


async def test_a_rate_is_told_with_the_moment_of_the_next_start(store: Store, clock: FrozenClock) -> None:
    """That of the topic, and that of the key of the first job."""
    limits = TopicLimits(rate=Rate(1, 10, 2), key_rate=Rate(1, 60, 1))
    await store.set_limits(TOPIC, limits)
    due = clock.now()
    await put_many(store, 3, limit_key="k")
    await claim_one(store)
    at = due + 60_000_000
    of_key = HeldBack(TOPIC, limits, HeldBackBy.KEY_RATE, 1, due, at, "root", "k")
    assert await store.held_back() == [of_key]
    await put(store)
    await claim_one(store)
    of_topic = HeldBack(TOPIC, limits, HeldBackBy.RATE, 2, due, due + 10_000_000)
    assert await store.held_back() == [of_topic]
    clock.advance(10)
    assert await store.held_back() == [replace(of_key, running=2)]


async def test_strict_order_is_told(store: Store) -> None:
    """Of a line whose first job runs, and of one whose first job waits to be run again."""
    limits = TopicLimits(ordered=True)
    await store.set_limits(TOPIC, limits)
    await put_many(store, 2, limit_key="k")
    first = await claim_one(store)
    [told] = await store.held_back()
    assert (told.by, told.running, told.limit_key) == (HeldBackBy.ORDERED, 1, "k")
    await end(store, first.lease, Retried(60.0, BOOM))
    [told] = await store.held_back()
    assert (told.by, told.running, told.limit_key) == (HeldBackBy.ORDERED, 0, "k")


async def test_so_many_topics_are_looked_at(store: Store) -> None:
    """By name, those with due jobs."""
    topics = [f"t{number:03}" for number in range(MAX_HELD_BACK + 1)]
    for topic in topics:
        await store.set_limits(topic, TopicLimits(concurrency=1))
    await store.enqueue([job(topic) for topic in topics for _ in range(2)])
    assert len(await claim(store, *topics, limit=len(topics))) == len(topics)
    assert [one.topic for one in await store.held_back()] == topics[:-1]
