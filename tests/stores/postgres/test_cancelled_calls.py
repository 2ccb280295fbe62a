"""Callers that give up: nobody else suffers for it, and no connection is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.patience import PATIENCE
from tests.stores.postgres.proxy import Proxy
from tests.stores.postgres.stores import opened, raw
from tidewheel.core.model import Completed, JobFilter, Settlement, State
from tidewheel.errors import StoreUnavailable
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import (
    claim_from,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    job,
)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as [store]:
        yield store


async def five_at_once(store: PostgresStore) -> None:
    """Every connection of the pool can be had."""
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(store._database.fetchval("SELECT pg_sleep(0.02)") for _ in range(5)))


async def test_two_hundred_cancelled_calls_leave_the_pool_whole(store: PostgresStore) -> None:
    """Cancelled while waiting for a connection, while connecting, before, during or after the statement."""
    await enqueue_many(store, 300, max_attempts=None)
    leases = [one.lease for one in await claim_jobs(store, limit=300)]
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.enqueue([job()]),
        lambda: claim_from(store, limit=1),
        lambda: store.settle([Settlement(leases.pop(), Completed(b"1"), 0.01)]),
        lambda: store.extend(leases[:10], 60.0),
        lambda: store.list_jobs(JobFilter(), limit=10),
        lambda: store.stats(window_seconds=60.0),
    ]
    dice = random.Random(11)
    for _ in range(20):
        tasks = [asyncio.ensure_future(dice.choice(calls)()) for _ in range(10)]
        for task in tasks:
            await asyncio.sleep(dice.choice([0, 0, 0.0005, 0.001, 0.002]))
            task.cancel()
        for answer in await asyncio.gather(*tasks, return_exceptions=True):
            assert not isinstance(answer, BaseException) or isinstance(answer, asyncio.CancelledError)
    await five_at_once(store)
    await enqueue_one(store)
    assert await store.check() == []


async def test_who_shares_a_write_with_one_that_gives_up_is_answered(
    store: PostgresStore, postgres_url: str
) -> None:
    """Enqueues of many callers are one statement; cancelling some of them changes nothing for the others."""
    async with raw(postgres_url) as connection, connection.transaction():
        await connection.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        tasks = [asyncio.create_task(store.enqueue([job(key=f"key-{number}")])) for number in range(40)]
        await asyncio.sleep(0.05)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.sleep(0.01)
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*tasks[1::2])
    assert len({answer.job_id for [answer] in answers}) == 20
    assert not any(answer.duplicate for [answer] in answers)
    assert all(task.cancelled() for task in tasks[::2])
    assert 20 <= (await store.count(JobFilter())).total <= 40
    await five_at_once(store)


async def test_what_a_cancelled_claim_granted_comes_with_the_next(postgres_url: str) -> None:
    """A worker that gave up waiting is granted the same jobs again, without a counted attempt."""
    async with opened(postgres_url), Proxy(postgres_url) as proxy, opened(proxy.url) as [store]:
        ids = await enqueue_many(store, 3)
        happened = proxy.lose_reply(".claim(", cut=False)
        claiming = asyncio.create_task(claim_from(store))
        await happened.wait()
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming
        again = await claim_jobs(store)
        assert [one.lease.job_id for one in again] == ids
        assert {one.attempt for one in again} == {1}


async def test_a_cancelled_enqueue_is_written_or_not_but_never_half(store: PostgresStore) -> None:
    """A batch with keys and large bodies, cancelled at any moment, is there as a whole or not at all."""
    dice = random.Random(7)
    for turn in range(30):
        jobs = [job(key=f"{turn}-{number}", payload=b"1" * 2000) for number in range(10)]
        enqueueing = asyncio.create_task(store.enqueue(jobs))
        await asyncio.sleep(dice.uniform(0, 0.004))
        enqueueing.cancel()
        await asyncio.gather(enqueueing, return_exceptions=True)
    await enqueue_one(store)  # behind whatever was still being written
    await asyncio.sleep(0.05)
    async with asyncio.timeout(PATIENCE):
        while store._writer._writing:
            await asyncio.sleep(0.01)
    assert (await store.count(JobFilter())).total % 10 == 1
    assert await store.check() == []


async def test_closing_waits_for_what_was_accepted(postgres_url: str) -> None:
    """An enqueue under way when its store is closed is finished, and its job is there."""
    async with opened(postgres_url) as [other]:
        async with opened(postgres_url) as [store]:
            enqueueing = [asyncio.create_task(store.enqueue([job()])) for _ in range(20)]
            await asyncio.sleep(0)
        answers = await asyncio.gather(*enqueueing)
        assert len(answers) == 20
        states = await other.states([answer.job_id for [answer] in answers])
        assert states == [State.PENDING] * 20


async def test_killed_backends_are_an_outage_and_soon_over(store: PostgresStore, postgres_url: str) -> None:
    """An administrator ends every session, again and again: enqueues notice nothing, other verbs little."""
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.extend([lease], 60.0),
        lambda: store.list_jobs(JobFilter(), limit=5),
        store.now,
    ]
    async with raw(postgres_url) as connection:
        for _ in range(5):
            await asyncio.gather(*(store.now() for _ in range(5)))
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE starts_with(application_name, 'tidewheel') AND pid <> pg_backend_pid()"
            )
            failures = 0
            for call in calls:
                try:
                    await call()
                except StoreUnavailable:
                    failures += 1
            await enqueue_one(store)
            for call in calls:
                try:
                    await call()
                except StoreUnavailable:
                    failures += 1
            assert failures <= 5  # one for each connection there was
    assert (await get_job(store, job_id)).state is State.RUNNING
