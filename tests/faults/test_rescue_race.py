"""A lease that is extended at the very moment it ends: either is possible, both at once is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.stores.postgres.stores import opened, raw
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import claim_jobs, claim_one, enqueue_one


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as [store]:
        yield store


async def test_a_lease_whose_extension_is_under_way_is_not_taken(
    store: PostgresStore, postgres_url: str
) -> None:
    """The rescue looks again at what it has locked, so an extension that was committed meanwhile counts."""
    await enqueue_one(store)
    held = await claim_one(store, lease_seconds=0.3)
    async with raw(postgres_url) as extension:
        transaction = extension.transaction()
        await transaction.start()
        [row] = await extension.fetch(
            "UPDATE jobs SET leased_until = leased_until + 60000000 WHERE id = $1 RETURNING leased_until",
            held.lease.job_id,
        )
        while await store.now() < row["leased_until"] - 60_000_000:
            await asyncio.sleep(0.02)
        rescue = asyncio.create_task(store.rescue())
        await asyncio.wait((rescue,), timeout=0.5)
        await transaction.commit()
        rescued = await rescue
    assert rescued.total == 0
    assert await store.extend([held.lease], 60.0) == [True]
    assert await claim_jobs(store) == []
