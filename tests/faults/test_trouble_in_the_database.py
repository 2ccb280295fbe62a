"""Other sessions that stand in the way: locks, a full NOTIFY queue, an old snapshot, a newer schema."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tests.patience import PATIENCE
from tests.servers import FAST, PostgresServer
from tests.servers.shared import fresh_url
from tests.stores.postgres.stores import raw
from tests.worker.helpers import until, working
from tidewheel import Context, Job, Tidewheel
from tidewheel.errors import SchemaTooNew, StoreUnavailable

LEASE = 2.0


@asynccontextmanager
async def app_on(url: str, **settings: Any) -> AsyncIterator[Tidewheel]:
    async with Tidewheel(url, lease=LEASE, **settings) as app:
        yield app


async def test_work_goes_on_after_a_lock_on_the_jobs_table(postgres_url: str) -> None:
    """Longer than the lease: what waited is settled or run again, no job is lost and none fails."""
    await _lock_and_go_on(postgres_url, seconds=1.25 * LEASE, lease=LEASE)


@pytest.mark.long
async def test_work_goes_on_after_a_lock_of_half_a_minute(postgres_url: str) -> None:
    """Longer than anybody waits for a lock, and shorter than the usual lease: nothing runs twice."""
    runs = await _lock_and_go_on(postgres_url, seconds=30.0, lease=60.0)
    assert runs == 200


async def insist(app: Tidewheel, key: str) -> Job[Any]:
    """What a caller does that is told after ten seconds that the store is not available."""
    while True:
        try:
            return await app.enqueue("work", key=key)
        except StoreUnavailable:
            await asyncio.sleep(0.1)


async def _lock_and_go_on(url: str, *, seconds: float, lease: float) -> int:
    """How many runs it took for two hundred jobs."""
    async with Tidewheel(url, lease=lease) as app:
        runs = 0

        @app.task(max_attempts=10)
        async def work() -> None:
            nonlocal runs
            runs += 1
            await asyncio.sleep(0.02)

        before = await app.enqueue_many("work", [{}] * 100)
        async with working(app, concurrency=5) as worker:
            await until(lambda: worker.tally.completed >= 10)
            async with raw(url) as connection, connection.transaction():
                await connection.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
                during = [asyncio.create_task(insist(app, f"{n}")) for n in range(100)]
                await asyncio.sleep(seconds)
            jobs = [*before, *await asyncio.gather(*during)]
            for job in jobs:
                await job.result(timeout=60)
        assert (await app.stats()).completed == len(jobs) == 200
        assert await app.check() == []
        return runs


async def test_handlers_that_use_up_the_pool_do_not_cost_a_lease(postgres_url: str) -> None:
    """They wait inside the database with every connection of the worker; its keeper has its own."""
    url = f"{postgres_url}&connections=4"
    async with app_on(url) as app, app_on(postgres_url) as producer, raw(postgres_url) as connection:
        asking = 0

        @app.task(max_attempts=3)
        async def asks(ctx: Context) -> int:
            nonlocal asking
            asking += 1
            await app.get(ctx.job.id)  # reads the table of attempts, which somebody has locked
            return ctx.attempt

        async with working(app, concurrency=8) as worker:
            async with connection.transaction():
                await connection.execute("LOCK TABLE attempts IN ACCESS EXCLUSIVE MODE")
                jobs = await producer.enqueue_many("asks", [{}] * 8)
                await until(lambda: asking == 8)
                await asyncio.sleep(1.25 * LEASE)
            assert [await job.result(timeout=PATIENCE) for job in jobs] == [1] * 8
        assert (worker.tally.completed, worker.tally.lost) == (8, 0)


@pytest.fixture
def small_queue() -> Iterator[PostgresServer]:
    """A server whose queue of notifications is as small as it can be."""
    server = PostgresServer(settings={**FAST, "max_notify_queue_pages": "64"})
    if server.binaries.major < 17:
        pytest.skip("before PostgreSQL 17 the queue holds 8 GB, and cannot be made smaller")
    with server:
        yield server


async def fill_queue(connection: Any) -> None:
    for _ in range(200):
        await connection.execute("SELECT pg_notify('nothing', repeat('x', 7900))")


async def test_jobs_are_found_by_polling_while_the_notify_queue_is_full(small_queue: PostgresServer) -> None:
    """A forgotten session that listens keeps every notification; enqueueing and running go on."""
    async with (
        app_on(small_queue.url(), poll_interval=0.2) as producer,
        app_on(small_queue.url(), poll_interval=0.2) as app,
    ):

        @app.task
        async def work() -> str:
            return "done"

        async with working(app):
            assert await (await producer.enqueue("work")).result(timeout=PATIENCE) == "done"
            forgotten = await asyncpg.connect(small_queue.url())
            flood = await asyncpg.connect(small_queue.url())
            try:
                await forgotten.execute("LISTEN nothing")
                transaction = forgotten.transaction()
                await transaction.start()
                await forgotten.execute("SELECT 1")
                with pytest.raises(asyncpg.PostgresError, match="too many notifications"):
                    await fill_queue(flood)
                jobs = [await producer.enqueue("work") for _ in range(10)]
                assert [await job.result(timeout=PATIENCE) for job in jobs] == ["done"] * 10
                with pytest.raises(asyncpg.PostgresError, match="too many notifications"):
                    await flood.execute("SELECT pg_notify('nothing', '')")  # it was full all the time
                await transaction.rollback()
            finally:
                await flood.close()
                await forgotten.close()
            assert await (await producer.enqueue("work")).result(timeout=PATIENCE) == "done"


async def test_an_old_snapshot_costs_neither_a_job_nor_promptness(postgres_url: str) -> None:
    """Dead rows cannot be removed while somebody looks at the past; urgent and delayed jobs still start."""
    async with app_on(postgres_url) as app, raw(postgres_url) as connection:
        urgent: dict[int, float] = {}

        @app.task(max_attempts=3)
        async def work(n: int = -1) -> None:
            if n >= 0:
                urgent[n] = time.monotonic()

        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("SELECT count(*) FROM jobs")
            await app.enqueue_many("work", [{}] * 5000)
            async with working(app, concurrency=20) as worker:
                enqueued: dict[int, float] = {}
                for n in range(5):
                    await until(lambda n=n: worker.tally.completed >= 900 * n)  # type: ignore[misc]
                    enqueued[n] = time.monotonic()
                    await app.enqueue("work", {"n": n}, priority=100, delay=0.1 * (n % 2))
                await until(lambda: len(urgent) == 5 and worker.tally.completed == 5005)
        assert max(urgent[n] - enqueued[n] for n in range(5)) < 1.0 + 4.0, "with a slow machine's slack"
        assert (await app.stats()).completed == 5005
        assert await app.check() == []


async def test_a_running_worker_outlives_a_newer_schema_and_a_new_one_of_its_kind_is_refused() -> None:
    """A rolling deploy: the first new process migrates; old ones finish their time, and do not come back."""
    url = fresh_url()
    async with app_on(url) as old:

        @old.task
        async def work() -> str:
            return "done"

        async with working(old):
            assert await (await old.enqueue("work")).result(timeout=PATIENCE) == "done"
            async with raw(url) as connection, connection.transaction():
                # What a migration may do while others work: add, never take away (CONTRIBUTING.md).
                await connection.execute(
                    "ALTER TABLE jobs ADD COLUMN added_later bigint;"
                    "CREATE TABLE added_later (id bigint PRIMARY KEY);"
                    "INSERT INTO schema_versions (version, name) VALUES (9999, '9999_from_the_future')"
                )
            jobs = await old.enqueue_many("work", [{}] * 50)
            assert [await job.result(timeout=PATIENCE) for job in jobs] == ["done"] * 50
            with pytest.raises(SchemaTooNew, match="upgrade Tidewheel"):
                await Tidewheel(url).open()
        assert await old.check() == []
