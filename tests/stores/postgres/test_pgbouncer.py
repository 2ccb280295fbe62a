"""Behind PgBouncer in transaction mode: every transaction may meet another server connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

import asyncpg
import pytest

from tests.patience import PATIENCE
from tests.servers import PgBouncer, PostgresServer
from tests.servers.shared import shared_server
from tests.stores.postgres.server_log import Complaints
from tests.stores.postgres.stores import opened, raw, schema_of
from tidewheel.core.model import (
    ActionResult,
    Completed,
    Failed,
    JobFilter,
    NewDocument,
    Progress,
    Released,
    Report,
    Retried,
    Settlement,
    State,
)
from tidewheel.errors import StoreUnavailable
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import (
    BOOM,
    claim_from,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    job,
    settle_one,
)

SESSION = ("enable_seqscan", "enable_hashjoin", "plan_cache_mode", "search_path", "lock_timeout", "jit")


@pytest.fixture(scope="module")
def narrow() -> Iterator[PgBouncer]:
    """A pooler with two connections to the server, however many want one."""
    with PgBouncer(shared_server(), pool_size=2) as pooler:
        yield pooler


@pytest.fixture
def url(narrow: PgBouncer, postgres_url: str) -> str:
    return narrow.url(schema=schema_of(postgres_url))


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[PostgresStore]]:
    async with opened(*[url] * 6) as stores:
        yield stores


async def test_the_pooler_is_noticed(stores: list[PostgresStore]) -> None:
    """People can see that there is one, and that hints therefore take a poll."""
    assert {store.describe()["connection"] for store in stores} == {"pooled"}


async def test_a_jobs_whole_life_works(stores: list[PostgresStore]) -> None:
    """Each verb once, each time over whatever connection there is."""
    [store, *_] = stores
    large = b'"%s"' % (b"x" * 5000)
    job_id = await enqueue_one(store, payload=large, key="k", priority=5)
    [duplicate] = await store.enqueue([job(key="k")])
    assert duplicate.job_id == job_id
    claimed = await claim_one(store)
    assert claimed.payload == large
    assert await store.mark_started([claimed.lease]) == [True]
    assert await store.extend([claimed.lease], 60.0) == [True]
    assert await store.report([Report(claimed.lease, Progress(5.0, "halfway"), b"[1]")]) == [True]
    assert await store.cancel([job_id]) == [ActionResult.REQUESTED]
    assert await store.cancel_requests([claimed.lease]) == [claimed.lease]
    assert await settle_one(store, claimed.lease, Retried(0.0, BOOM))
    assert (await get_job(store, job_id)).state is State.CANCELLED
    assert await store.requeue([job_id]) == [ActionResult.DONE]
    assert await settle_one(store, (await claim_one(store)).lease, Released())
    assert await settle_one(store, (await claim_one(store)).lease, Failed(BOOM))
    assert len((await store.list_jobs(JobFilter(state=State.FAILED), limit=10)).items) == 1
    assert (await store.list_jobs(JobFilter(text="xxxx"), limit=10)).items[0].id == job_id
    assert (await store.stats(window_seconds=60.0)).failed == 1
    await store.pause("mail", 2**60)
    assert [topic.topic for topic in await store.topics()] == ["mail"]
    await store.pause("mail", None)
    for written in (True, False):
        answers = await store.enqueue_with_document(
            NewDocument("turn", "t", b"", expected_version=0), [job("later")]
        )
        assert (answers is not None) is written
    await store.rescue()
    await store.prune()
    assert await store.delete([job_id]) == [ActionResult.DONE]
    assert await store.check() == []


async def test_statements_of_different_callers_are_never_mixed_up(stores: list[PostgresStore]) -> None:
    """Requeue and delete have equal parameters; over two connections neither does the other's work."""
    keep = await enqueue_many(stores[0], 20)
    await stores[0].cancel(keep)

    async def requeue_and_cancel(store: PostgresStore) -> None:
        for _ in range(15):
            ids = random.sample(keep, 5)
            await store.requeue(ids)
            await store.cancel(ids)

    async def come_and_go(store: PostgresStore) -> None:
        for _ in range(15):
            ids = await enqueue_many(store, 5)
            assert await store.delete(ids) == [ActionResult.DONE] * 5

    await asyncio.gather(*map(requeue_and_cancel, stores[:3]), *map(come_and_go, stores[3:]))
    assert (await stores[0].count(JobFilter())).total == 20
    assert None not in await stores[0].states(keep)
    assert await stores[0].check() == []


