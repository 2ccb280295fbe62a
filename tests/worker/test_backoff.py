"""Pauses after failures: growing, bounded, and over for all when one part gets through."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from tests.patience import PATIENCE
from tidewheel import StoreUnavailable, UsedAfterFork
from tidewheel.worker.async_waits import cancel_and_wait, with_store_timeout
from tidewheel.worker.backoff import (
    INITIAL_DELAY_SECONDS,
    MAX_DELAY_SECONDS,
    Backoff,
    RecoverySignal,
    delay_after_failures,
)

GONE = StoreUnavailable("gone")


def test_pauses_grow_to_half_a_minute_and_never_run_in_step() -> None:
    """Each up to twice as long as the one before."""
    for failures in (1, 2, 5, 9, 10, 1000):
        longest = min(MAX_DELAY_SECONDS, INITIAL_DELAY_SECONDS * 2.0 ** (failures - 1))
        pauses = {delay_after_failures(failures) for _ in range(50)}
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
    assert MAX_DELAY_SECONDS == 30


async def test_the_first_to_get_through_wakes_all_on_every_loop() -> None:
    """The keeper has a thread and a loop of its own; it may be the first, or the last."""
    recovery = RecoverySignal()
    woken: list[str] = []
    asleep = threading.Barrier(3)

    async def sleeper(name: str) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, lambda: loop.run_in_executor(None, asleep.wait))
        assert await recovery.sleep(60)
        woken.append(name)

    thread = threading.Thread(target=lambda: asyncio.run(sleeper("there")))
    thread.start()
    here = asyncio.create_task(sleeper("here"))
    await asyncio.to_thread(asleep.wait)
    failing = Backoff("doing it", recovery)
    failing.record_failure(GONE)
    failing.record_success()
    await asyncio.wait_for(here, PATIENCE)
    await asyncio.to_thread(thread.join)
    assert sorted(woken) == ["here", "there"]


async def test_a_part_that_never_failed_wakes_nobody() -> None:
    """A success is news only after a failure: reads may work while the disk is full."""
    recovery = RecoverySignal()
    sleeping = asyncio.create_task(recovery.sleep(0.05))
    Backoff("doing it", recovery).record_success()
    assert await sleeping is False


async def test_who_was_woken_tries_quickly_from_then_on() -> None:
    """Its own connections may have to be made anew first."""
    recovery = RecoverySignal()
    backoff = Backoff("doing it", recovery)
    for _ in range(20):
        pause = backoff.record_failure(GONE)
    assert pause > 10
    waiting = asyncio.create_task(backoff.pause(pause))
    await asyncio.sleep(0)
    recovery.notify_all()
    await waiting
    assert backoff.record_failure(GONE) <= INITIAL_DELAY_SECONDS


def test_an_outage_is_mentioned_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Once each, with the number of tries in between."""
    caplog.set_level(logging.WARNING, "tidewheel")
    backoff = Backoff("doing it", RecoverySignal())
    backoff.record_success()
    for _ in range(3):
        backoff.record_failure(GONE)
    backoff.record_success()
    backoff.record_success()
    assert [record.getMessage() for record in caplog.records] == [
        "doing it failed; trying again until it works: gone",
        "doing it works again after 3 failed tries",
    ]


def test_a_forked_child_does_not_go_on() -> None:
    """It is not the worker, and must not act as if it were."""
    with pytest.raises(UsedAfterFork):
        Backoff("doing it", RecoverySignal()).record_failure(UsedAfterFork("forked"))


async def test_a_sleeper_whose_loop_is_gone_is_no_problem() -> None:
    """Nobody is left to be woken there."""
    recovery = RecoverySignal()
    loop = asyncio.new_event_loop()
    recovery._sleeping[loop.create_future()] = loop
    loop.close()
    recovery.notify_all()
    assert not recovery._sleeping


async def test_a_store_that_hangs_is_unavailable() -> None:
    """After the time it was given, with that time in the message."""
    with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.01 s"):
        async with asyncio.timeout(PATIENCE):
            await with_store_timeout(0.01, asyncio.sleep(10 * PATIENCE))


async def test_a_task_that_swallows_its_cancellation_is_cancelled_again() -> None:
    """Below a task there may be anybody's code."""
    swallowed: list[int] = []

    async def stubborn() -> None:
        while len(swallowed) < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                swallowed.append(1)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(cancel_and_wait([task]), PATIENCE)
    assert len(swallowed) == 3


def test_a_success_leads_back_to_the_shortest_pause() -> None:
    """An outage of last week must not make the first failure of today a long one."""
    backoff = Backoff("doing it", RecoverySignal())
    pauses = [backoff.record_failure(GONE) for _ in range(12)]
    assert pauses[0] <= INITIAL_DELAY_SECONDS < MAX_DELAY_SECONDS / 2 <= pauses[-1]
    backoff.record_success()
    assert backoff.record_failure(GONE) <= INITIAL_DELAY_SECONDS
