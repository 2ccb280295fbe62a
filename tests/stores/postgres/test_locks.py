"""Somebody else has locked the tables: an ALTER TABLE, a VACUUM FULL, a forgotten transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.stores.postgres.stores import opened, raw, schema_of
from tidewheel.core.model import Completed, JobFilter, Settlement, State
from tidewheel.errors import StoreUnavailable
from tidewheel.stores.postgres import PostgresStore, database, enqueue
from tidewheel.testing.conformance.helpers import claim_from, claim_one, enqueue_one, get_job, job

LOCK_SECONDS = 0.15
"""What ten seconds are in real life."""


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """One that waits for locks as long as in real life."""
    async with opened(postgres_url) as [store]:
        yield store


@pytest.fixture
async def impatient(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresStore]:
    """One whose statements and functions wait for locks only a moment."""
    monkeypatch.setattr(enqueue, "RETRY_SECONDS", 0.1)
    monkeypatch.setattr(database, "LOCK_SECONDS", LOCK_SECONDS)
    async with opened(postgres_url) as [store], raw(postgres_url) as connection:
        await _set_lock_timeout(connection, postgres_url, f"{LOCK_SECONDS}s")
        try:
            yield store
        finally:
            await _set_lock_timeout(connection, postgres_url, "10s")


async def _set_lock_timeout(connection: Any, url: str, patience: str) -> None:
    for (function,) in await connection.fetch(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = $1::regnamespace"
        " AND 'lock_timeout' = ANY (SELECT split_part(c, '=', 1) FROM unnest(proconfig) AS c)",
        schema_of(url),
    ):
        await connection.execute(f"ALTER FUNCTION {function} SET lock_timeout = '{patience}'")


@asynccontextmanager
async def locked(url: str, table: str = "jobs") -> AsyncIterator[None]:
    async with raw(url) as connection, connection.transaction():
        await connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


async def waited_for(url: str, table: str = "jobs") -> None:
    """Return when somebody waits for a lock of the table."""
    async with raw(url) as connection:
        while not await connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE relation = $1::regclass AND NOT granted", table
        ):
            await asyncio.sleep(0.01)


async def test_verbs_give_up_on_a_locked_table_and_lose_nothing(
    impatient: PostgresStore, postgres_url: str
) -> None:
    """They say that the store is unavailable, and the same calls work when the lock is gone."""
    store = impatient
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease
    settlement = Settlement(lease, Completed(b"1"), 0.01)
    new = job()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.enqueue([new]),
        lambda: claim_from(store),
        lambda: store.settle([settlement]),
        lambda: store.extend([lease], 60.0),
        lambda: store.cancel([job_id]),
    ]
    async with locked(postgres_url):
        async with asyncio.timeout(PATIENCE):
            answers = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * len(calls)
    assert "lock timeout" in str(answers[0])
    assert await store.settle([settlement]) == [True]
    [answer] = await store.enqueue([new])
    assert not answer.duplicate
    assert (await get_job(store, job_id)).state is State.COMPLETED
    assert not (await get_job(store, new.id)).cancel_requested
    assert (await store.count(JobFilter())).total == 2
    assert await store.check() == []


async def test_a_short_lock_is_only_waited_for(store: PostgresStore, postgres_url: str) -> None:
    """An ALTER TABLE that takes a moment is noticed by nobody."""
    async with locked(postgres_url):
        enqueueing = asyncio.create_task(store.enqueue([job()]))
        await waited_for(postgres_url)
        assert not enqueueing.done()
    [answer] = await enqueueing
    assert not answer.duplicate


async def test_a_lease_is_not_shortened_by_a_wait_for_a_lock(store: PostgresStore, postgres_url: str) -> None:
    """It lasts as long as was asked for from when it was granted, not from when it was asked for."""
    await enqueue_one(store)
    async with locked(postgres_url):
        claiming = asyncio.create_task(claim_from(store, lease_seconds=2.0))
        await waited_for(postgres_url)
        released = await store.now()
    [claimed] = (await claiming).jobs
    record = await get_job(store, claimed.lease.job_id)
    assert record.leased_until is not None
    assert record.leased_until >= released + 2_000_000


async def test_reading_gives_up_on_a_locked_table(impatient: PostgresStore, postgres_url: str) -> None:
    """A page of jobs does not wait longer than any other verb."""
    async with locked(postgres_url):
        for call in (
            lambda: impatient.list_jobs(JobFilter(), limit=10),
            lambda: impatient.stats(window_seconds=60.0),
            lambda: impatient.get(job().id),
        ):
            with pytest.raises(StoreUnavailable):
                await call()


async def test_a_locked_row_delays_nobody_elses_job(store: PostgresStore, postgres_url: str) -> None:
    """An operator's open transaction on one job, and workers go past it."""
    first = await enqueue_one(store)
    second = await enqueue_one(store)
    async with raw(postgres_url) as connection, connection.transaction():
        await connection.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", first)
        assert (await claim_one(store)).lease.job_id == second
        assert (await claim_from(store)).jobs == ()
    assert (await claim_one(store)).lease.job_id == first
