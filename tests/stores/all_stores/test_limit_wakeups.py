"""Who learns of room in topics with limits: others only of what nobody here takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tidewheel.core.model import Completed
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.stores import wakeups as process_wakeups
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.protocol import Store
from tidewheel.stores.wakeups import LOCAL_CLAIM_SECONDS, LimitWakeups
from tidewheel.testing.conformance.helpers import TOPIC, claim_one, enqueue_many, settle_one
from tidewheel.testing.conformance.wakeups import other_process_wakeups

MakeStore = Callable[[StoreLimits], Awaitable[Store]]


def test_what_is_taken_again_is_told_to_nobody() -> None:
    """Also when more is taken than came free here: the rest was somebody else's."""
    room = LimitWakeups()
    room.add_freed_slots({"a": 2, "b": 1}, 10.0)
    room.add_freed_slots({"a": -1, "b": -5}, 10.0)
    assert room.due_in(10.0) == pytest.approx(LOCAL_CLAIM_SECONDS)
    room.add_freed_slots({"b": 1}, 10.005)
    room.add_freed_slots({"a": -1}, 10.006)
    assert room.due_in(10.006) == pytest.approx(LOCAL_CLAIM_SECONDS - 0.001)
    room.add_freed_slots({"b": -1}, 10.007)
    assert room.due_in(10.007) is None
    assert room.pop_due_topics(99.0) == set()


def test_what_is_not_taken_is_told_once_and_in_time() -> None:
    """Counted from the first place that came free, whatever comes and goes after it."""
    room = LimitWakeups()
    room.add_freed_slots({"a": 1}, 10.0)
    room.add_freed_slots({"b": 1}, 10.0 + LOCAL_CLAIM_SECONDS / 2)
    room.add_freed_slots({"a": 1}, 10.0 + LOCAL_CLAIM_SECONDS / 2)
    room.add_freed_slots({"a": -1}, 10.0 + LOCAL_CLAIM_SECONDS / 2)
    assert room.pop_due_topics(10.0) == set()
    assert room.pop_due_topics(10.0 + LOCAL_CLAIM_SECONDS) == {"a"}
    assert room.pop_all_topics() == {"b"}
    assert room.due_in(99.0) is None


async def test_others_look_only_for_places_that_are_left(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred workers would look for each one that is gone already."""
    monkeypatch.setattr(process_wakeups, "LOCAL_CLAIM_SECONDS", 0.5)
    store = await make_store(StoreLimits())
    await store.set_limits(TOPIC, TopicLimits(concurrency=1))
    await enqueue_many(store, 4)
    running = await claim_one(store)
    async with other_process_wakeups(store) as wakeups:
        for _ in range(3):
            await settle_one(store, running.lease, Completed())
            running = await claim_one(store)
        # All handles of the memory store are in one process, where everybody is told at once.
        assert await wakeups.wait(0.6) is store.url.startswith("memory")