async def test_many_stores_share_two_connections(
    stores: list[PostgresStore], postgres: PostgresServer
) -> None:
    """Six workers, thirty connections, two of the server's: every job is completed by one of them."""
    complaints = await Complaints.of(postgres)
    ids = set(await enqueue_many(stores[0], 600))
    completed: list[UUID] = []

    async def work(store: PostgresStore) -> None:
        while jobs := await claim_jobs(store, limit=20):
            await store.extend([one.lease for one in jobs], 60.0)
            settlements = [Settlement(one.lease, Completed(b"1"), 0.001) for one in jobs]
            assert await store.settle(settlements) == [True] * len(jobs)
            completed.extend(one.lease.job_id for one in jobs)

    await asyncio.gather(*map(work, stores), *map(work, stores))
    assert len(completed) == 600
    assert set(completed) == ids
    assert await stores[0].check() == []
    assert complaints.heard() == []


async def test_no_setting_is_left_on_a_connection(stores: list[PostgresStore], narrow: PgBouncer) -> None:
    """Another program of the same pool finds its sessions as the server makes them."""
    async with raw(narrow.server.url()) as direct:
        fresh = [await direct.fetchval(f"SHOW {name}") for name in SESSION]
    await enqueue_many(stores[0], 30, payload=b"1" * 2000)

    async def use(store: PostgresStore) -> None:
        claimed = await claim_one(store)
        await store.report([Report(claimed.lease, Progress(5.0), b"[1]")])
        await settle_one(store, claimed.lease, Failed(BOOM))
        await store.get(claimed.lease.job_id)
        await store.list_jobs(JobFilter(text="x"), limit=5)
        await store.stats(window_seconds=60.0)
        await store.migrate()

    async def stand_in_the_way() -> None:
        async with raw(narrow.url(), statement_cache_size=0) as client:
            while True:
                await client.execute(f"SELECT pg_sleep({random.choice((0, 0.001, 0.002))})")

    # All at once, between others, so that statements of one caller meet different connections.
    others = [asyncio.create_task(stand_in_the_way()) for _ in range(3)]
    await asyncio.gather(*map(use, stores), *map(use, stores), *map(use, stores))
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    async with (
        raw(narrow.url(), statement_cache_size=0) as one,
        raw(narrow.url(), statement_cache_size=0) as two,
        one.transaction(),  # both at a time, so that each has a connection of its own
        two.transaction(),
    ):
        for client in (one, two):
            assert [await client.fetchval(f"SHOW {name}") for name in SESSION] == fresh
            assert await client.fetchval("SELECT count(*) FROM pg_listening_channels()") == 0
            assert await client.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_temporary_tables_of_another_client_are_not_mistaken_for_ours(
    stores: list[PostgresStore], narrow: PgBouncer
) -> None:
    """A program of the same pool that leaves a table called ``jobs`` behind in its session."""
    clients = [await asyncpg.connect(narrow.url(), statement_cache_size=0) for _ in range(2)]
    try:
        # Both server connections at once, so that each gets the tables.
        transactions = [client.transaction() for client in clients]
        for transaction in transactions:
            await transaction.start()
        for client in clients:
            for name in ("jobs", "job_keys", "finished_jobs", "counter_deltas", "topics"):
                await client.execute(f"CREATE TEMPORARY TABLE {name} (id uuid)")
        for transaction in transactions:
            await transaction.commit()
        for store in stores:
            await enqueue_one(store)
            await claim_one(store)
        assert await stores[0].check() == []
    finally:
        for client in clients:
            await client.execute("DISCARD TEMP")
        for client in clients:
            await client.close()


async def test_a_pooler_that_restarts_is_an_outage(postgres: PostgresServer, postgres_url: str) -> None:
    """Calls fail while it is away and work when it is back; nobody has to reconnect by hand."""
    with PgBouncer(postgres, pool_size=2) as pooler:
        async with opened(pooler.url(schema=schema_of(postgres_url))) as [store]:
            job_id = await enqueue_one(store)
            lease = (await claim_one(store)).lease
            pooler.stop()
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await store.extend([lease], 60.0)
            pooler.start()
            assert await store.extend([lease], 60.0) == [True]
            assert await settle_one(store, lease, Completed(b"1"))
            assert (await get_job(store, job_id)).state is State.COMPLETED


async def test_a_cancelled_verb_frees_the_servers_connection(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Callers that give up do not leave the pool of two occupied by what they had asked for."""
    async with raw(postgres_url) as connection, connection.transaction():
        await connection.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
        for store in stores:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(enqueue_one(store), 0.05)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(claim_from(store), 0.05)
    async with asyncio.timeout(PATIENCE):
        for store in stores:
            await store.now()
            await enqueue_one(store)
