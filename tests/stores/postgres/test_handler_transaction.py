"""A handler's transaction when the server goes silent: it ends, and what became of it is found out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores.postgres.proxy import Proxy
from tests.stores.postgres.stores import opened
from tidewheel.core.model import Claimed, Completed, Settlement, State
from tidewheel.errors import StoreUnavailable
from tidewheel.stores.postgres import PostgresStore, handler_transaction
from tidewheel.stores.postgres.handler_transaction import PostgresHandlerTransaction
from tidewheel.testing.conformance.helpers import claim_one, enqueue_one, get_job, settle_one

PATIENCE = 0.4


@pytest.fixture
async def proxy(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    monkeypatch.setattr(handler_transaction, "ANSWER_SECONDS", PATIENCE)
    async with opened(postgres_url), Proxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    async with opened(proxy.url, migrated=False) as [store]:
        yield store


async def _begun(store: PostgresStore) -> tuple[PostgresHandlerTransaction, Claimed]:
    await enqueue_one(store)
    held = await claim_one(store)
    transaction = await store.begin_transaction(
        held.lease, lease_seconds=60.0, seconds=20.0, tenant="root", on_timeout=lambda: None
    )
    assert await transaction.execute("SELECT 1", ()) == 1
    return transaction, held


async def test_a_commit_whose_answer_never_comes_counts(store: PostgresStore, proxy: Proxy) -> None:
    """It was committed; the worker is told so, instead of waiting for ever or running the job again."""
    transaction, held = await _begun(store)
    proxy.lose_reply("COMMIT", cut=False)
    assert await transaction.complete(Settlement(held.lease, Completed(b"7")), ())
    record = await get_job(store, held.lease.job_id)
    assert (record.state, record.result) == (State.COMPLETED, b"7")


async def test_a_commit_that_never_arrived_leaves_nothing(store: PostgresStore, proxy: Proxy) -> None:
    """The job is still held, and its error says what became of the transaction."""
    transaction, held = await _begun(store)
    proxy.lose_request("COMMIT")
    with pytest.raises(StoreUnavailable, match="rolled back"):
        await transaction.complete(Settlement(held.lease, Completed(b"7")), ())
    assert (await get_job(store, held.lease.job_id)).state is State.RUNNING
    assert await settle_one(store, held.lease, Completed(b"8"))


async def test_a_server_that_goes_silent_before_the_end_holds_nobody(
    store: PostgresStore, proxy: Proxy
) -> None:
    """Neither a completion nor a rollback waits for it for long."""
    transaction, held = await _begun(store)
    proxy.blackhole()
    with pytest.raises(StoreUnavailable):
        await transaction.complete(Settlement(held.lease, Completed()), ())
    await transaction.roll_back()  # it is over
    proxy.restore()
    assert (await get_job(store, held.lease.job_id)).state is State.RUNNING
