"""Hints inside one process."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.patience import PATIENCE
from tidewheel.stores.wakeups import WakeupHub, WakeupSubscription


async def test_a_hint_reaches_only_those_it_concerns() -> None:
    """By topic, by any topic, by finished jobs; unknown topics concern everybody who wants topics."""
    hub = WakeupHub()
    async with (
        hub.subscribe(topics=["a", "b"]) as some,
        hub.subscribe(topics=None) as everything,
        hub.subscribe(finished=True) as results,
    ):

        async def heard() -> list[bool]:
            return [await one.wait(0) for one in (some, everything, results)]

        assert await heard() == [False, False, False]
        hub.notify_ready(["b", "z"])
        assert await heard() == [True, True, False]
        hub.notify_ready(["z"])
        assert await heard() == [False, True, False]
        hub.notify_ready()
        assert await heard() == [True, True, False]
        hub.notify_finished()
        assert await heard() == [False, False, True]


async def test_a_subscription_ends_with_its_block() -> None:
    """Nothing is kept for those who left."""
    hub = WakeupHub()
    async with hub.subscribe(topics=None) as gone:
        pass
    hub.notify_ready(["a"])
    assert not await gone.wait(0)


async def test_a_waiter_is_woken_from_another_thread() -> None:
    """At once, not at the end of its timeout."""
    wakeups = WakeupSubscription()
    waiting = asyncio.ensure_future(wakeups.wait(PATIENCE))
    await asyncio.sleep(0)
    await asyncio.to_thread(wakeups.nudge)
    assert await asyncio.wait_for(waiting, PATIENCE / 2)


async def test_a_hint_that_meets_a_cancelled_wait_is_kept() -> None:
    """The next wait hears it: a hint is never lost to a timeout elsewhere."""
    wakeups = WakeupSubscription()
    waiting = asyncio.ensure_future(wakeups.wait(PATIENCE))
    await asyncio.sleep(0)
    wakeups.nudge()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await wakeups.wait(0)


async def test_many_nudges_are_one_hint() -> None:
    """A flag, not a queue."""
    wakeups = WakeupSubscription()
    for _ in range(100):
        wakeups.nudge()
    assert await wakeups.wait(0)
    assert not await wakeups.wait(0)


def test_a_subscription_can_be_waited_on_by_one_loop_after_another() -> None:
    """It belongs to no event loop."""
    wakeups = WakeupSubscription()
    assert not asyncio.run(wakeups.wait(0.001))
    wakeups.nudge()
    assert asyncio.run(wakeups.wait(0))


def test_a_nudge_survives_a_listener_whose_loop_is_gone() -> None:
    """Whoever enqueues must not suffer for a thread that died."""
    wakeups = WakeupSubscription()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(wakeups.wait(PATIENCE))
    loop.run_until_complete(asyncio.sleep(0))
    waiting.cancel()
    loop.close()
    wakeups.nudge()
    assert asyncio.run(wakeups.wait(0))


async def test_no_hint_is_missed_under_a_storm_of_them() -> None:
    """After the last hint there is always a wake-up, however the threads interleave."""
    hub = WakeupHub()
    done = threading.Event()
    counter = 0

    def produce() -> None:
        nonlocal counter
        for _ in range(2000):
            counter += 1
            hub.notify_ready(["a"])
        done.set()

    async with hub.subscribe(topics=["a"]) as wakeups:
        thread = threading.Thread(target=produce)
        thread.start()
        seen = 0
        while seen < 2000:
            assert await wakeups.wait(PATIENCE)
            seen = counter
        thread.join()
    assert done.is_set()
