"""Who is told of room in topics with limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidewheel.limits import TopicLimits
from tidewheel.outcome import Completed, Failed, Released
from tidewheel.stores.protocol import Store, Wakeups
from tidewheel.testing.conformance.building import BOOM, TOPIC, claim_one, end, put_many

SOON = 5.0
"""Seconds a hint may take before the test gives up; it comes within milliseconds."""


@pytest.mark.parametrize(
    "ending", ["completed", "failed", "snoozed", "cancelled", "deleted", "limits", "removed"]
)
async def test_room_is_hinted_to_those_who_wait(store: Store, ending: str) -> None:
    """However it came: nobody has to poll for a slot."""
    await store.set_limits(TOPIC, TopicLimits(ordered=True))
    first, second, _ = await put_many(store, 3, limit_key="a")
    running = await claim_one(store)
    assert running.lease.job_id == first
    async with store.wakeups(topics=[TOPIC]) as wakeups:
        while await wakeups.wait(0.05):  # what was put above
            pass
        match ending:
            case "completed":
                await end(store, running.lease, Completed())
            case "failed":
                await end(store, running.lease, Failed(BOOM))
            case "snoozed":
                await end(store, running.lease, Released(60.0))
            case "cancelled":
                await store.cancel([second])
            case "deleted":
                await store.delete([second])
            case "limits":
                await store.set_limits(TOPIC, TopicLimits(key_concurrency=2))
            case "removed":
                await store.set_limits(TOPIC, None)
        assert await wakeups.wait(SOON)


async def test_others_are_told_of_room_that_nobody_here_takes(store: Store) -> None:
    """Whoever ended the job may be leaving."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=1))
    await put_many(store, 2)
    running = await claim_one(store)
    async with waiting_elsewhere(store) as wakeups:
        await end(store, running.lease, Completed())
        assert await wakeups.wait(SOON)


@asynccontextmanager
async def waiting_elsewhere(store: Store) -> AsyncIterator[Wakeups]:
    """Somebody with another handle, who has heard of everything so far."""
    elsewhere = store.sibling()
    await elsewhere.open()
    try:
        async with elsewhere.wakeups(topics=[TOPIC]) as wakeups:
            while await wakeups.wait(0.05):
                pass
            yield wakeups
    finally:
        await elsewhere.close()
