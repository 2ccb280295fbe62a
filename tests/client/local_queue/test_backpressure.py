"""A full lane says so at once: exactly as many jobs are let in as fit, whoever asks, from wherever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from tests.client.local_queue.test_local_queue import until
from tests.patience import PATIENCE
from tidewheel import Backpressure, Tidewheel, TidewheelError

TRIES = 10_000


@pytest.fixture
def release() -> threading.Event:
    """Lets the handlers of ``full`` end."""
    return threading.Event()


@pytest.fixture
async def full(app: Tidewheel, release: threading.Event) -> Any:
    """A task whose handlers fill the lane: all slots are busy, and as many jobs wait as may."""

    @app.task(durable=False)
    def block(name: Any = None) -> None:
        release.wait(PATIENCE)

    await block.enqueue_many([{}] * app.settings.lane_concurrency)
    await until(lambda: app.lane.stats().running == app.settings.lane_concurrency)
    await block.enqueue_many([{}] * (app.settings.lane_capacity - 1))
    await block.options(key="last").enqueue()
    return block


async def test_a_full_lane_refuses_with_value_limit_and_remedy(
    app: Tidewheel, full: Any, release: threading.Event
) -> None:
    """Nothing is enqueued; running jobs do not count as waiting; room is used as soon as it is there."""
    with pytest.raises(Backpressure) as caught:
        await full.enqueue()
    assert caught.value.code == "backpressure"
    assert isinstance(caught.value, TidewheelError)
    assert str(caught.value).startswith(
        "1 more do not fit into the lane of non-durable tasks; the limit is 256 that wait (lane_capacity)."
    )
    stats = app.lane.stats()
    assert (stats.waiting, stats.running, stats.refused) == (256, 4, 1)
    assert len(app.lane.open()._table.arguments) == 260
    release.set()
    await until(lambda: app.lane.stats().waiting < 256)
    await (await full.enqueue()).result(timeout=PATIENCE)


async def test_a_duplicate_needs_no_room(app: Tidewheel, full: Any, release: threading.Event) -> None:
    """It adds nothing, so it is never refused; not in a batch either."""
    again = await full.options(key="last").enqueue()
    assert again.duplicate
    several = await full.options(key="last").enqueue_many([{}] * 20_000)
    assert {job.id for job in several} == {again.id}
    assert app.lane.stats().refused == 0
    release.set()


async def test_many_are_let_in_together_or_not_at_all(
    app: Tidewheel, full: Any, release: threading.Event
) -> None:
    """A batch that does not fit leaves nothing behind, however large it is."""
    release.set()
    await app.run_until_idle()
    before = app.lane.stats()
    for number in (257, 10_300):  # more than one batch of the durable path
        with pytest.raises(Backpressure, match=f"{number:,} more do not fit"):
            await full.enqueue_many([{}] * number)
    after = app.lane.stats()
    assert (after.waiting, after.running, after.completed) == (0, 0, before.completed)
    assert after.refused == 257 + 10_300
    jobs = await full.enqueue_many([{}] * 256)
    for job in jobs:
        await job.result(timeout=PATIENCE)


async def test_delayed_and_retried_jobs_wait_too(app: Tidewheel) -> None:
    """The lane is bounded by what it has to keep, not by what is due."""

    @app.task(durable=False)
    async def work() -> None: ...

    await work.options(delay=60).enqueue_many([{}] * 256)
    with pytest.raises(Backpressure):
        await work.enqueue()


async def test_ten_thousand_submissions_are_let_in_or_refused_and_none_is_lost(tmp_path: Any) -> None:
    """From several threads with event loops of their own and several tasks on each, against slow handlers.

    Accepted and refused add up, no more ever wait than may, and every accepted job ends, its handler having
    run exactly once.
    """
    app = Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}", lane_concurrency=8)
    ran: Counter[UUID] = Counter()
    most = 0
    lock = threading.Lock()

    @app.task(durable=False)
    async def slow(number: object) -> None:
        nonlocal most
        await asyncio.sleep(0.002)
        with lock:
            ran[number] += 1  # type: ignore[index]
            most = max(most, app.lane.stats().waiting)

    @app.task(durable=False)
    def slow_on_a_thread(number: object) -> None:
        time.sleep(0.002)
        with lock:
            ran[number] += 1  # type: ignore[index]

    accepted: list[Any] = []
    refused = 0
    longest = 0.0

    async def submit(name: str, count: int) -> None:
        nonlocal refused, longest
        for number in range(count):
            task: Any = slow if number % 2 else slow_on_a_thread
            began = time.perf_counter()
            try:
                job = await task.enqueue((name, number))
            except Backpressure:
                job = None
            took = time.perf_counter() - began
            with lock:
                longest = max(longest, took)
                if job is None:
                    refused += 1
                else:
                    accepted.append((job.id, (name, number)))
            if number % 50 == 0:
                await asyncio.sleep(0.005)

    async def on_a_loop(thread: int) -> None:
        async with app:
            await asyncio.gather(*(submit(f"{thread}-{task}", TRIES // 20) for task in range(5)))

    async with app:
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, on_a_loop(thread)) for thread in range(4)))
        assert len(accepted) + refused == TRIES
        assert refused > 0
        async with asyncio.timeout(3 * PATIENCE):
            await app.run_until_idle()
        stats = app.lane.stats()
        assert (stats.completed, stats.failed, stats.cancelled) == (len(accepted), 0, 0)
        assert (stats.waiting, stats.running, stats.refused) == (0, 0, refused)
        assert ran == Counter(number for _, number in accepted)
        assert await app.lane.open().check() == []
        assert most <= 256
        assert longest < PATIENCE  # the figure is in the documents; here only that nobody stood and waited


async def test_the_count_is_exact_when_all_come_at_once(app: Tidewheel, release: threading.Event) -> None:
    """Sixteen threads, one place after the other: exactly as many get one as there are."""

    @app.task(durable=False)
    def block() -> None:
        release.wait(PATIENCE)

    await block.enqueue_many([{}] * 4)
    await until(lambda: app.lane.stats().running == 4)
    store = app.lane.open()
    outcomes: list[bool] = []
    line = threading.Barrier(16)

    async def push() -> None:
        for _ in range(40):
            job = block.job_for_call(block.template({}), (), {})
            try:
                await store.enqueue([job])
            except Backpressure:
                outcomes.append(False)
            else:
                outcomes.append(True)

    def rush() -> None:
        line.wait(PATIENCE)
        asyncio.run(push())

    threads = [threading.Thread(target=rush) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert Counter(outcomes) == {True: 256, False: 16 * 40 - 256}
    release.set()
