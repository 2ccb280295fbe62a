"""Very many jobs at once: due together, unreadable, failing together, on many topics, under one key.

Quick sizes by default, the sizes of real life with ``-m long``.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.servers.shared import empty_url
from tests.worker.helpers import until, working
from tidewheel import Retry, Tidewheel

BATCH = 10_000


def sizes(quick: int, full: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("number", [quick, pytest.param(full, marks=pytest.mark.long)])


@pytest.fixture(params=["sqlite", "postgres"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tidewheel]:
    url = empty_url() if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"
    async with Tidewheel(url, lease=10, max_jobs_per_topic=0) as app:
        yield app


async def put(app: Tidewheel, task: str, number: int, payload: object, delay: float = 0.0) -> None:
    """In portions, as a program with a million things to do would."""
    for done in range(0, number, BATCH):
        await app.enqueue_many(task, [payload] * min(BATCH, number - done), delay=delay)


async def drained(app: Tidewheel, patience: float) -> None:
    async def empty() -> bool:
        stats = await app.stats()
        return not stats.pending + stats.running

    await until(empty, patience=patience)


@sizes(5_000, 1_000_000)
@pytest.mark.parametrize("together", [False, True], ids=["backlog", "due-at-once"])
async def test_a_great_many_jobs_are_each_run_once(app: Tidewheel, number: int, together: bool) -> None:
    """Waiting since long or due at the same instant; and one that is urgent does not wait for them all."""
    runs = 0
    urgent_after = 0
    is_enqueued = asyncio.Event()

    @app.task
    async def work(urgent: bool = False) -> None:
        nonlocal runs, urgent_after
        runs += 1
        if urgent:
            urgent_after = runs
        if runs > number // 100:
            await is_enqueued.wait()  # a busy machine would run all others while the urgent one is written

    began = time.monotonic()
    delay = 0.0
    if together:
        # Long enough for all of them to be there before the first one is due.
        delay = 0.3 + number / 10_000
    await put(app, "work", number, {}, delay)
    if together:
        await asyncio.sleep(max(0.0, began + delay - time.monotonic()))
    async with working(app, concurrency=20) as worker:
        await until(lambda: runs > number // 100)
        before = runs
        await app.enqueue("work", {"urgent": True}, priority=100)
        is_enqueued.set()
        await drained(app, 60 + number / 2_000)
        await until(lambda: worker.tally.completed == number + 1)
    assert runs == number + 1
    assert urgent_after - before < max(number // 2, 4_000)
    assert worker.tally.lost == 0
    assert await app.check() == []


@sizes(2_000, 100_000)
async def test_payloads_that_cannot_be_read_fail_at_once_and_hold_nobody_up(
    app: Tidewheel, number: int
) -> None:
    """Not one of them is tried again, and the job behind them is run."""
    await put(app, "typed", number, {"n": "not a number"})

    @app.task(max_attempts=5)
    async def typed(n: int) -> int:
        return n

    behind = await typed.enqueue(n=3)
    async with working(app) as worker:
        assert await behind.result(timeout=60 + number / 1_000) == 3
        await until(lambda: worker.tally.failed == number)
    assert (worker.tally.completed, worker.tally.retried, worker.tally.lost) == (1, 0, 0)
    page = await app.jobs(state="failed", limit=5)
    for job in page:
        await job.refresh()
        assert job.attempt == 1
        assert job.error is not None
        assert not job.error.retryable
    assert (await app.stats()).failed == number


@sizes(1_000, 10_000)
async def test_jobs_that_fail_together_do_not_come_back_together(app: Tidewheel, number: int) -> None:
    """Their retries are spread over half of the delay, so what failed under their load gets a chance."""

    @app.task(max_attempts=5, retry=Retry.fixed(600))
    async def breaks() -> None:
        raise ConnectionError("the other side has had enough")

    jobs = await app.enqueue_many("breaks", [{}] * number)
    async with working(app, concurrency=50) as worker:
        await until(lambda: worker.tally.retried == number, patience=PATIENCE)
    delays = []
    for job in jobs[:: number // 200]:
        await job.refresh()
        assert job.shown_state == "retrying" or job.state == "pending"
        delays.append((job.run_at - job.attempts[0].ended_at).total_seconds())
    assert all(299 < delay < 601 for delay in delays)
    tenths = Counter(int((delay - 300) // 30) for delay in delays)
    assert len([tenth for tenth in range(10) if tenths[tenth] > 3]) == 10, tenths
    assert max(tenths.values()) < 3 * len(delays) / 10, tenths


@sizes(300, 1_000)
async def test_a_worker_of_very_many_topics_serves_them_all(app: Tidewheel, number: int) -> None:
    """Nobody's lane is forgotten, and an urgent job in the last one is found among all of them."""
    runs: Counter[str] = Counter()

    def register(name: str) -> None:
        @app.task(name=name)
        async def work() -> None:
            runs[name] += 1

    names = [f"topic-{n}" for n in range(number)]
    for name in names:
        register(name)
    await asyncio.gather(*(app.enqueue_many(name, [{}] * 3) for name in names))
    async with working(app):
        urgent = await app.enqueue(names[-1], priority=100)
        await urgent.result(timeout=60)
        await drained(app, 120)
    assert runs == {**dict.fromkeys(names, 3), names[-1]: 4}
    assert len(await app.topics()) == number


@sizes(1_000, 10_000)
async def test_many_who_enqueue_under_one_key_get_one_job(app: Tidewheel, number: int) -> None:
    """All at once, from a hundred callers: each is told which job it is, one that it is the first."""
    runs = 0

    @app.task
    async def work() -> None:
        nonlocal runs
        runs += 1

    async def caller(times: int) -> list[tuple[object, bool]]:
        jobs = [await app.enqueue("work", key="the same") for _ in range(times)]
        return [(job.id, job.duplicate) for job in jobs]

    async with working(app):
        answers = [
            answer
            for told in await asyncio.gather(*(caller(number // 100) for _ in range(100)))
            for answer in told
        ]
        [(first, _)] = [answer for answer in answers if not answer[1]]
        assert {job_id for job_id, _ in answers} == {first}
        await app.result(str(first), timeout=PATIENCE)
    assert (runs, (await app.stats()).completed) == (1, 1)
