"""Store lifecycle and hints: open, siblings, wake-ups, and room in topics with limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidewheel.core.model import Completed, Failed, JobFilter, Released
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.errors import TidewheelError
from tidewheel.stores.protocol import Store, Wakeups
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    TOPIC,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_state,
    job,
    settle_one,
)

HINT_TIMEOUT_SECONDS = 5.0
"""Seconds a hint may take before the test gives up; it comes within milliseconds."""
NO_HINT_SECONDS = 0.05
"""Seconds to wait for a hint that must not come."""


async def test_the_store_tells_its_own_time(store: Store, clock: FrozenClock) -> None:
    """Everything stored is by this clock."""
    assert await store.now() == clock.now()
    clock.advance(1.5)
    assert await store.now() == clock.now()


async def test_a_store_describes_what_runs_underneath(store: Store) -> None:
    """Names and versions for people."""
    described = store.describe()
    assert described
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in described.items())


async def test_migrating_again_does_nothing(store: Store) -> None:
    """Nothing is left to do the second time."""
    await enqueue_one(store)
    assert await store.pending_migrations() == []
    assert await store.migrate() == []
    assert (await store.count(JobFilter())).total == 1


async def test_a_healthy_store_has_no_problems(store: Store) -> None:
    """Empty or in use."""
    assert await store.check() == []
    await enqueue_one(store)
    assert await store.check() == []


async def test_a_sibling_sees_the_same_jobs_and_must_be_opened(store: Store) -> None:
    """Another handle, not another store; closing it leaves the first alone."""
    sibling = store.sibling()
    assert sibling.url == store.url
    with pytest.raises(TidewheelError):
        await sibling.enqueue([job()])
    await sibling.open()
    try:
        job_id = await enqueue_one(sibling)
        assert await get_state(store, job_id) is not None
    finally:
        await sibling.close()
    await sibling.close()
    assert await settle_one(store, (await claim_one(store)).lease, Completed())


async def test_a_sibling_works_on_another_thread_and_loop(store: Store) -> None:
    """As the lease keeper and the blocking twins use it."""

    async def elsewhere() -> None:
        sibling = store.sibling()
        await sibling.open()
        await enqueue_one(sibling)
        await settle_one(sibling, (await claim_one(sibling)).lease, Completed())
        await sibling.close()

    await asyncio.to_thread(asyncio.run, elsewhere())
    assert (await store.stats(window_seconds=60)).completed == 1


async def test_enqueue_wakes_those_who_wait_for_its_topic(store: Store) -> None:
    """And those who wait for any topic."""
    async with store.wakeups(topics=["mail"]) as mail, store.wakeups(topics=None) as everything:
        await enqueue_one(store, "mail")
        assert await mail.wait(HINT_TIMEOUT_SECONDS)
        assert await everything.wait(HINT_TIMEOUT_SECONDS)


async def test_a_delayed_job_wakes_too(store: Store) -> None:
    """A worker asleep until a later job has to learn of an earlier one."""
    async with store.wakeups(topics=["mail"]) as mail:
        await enqueue_one(store, "mail", delay=1)
        assert await mail.wait(HINT_TIMEOUT_SECONDS)


async def test_without_a_hint_the_wait_ends_with_its_time(store: Store) -> None:
    """False, and the caller polls."""
    async with store.wakeups(topics=["mail"]) as mail:
        assert not await mail.wait(0)
        assert not await mail.wait(0.01)


async def test_hints_before_the_wait_are_kept_and_become_one(store: Store) -> None:
    """A hint is a flag, not a message."""
    async with store.wakeups(topics=["mail"]) as mail:
        await enqueue_one(store, "mail")
        await enqueue_one(store, "mail")
        assert await mail.wait(HINT_TIMEOUT_SECONDS)
        while await mail.wait(NO_HINT_SECONDS):
            pass  # a late hint is allowed, an endless stream of them is not


async def test_a_settlement_wakes_those_who_wait_for_results(store: Store) -> None:
    """Once it is there to be read."""
    async with store.wakeups(finished=True) as results:
        job_id = await enqueue_one(store)
        claimed = await claim_one(store)
        await settle_one(store, claimed.lease, Completed(b"1"))
        assert await results.wait(HINT_TIMEOUT_SECONDS)
        found = await get_state(store, job_id)
        assert found is not None
        assert found.final


async def test_a_cancellation_wakes_those_who_wait_for_results(store: Store) -> None:
    """Every end is an end."""
    job_id = await enqueue_one(store)
    async with store.wakeups(finished=True) as results:
        await store.cancel([job_id])
        assert await results.wait(HINT_TIMEOUT_SECONDS)


async def test_requeue_and_resume_wake_workers(store: Store) -> None:
    """Whatever makes a job due is worth a hint."""
    job_id = await enqueue_one(store)
    await store.cancel([job_id])
    async with store.wakeups(topics=["mail"]) as mail:
        await store.requeue([job_id])
        assert await mail.wait(HINT_TIMEOUT_SECONDS)
    await claim_one(store)
    async with store.wakeups(topics=["mail"]) as mail:
        await store.take_back([job_id])
        assert await mail.wait(HINT_TIMEOUT_SECONDS)
    await store.pause("mail", 2**60)
    async with store.wakeups(topics=["mail"]) as mail:
        await store.pause("mail", None)
        assert await mail.wait(HINT_TIMEOUT_SECONDS)


async def test_a_nudge_from_another_thread_ends_the_wait(store: Store) -> None:
    """The current wait or the next one."""
    async with store.wakeups() as wakeups:
        wakeups.nudge()
        assert await wakeups.wait(0)
        waiting = asyncio.ensure_future(wakeups.wait(HINT_TIMEOUT_SECONDS))
        await asyncio.sleep(0)
        thread = threading.Thread(target=wakeups.nudge)
        thread.start()
        assert await waiting
        thread.join()


async def test_a_sibling_on_another_thread_wakes_this_one(store: Store) -> None:
    """Hints cross threads and event loops."""

    async def elsewhere() -> None:
        sibling = store.sibling()
        await sibling.open()
        await enqueue_one(sibling, "mail")
        await sibling.close()

    async with store.wakeups(topics=["mail"]) as mail:
        waiting = asyncio.ensure_future(mail.wait(HINT_TIMEOUT_SECONDS))
        await asyncio.to_thread(asyncio.run, elsewhere())
        assert await waiting


async def test_a_pause_that_is_made_shorter_is_told_to_those_who_wait(
    store: Store, clock: FrozenClock
) -> None:
    """They would sleep until the end of the longer one."""
    await store.pause("mail", clock.now() + 600_000_000)
    async with store.wakeups(topics=["mail"]) as wakeups:
        while await wakeups.wait(NO_HINT_SECONDS):
            pass
        await store.pause("mail", clock.now() + 1_000_000)
        assert await wakeups.wait(HINT_TIMEOUT_SECONDS)


"""Seconds a hint may take before the test gives up; it comes within milliseconds."""


@pytest.mark.parametrize(
    "ending", ["completed", "failed", "snoozed", "cancelled", "deleted", "limits", "removed"]
)
async def test_room_is_hinted_to_those_who_wait(store: Store, ending: str) -> None:
    """However it came: nobody has to poll for a slot."""
    await store.set_limits(TOPIC, TopicLimits(ordered=True))
    first, second, _ = await enqueue_many(store, 3, limit_key="a")
    running = await claim_one(store)
    assert running.lease.job_id == first
    async with store.wakeups(topics=[TOPIC]) as wakeups:
        while await wakeups.wait(0.05):  # what was put above
            pass
        match ending:
            case "completed":
                await settle_one(store, running.lease, Completed())
            case "failed":
                await settle_one(store, running.lease, Failed(BOOM))
            case "snoozed":
                await settle_one(store, running.lease, Released(60.0))
            case "cancelled":
                await store.cancel([second])
            case "deleted":
                await store.delete([second])
            case "limits":
                await store.set_limits(TOPIC, TopicLimits(key_concurrency=2))
            case "removed":
                await store.set_limits(TOPIC, None)
        assert await wakeups.wait(HINT_TIMEOUT_SECONDS)


async def test_others_are_told_of_room_that_nobody_here_takes(store: Store) -> None:
    """Whoever ended the job may be leaving."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=1))
    await enqueue_many(store, 2)
    running = await claim_one(store)
    async with other_process_wakeups(store) as wakeups:
        await settle_one(store, running.lease, Completed())
        assert await wakeups.wait(HINT_TIMEOUT_SECONDS)


@asynccontextmanager
async def other_process_wakeups(store: Store) -> AsyncIterator[Wakeups]:
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
