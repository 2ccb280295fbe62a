"""Who learns of room in topics with limits: others only of what nobody here takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tidewheel.core.model import Completed
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.stores import wakeups as process_wakeups
from tidewheel.stores.protocol import Store, StoreLimits
from tidewheel.stores.wakeups import PATIENCE_SECONDS, FreedRoom
from tidewheel.testing.conformance.helpers import TOPIC, claim_one, end, put_many
from tidewheel.testing.conformance.wakeups import waiting_elsewhere

MakeStore = Callable[[StoreLimits], Awaitable[Store]]


def test_what_is_taken_again_is_told_to_nobody() -> None:
    """Also when more is taken than came free here: the rest was somebody else's."""
    room = FreedRoom()
    room.change({"a": 2, "b": 1}, 10.0)
    room.change({"a": -1, "b": -5}, 10.0)
    assert room.due_in(10.0) == pytest.approx(PATIENCE_SECONDS)
    room.change({"b": 1}, 10.005)
    room.change({"a": -1}, 10.006)
    assert room.due_in(10.006) == pytest.approx(PATIENCE_SECONDS - 0.001)
    room.change({"b": -1}, 10.007)
    assert room.due_in(10.007) is None
    assert room.take_due(99.0) == set()


def test_what_is_not_taken_is_told_once_and_in_time() -> None:
    """Counted from the first place that came free, whatever comes and goes after it."""
    room = FreedRoom()
    room.change({"a": 1}, 10.0)
    room.change({"b": 1}, 10.0 + PATIENCE_SECONDS / 2)
    room.change({"a": 1}, 10.0 + PATIENCE_SECONDS / 2)
    room.change({"a": -1}, 10.0 + PATIENCE_SECONDS / 2)
    assert room.take_due(10.0) == set()
    assert room.take_due(10.0 + PATIENCE_SECONDS) == {"a"}
    assert room.take_all() == {"b"}
    assert room.due_in(99.0) is None


async def test_others_look_only_for_places_that_are_left(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred workers would look for each one that is gone already."""
    monkeypatch.setattr(process_wakeups, "PATIENCE_SECONDS", 0.5)
    store = await make_store(StoreLimits())
    await store.set_limits(TOPIC, TopicLimits(concurrency=1))
    await put_many(store, 4)
    running = await claim_one(store)
    async with waiting_elsewhere(store) as wakeups:
        for _ in range(3):
            await end(store, running.lease, Completed())
            running = await claim_one(store)
        # All handles of the memory store are in one process, where everybody is told at once.
        assert await wakeups.wait(0.6) is store.url.startswith("memory")
