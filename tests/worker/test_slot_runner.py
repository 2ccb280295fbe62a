"""One slot is enough for handlers that never wait; all of them are there for handlers that do."""

from __future__ import annotations

import asyncio

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import working
from tidewheel import Tidewheel
from tidewheel.worker import slot_runner


async def test_handlers_that_wait_run_side_by_side_behind_others_that_do_not() -> None:
    """Each of them waits for all the others: one slot too few, and none would end."""
    async with Tidewheel("memory://") as app:
        meeting = asyncio.Barrier(5)

        @app.task
        async def quick() -> None:
            pass

        @app.task
        async def meet() -> str:
            await meeting.wait()
            return "met"

        for _ in range(50):
            await quick.enqueue()
        jobs = [await meet.enqueue() for _ in range(5)]
        async with working(app, concurrency=5):
            assert [await job.result(timeout=PATIENCE) for job in jobs] == ["met"] * 5


async def test_functions_on_threads_run_side_by_side() -> None:
    """A thread's slot waits like any other."""
    async with Tidewheel("memory://") as app:
        seen: set[int] = set()
        all_there = asyncio.Event()
        loop = asyncio.get_running_loop()

        @app.task
        def meet(number: int) -> None:
            seen.add(number)
            if len(seen) == 5:
                loop.call_soon_threadsafe(all_there.set)
            asyncio.run_coroutine_threadsafe(all_there.wait(), loop).result(20)

        jobs = [await meet.enqueue(number) for number in range(5)]
        async with working(app, concurrency=5):
            for job in jobs:
                await job.result(timeout=PATIENCE)


async def test_handlers_that_never_wait_let_others_have_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They step aside after a while, also when there is always another job."""
    monkeypatch.setattr(slot_runner, "MAX_TURN_SECONDS", 0.0)
    async with Tidewheel("memory://") as app:
        ran = 0
        seen: list[int] = []

        @app.task
        async def quick() -> None:
            nonlocal ran
            ran += 1

        for _ in range(100):
            await quick.enqueue()
        async with working(app, concurrency=10) as worker:
            while worker.tally.completed < 100:
                seen.append(ran)
                await asyncio.sleep(0)
        assert len(set(seen)) > 50
