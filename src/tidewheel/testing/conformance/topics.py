"""Topics: which there are, and pausing them (Q24, Q30)."""

from __future__ import annotations

from tidewheel.model import FOREVER, TopicStats
from tidewheel.outcome import Completed
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import claim, claim_one, completed, end, ids, put


async def test_topics_with_jobs_are_listed_by_name(store: Store) -> None:
    """In any state, sorted the way computers sort."""
    await put(store, "b")
    await completed(store, "B")
    await put(store, "a")
    await put(store, "b", delay=60)
    assert await store.topics() == [
        TopicStats("B", completed=1),
        TopicStats("a", pending=1),
        TopicStats("b", pending=2),
    ]


async def test_a_topic_disappears_with_its_last_job(store: Store) -> None:
    """Nothing has to be dropped by hand."""
    job_id = await put(store, "once")
    await store.delete([job_id])
    assert await store.topics() == []


async def test_a_paused_topic_grants_nothing(store: Store) -> None:
    """Other topics go on, and enqueueing into it does too."""
    await store.pause("paused", FOREVER)
    waiting = await put(store, "paused", priority=9)
    other = await put(store, "other")
    assert ids(await claim(store, "paused", "other")) == [other]
    await store.pause("paused", None)
    assert ids(await claim(store, "paused", "other")) == [waiting]


async def test_a_pause_ends_by_itself_at_its_time(store: Store, clock: FrozenClock) -> None:
    """Until then, not longer."""
    await store.pause("mail", clock.now() + 10_000_000)
    job_id = await put(store, "mail")
    clock.advance(9.999999)
    assert await claim(store, "mail") == []
    clock.advance(0.000001)
    assert ids(await claim(store, "mail")) == [job_id]
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
    job_id = await put(store)
    await store.pause("mail", clock.now())
    assert (await store.topics())[0].paused_until is None
    assert ids(await claim(store)) == [job_id]


async def test_resuming_what_is_not_paused_does_nothing(store: Store) -> None:
    """Idempotent."""
    await store.pause("mail", None)
    assert await store.topics() == []


async def test_a_pause_does_not_touch_running_jobs(store: Store) -> None:
    """It stops granting, not working."""
    await put(store)
    claimed = await claim_one(store)
    await store.pause("mail", FOREVER)
    assert await store.extend([claimed.lease], 60) == [True]
    assert await end(store, claimed.lease, Completed())
