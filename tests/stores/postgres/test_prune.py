"""Pruning on PostgreSQL: beside others who prune, beside locks, and past jobs that went another way."""

from __future__ import annotations

import asyncio

import pytest

from tests.patience import PATIENCE
from tests.stores.postgres.stores import opened, raw
from tidewheel.core.model import Completed, JobFilter, Settlement, State
from tidewheel.stores.postgres import PostgresStore, maintenance
from tidewheel.testing.conformance.helpers import claim_jobs, claim_one, enqueue_many, enqueue_one, ids


async def _complete(store: PostgresStore, number: int) -> list[object]:
    await enqueue_many(store, number, retention=0.0)
    jobs = await claim_jobs(store, limit=number)
    await store.settle([Settlement(job.lease, Completed()) for job in jobs])
    return list(ids(jobs))


async def test_many_who_prune_at_once_remove_each_job_once(postgres_url: str) -> None:
    """Nobody waits for another, nobody fails, and the counts add up."""
    async with opened(*[postgres_url] * 4) as stores:
        for _ in range(4):
            await _complete(stores[0], 100)

        async def work_off(store: PostgresStore) -> int:
            total = 0
            while removed := await store.prune(limit=30):
                total += removed[State.COMPLETED]
            return total

        total = sum(await asyncio.gather(*map(work_off, stores)))
        total += await work_off(stores[0])  # what one had in hand, another may have passed over
        assert total == 400
        assert (await stores[0].count(JobFilter())).total == 0
        assert await stores[0].check() == []


async def test_a_locked_job_is_passed_over_and_claims_go_on(postgres_url: str) -> None:
    """Somebody's transaction holds a finished job: the others go now, that one when it is let go."""
    async with opened(postgres_url) as [store]:
        held, *_ = await _complete(store, 30)
        async with raw(postgres_url) as connection, connection.transaction():
            await connection.execute("SELECT FROM finished_jobs WHERE id = $1 FOR UPDATE", held)
            async with asyncio.timeout(PATIENCE):  # half of what a lock is waited for
                assert await store.prune() == {State.COMPLETED: 29}
                assert await store.prune() == {}
                await enqueue_one(store)
                await claim_one(store)
        assert await store.prune() == {State.COMPLETED: 1}
        assert await store.check() == []


async def test_a_prune_that_was_rolled_back_is_done_again(postgres_url: str) -> None:
    """A server that dies in between leaves the jobs, their counters and when they are to go."""
    async with opened(postgres_url) as [store], raw(postgres_url) as connection:
        await _complete(store, 30)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT prune(NULL, 100, 1000, 1, 1)")
        await transaction.rollback()
        assert await store.prune() == {State.COMPLETED: 30}
        assert await store.check() == []


async def test_jobs_that_are_gone_already_are_passed_over_by_the_thousand(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call looks at so many and no more, but does not say that nothing is left while there is."""
    monkeypatch.setattr(maintenance, "MAX_SCANNED_PER_PRUNE", 20)
    async with opened(postgres_url) as [store]:
        for _ in range(3):
            gone = await _complete(store, 25)
            await store.delete(gone)  # type: ignore[arg-type]
        await _complete(store, 25)
        assert await store.prune(limit=10) == {State.COMPLETED: 10}
        assert await store.prune() == {State.COMPLETED: 15}
        assert await store.prune() == {}
        async with raw(postgres_url) as connection:
            assert await connection.fetchval("SELECT count(*) FROM retention_queue") == 0
