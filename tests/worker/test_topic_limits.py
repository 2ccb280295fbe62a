"""Workers and limits of topics: declared when they start, obeyed by all, with no slot left idle."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import until, working
from tidewheel import LimitsOrigin, Rate, Tidewheel, TopicLimits


async def test_a_worker_declares_what_its_tasks_say(app: Tidewheel) -> None:
    """Before its first claim; what an operator has set stands."""

    @app.task(topic="mail", limits=TopicLimits(concurrency=2))
    async def send() -> None: ...

    @app.task(topic="kept", limits=TopicLimits(concurrency=2))
    async def keep() -> None: ...

    await app.limits.set("kept", TopicLimits(concurrency=7))
    job = await send.enqueue()
    async with working(app):
        await job.result(timeout=PATIENCE)
    limits = await app.limits.list()
    assert (limits["mail"].concurrency, limits["mail"].origin) == (2, LimitsOrigin.CODE)
    assert limits["kept"] == TopicLimits(concurrency=7)


async def test_a_worker_starts_also_when_an_operator_is_a_moment_ahead(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has set limits between its look and its own ones."""

    @app.task(topic="mail", limits=TopicLimits(concurrency=2))
    async def send() -> None: ...

    await app.limits.set("mail", TopicLimits(concurrency=7))

    async def before() -> dict[str, TopicLimits]:
        return {}

    job = await send.enqueue()
    with monkeypatch.context() as patched:
        patched.setattr(app.store, "limits", before)
        async with working(app):
            await job.result(timeout=PATIENCE)
    assert await app.limits.get("mail") == TopicLimits(concurrency=7)


async def test_two_workers_keep_a_limit_and_use_it(app: Tidewheel) -> None:
    """Never more at once, and hints let nobody wait for a poll."""
    running = most = 0
    three_ran = asyncio.Event()

    @app.task(topic="mail", limits=TopicLimits(key_concurrency=3), limit_key="k")
    async def send() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == 3:
            three_ran.set()
        await asyncio.wait_for(three_ran.wait(), PATIENCE)
        await asyncio.sleep(0.01)
        running -= 1

    jobs = await send.enqueue_many([{}] * 30)
    async with working(app, concurrency=8), working(app, concurrency=8):
        for job in jobs:
            await job.result(timeout=PATIENCE)
    assert most == 3


async def test_a_free_slot_is_filled_without_a_poll() -> None:
    """A worker that had no slot for a job of a limited topic asks again when it has one."""
    async with Tidewheel("memory://", poll_interval=10 * PATIENCE) as app:

        @app.task(topic="mail", limits=TopicLimits(rate=Rate(1000)))
        async def send() -> None:
            await asyncio.sleep(0.005)

        jobs = await send.enqueue_many([{}] * 10)
        async with working(app, concurrency=1, prefetch=4):
            for job in jobs:
                await job.result(timeout=PATIENCE)


async def test_a_rate_is_waited_for_and_not_polled_for() -> None:
    """The claim says when, so a poll every half minute is enough."""
    async with Tidewheel("memory://", poll_interval=30) as app:
        starts: list[float] = []

        @app.task(topic="mail", limits=TopicLimits(rate=Rate(20, 1.0, 1)))
        async def send() -> None:
            starts.append(time.monotonic())

        await send.enqueue_many([{}] * 5)
        async with working(app, concurrency=4):
            await until(lambda: len(starts) == 5)
        assert starts[-1] - starts[0] >= 0.19


async def test_who_pulls_by_hand_obeys_and_claims_nothing_ahead(app: Tidewheel) -> None:
    """Reservations count as running; a job that is named is granted all the same."""
    await app.limits.set("mail", TopicLimits(concurrency=2))
    await app.enqueue_many("mail", [{"n": number} for number in range(4)])
    first = await app.queue.reserve("mail", timeout=PATIENCE)
    await first.delete()  # whoever ends one is expected to ask again
    second = await app.queue.reserve("mail", timeout=PATIENCE)
    third = await app.queue.reserve("mail", timeout=PATIENCE)
    [topic] = await app.topics()
    assert (topic.running, topic.pending) == (2, 1)
    await second.delete()
    fourth = await app.queue.reserve("mail", timeout=PATIENCE)
    await third.delete()
    await fourth.delete()
