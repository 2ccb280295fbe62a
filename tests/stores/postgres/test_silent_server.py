"""A server that has vanished without a word: connections look alive, and nothing ever answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.patience import PATIENCE
from tests.stores.postgres.proxy import Proxy
from tests.stores.postgres.stores import opened
from tidewheel.core.model import Completed, JobFilter, Settlement, State
from tidewheel.errors import StoreUnavailable
from tidewheel.stores.postgres import PostgresStore, connection_pool, database, enqueue
from tidewheel.testing.conformance.helpers import claim_from, claim_one, enqueue_one, get_job, job, settle_one

ANSWER_SECONDS = 0.4
"""What half a minute is in real life."""


@pytest.fixture
async def proxy(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    for name in ("CONNECT_SECONDS", "STATEMENT_SECONDS"):
        monkeypatch.setattr(database, name, ANSWER_SECONDS)
    monkeypatch.setattr(connection_pool, "ACQUIRE_TIMEOUT_SECONDS", ANSWER_SECONDS)
    monkeypatch.setattr(enqueue, "RETRY_SECONDS", ANSWER_SECONDS)
    async with opened(postgres_url), Proxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    async with opened(proxy.url, migrated=False) as [store]:
        yield store


async def test_every_verb_gives_up_in_time_and_works_again_afterwards(
    store: PostgresStore, proxy: Proxy
) -> None:
    """Nobody waits for ever; what could not be done says so, and is done when it is asked again."""
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease
    proxy.blackhole()
    new = job()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.enqueue([new]),
        lambda: claim_from(store),
        lambda: store.mark_started([lease]),
        lambda: store.extend([lease], 60.0),
        lambda: store.settle([Settlement(lease, Completed(b"1"), 0.01)]),
        lambda: store.get(job_id),
        lambda: store.list_jobs(JobFilter(), limit=10),
        lambda: store.stats(window_seconds=60.0),
        store.rescue,
        store.check,
    ]
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * len(calls)
    proxy.restore()
    assert await store.settle([Settlement(lease, Completed(b"1"), 0.01)]) == [True]
    [answer] = await store.enqueue([job()])
    assert (await get_job(store, job_id)).state is State.COMPLETED
    assert (await get_job(store, answer.job_id)).state is State.PENDING


async def test_an_extension_can_be_given_up_at_any_time(store: PostgresStore, proxy: Proxy) -> None:
    """The keeper waits no longer than it can afford, however silent the server is."""
    await enqueue_one(store)
    lease = (await claim_one(store)).lease
    proxy.blackhole()
    for _ in range(12):  # more often than there are connections
        extension = asyncio.create_task(store.extend([lease], 60.0))
        await asyncio.wait((extension,), timeout=0.02)
        extension.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait((extension,))
        assert extension.cancelled()
    proxy.restore()
    assert await store.extend([lease], 60.0) == [True]


async def test_a_store_closes_though_nobody_answers(store: PostgresStore, proxy: Proxy) -> None:
    """Ending a program takes a bounded time, also with verbs under way and hints not yet sent."""
    await enqueue_one(store)
    async with store.wakeups(topics=["mail"]):
        proxy.blackhole()
        under_way = [asyncio.create_task(store.enqueue([job()])), asyncio.create_task(store.now())]
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await store.close()
        answers = await asyncio.gather(*under_way, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreUnavailable}


async def test_a_slow_network_is_only_slow(postgres_url: str) -> None:
    """Everything a few milliseconds late: verbs take longer and say the same."""
    async with opened(postgres_url), Proxy(postgres_url) as proxy, opened(proxy.url) as [store]:
        proxy.delay = 0.005
        job_id = await enqueue_one(store, key="k")
        assert await settle_one(store, (await claim_one(store)).lease, Completed(b"1"))
        assert (await get_job(store, job_id)).state is State.COMPLETED


async def test_opening_a_store_gives_up_in_time(proxy: Proxy) -> None:
    """A program that starts while the server is unreachable is told so."""
    proxy.blackhole()
    store = PostgresStore(proxy.url)
    with pytest.raises(StoreUnavailable, match="did not answer in time"):
        async with asyncio.timeout(PATIENCE):
            await store.open()
    await store.close()
