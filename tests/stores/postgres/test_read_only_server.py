"""A server that takes no writes: read-only, or without a place to put them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.servers import PostgresServer
from tests.stores.postgres.stores import opened, own_database, raw
from tidewheel.core.model import Completed, JobFilter, Settlement, State
from tidewheel.errors import StoreUnavailable
from tidewheel.stores.postgres import enqueue
from tidewheel.testing.conformance.helpers import claim_from, claim_one, enqueue_one, get_job, job


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueue, "RETRY_SECONDS", 0.05)


@pytest.fixture
async def database(postgres: PostgresServer) -> AsyncIterator[str]:
    """The name of a database of the test's own, whose settings it may change."""
    async with own_database(postgres) as name:
        yield name


async def test_a_read_only_database_refuses_writes_and_can_be_read(
    postgres: PostgresServer, database: str
) -> None:
    """As after a failover: unavailable for now, nothing half-written, and reading goes on."""
    async with opened(postgres.url(database)) as [store], raw(postgres.url(database)) as connection:
        job_id = await enqueue_one(store)
        lease = (await claim_one(store)).lease
        await enqueue_one(store)
        settlement = Settlement(lease, Completed(b"1"), 0.01)
        await connection.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
        async with opened(postgres.url(database), migrated=False) as [late]:
            calls: list[Any] = [
                lambda: late.enqueue([job(key="k", payload=b"1" * 2000)]),
                lambda: claim_from(late),
                lambda: late.settle([settlement]),
                lambda: late.extend([lease], 60.0),
                lambda: late.cancel([job_id]),
                late.prune,
            ]
            for call in calls:
                with pytest.raises(StoreUnavailable, match="read-only transaction"):
                    await call()
            assert (await get_job(late, job_id)).state is State.RUNNING
            assert (await late.count(JobFilter())).total == 2
            assert await late.check() == []
        await connection.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
        async with opened(postgres.url(database)) as [again]:
            assert await again.settle([settlement]) == [True]
            assert await again.check() == []


async def test_a_full_disk_refuses_writes_and_loses_nothing(postgres: PostgresServer, database: str) -> None:
    """No room for one more page: the batch is not there at all, and is written when there is room."""
    async with opened(postgres.url(database)) as [store], raw(postgres.url(database)) as connection:
        before = await enqueue_one(store)
        # What a full disk makes the server say, raised where it would be: when a page is added to a table.
        await connection.execute(
            "CREATE FUNCTION tidewheel.no_room() RETURNS trigger LANGUAGE plpgsql AS $$"
            " BEGIN RAISE disk_full USING MESSAGE = 'could not extend file: No space left on device'; END $$;"
            "CREATE TRIGGER full_disk BEFORE INSERT ON tidewheel.bodies"
            " FOR EACH STATEMENT EXECUTE FUNCTION tidewheel.no_room()"
        )
        jobs = [job(key="k"), job(payload=b"1" * 5000), job()]
        with pytest.raises(StoreUnavailable, match="No space left"):
            await store.enqueue(jobs)
        assert (await store.count(JobFilter())).total == 1
        assert await store.check() == []
        await connection.execute("DROP TRIGGER full_disk ON tidewheel.bodies")
        answers = await store.enqueue(jobs)
        assert not any(answer.duplicate for answer in answers)
        assert (await claim_one(store)).lease.job_id == before
        assert await store.check() == []
