"""A handler's own transaction: its statements and the end of its job are one (Q18)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tidewheel.core.conditions import NEVER
from tidewheel.core.ids import new_id
from tidewheel.core.model import Completed, JobFilter, Lease, Progress, Report, Settlement, State
from tidewheel.errors import KeyInUse, LeaseLost, TransactionTimeout, WrongState
from tidewheel.stores.protocol import HandlerTransaction, Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    LEASE_SECONDS,
    claim_jobs,
    claim_one,
    enqueue_one,
    get_job,
    job,
    settle_one,
)


async def _open(
    store: Store,
    lease: Lease,
    *,
    seconds: float = 10.0,
    on_timeout: Callable[[], None] = lambda: None,
) -> HandlerTransaction | None:
    """A transaction for this lease; None on a store without a database, which has to say so."""
    options: dict[str, Any] = {
        "lease_seconds": LEASE_SECONDS,
        "seconds": seconds,
        "tenant": "root",
        "on_timeout": on_timeout,
    }
    if store.describe()["store"] != "memory":
        return await store.begin_transaction(lease, **options)
    with pytest.raises(WrongState, match="needs a database"):
        await store.begin_transaction(lease, **options)
    return None


class _ProgramTable:
    """A table of the program's, beside our own; several stores may share one database."""

    def __init__(self) -> None:
        self.table = f"effects_{new_id().hex}"
        self.make = f"CREATE TABLE IF NOT EXISTS {self.table} (name text PRIMARY KEY)"

    async def write(self, transaction: HandlerTransaction, name: str) -> None:
        await transaction.execute(self.make, ())
        insert = f"INSERT INTO {self.table} (name) VALUES ('{name}')"  # noqa: S608 - a test's own words
        assert await transaction.execute(insert, ()) == 1

    async def names(self, store: Store) -> list[str]:
        """What is there, seen by a job of its own, which takes the table away."""
        await enqueue_one(store, "looking")
        lease = (await claim_one(store, "looking")).lease
        transaction = await _open(store, lease)
        assert transaction is not None
        await transaction.execute(self.make, ())
        rows = await transaction.fetch(f"SELECT name FROM {self.table} ORDER BY name", ())  # noqa: S608
        await transaction.execute(f"DROP TABLE {self.table}", ())
        assert await transaction.complete(Settlement(lease, Completed()), ())
        return [row["name"] for row in rows]


async def test_a_completion_and_the_statements_of_its_transaction_come_together(store: Store) -> None:
    """Nothing is seen before the end, and everything after it: the result, the progress, the effects."""
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease
    if (transaction := await _open(store, lease)) is None:
        return
    effects = _ProgramTable()
    await effects.write(transaction, "done")
    assert (await get_job(store, job_id)).state is State.RUNNING
    reports = [Report(lease, Progress(90, "nearly")), Report(lease, checkpoint=b'{"at": 3}')]
    assert await transaction.complete(Settlement(lease, Completed(b'"well"'), 0.5), reports)
    record = await get_job(store, job_id)
    assert (record.state, record.result, record.checkpoint) == (State.COMPLETED, b'"well"', b'{"at": 3}')
    assert await effects.names(store) == ["done"]
    assert await store.check() == []


async def test_what_is_rolled_back_has_not_happened(store: Store) -> None:
    """The job is still held, and can be settled in any way."""
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease
    if (transaction := await _open(store, lease)) is None:
        return
    effects = _ProgramTable()
    await effects.write(transaction, "undone")
    await transaction.enqueue([job("inside")])
    await transaction.roll_back()
    await transaction.roll_back()  # harmless
    assert await effects.names(store) == []
    assert (await store.count(JobFilter(topic="inside"))).total == 0
    assert await settle_one(store, lease, Completed(b"1"))
    assert (await get_job(store, job_id)).state is State.COMPLETED
    assert await store.check() == []


async def test_jobs_enqueued_inside_exist_once_it_is_committed(store: Store) -> None:
    """Nobody can claim them before, and a key taken inside holds from then on."""
    await enqueue_one(store)
    lease = (await claim_one(store)).lease
    if (transaction := await _open(store, lease)) is None:
        return
    first, again = job("inside", key="only"), job("inside", key="only")
    (answer,) = await transaction.enqueue([first])
    (duplicate,) = await transaction.enqueue([again])
    assert (answer.job_id, duplicate.job_id, duplicate.duplicate) == (first.id, first.id, True)
    seen = await transaction.get(first.id)
    assert seen is not None
    assert seen.state is State.PENDING
    assert await store.get(first.id) is None
    assert await transaction.complete(Settlement(lease, Completed()), ())
    assert [held.lease.job_id for held in await claim_jobs(store, "inside")] == [first.id]
    (late,) = await store.enqueue([job("inside", key="only")])
    assert late.duplicate
    assert await store.check() == []


async def test_a_refused_enqueue_leaves_the_rest_of_the_transaction_as_it_was(store: Store) -> None:
    """An id that is taken is refused by itself, and so is a key that a hidden job holds."""
    taken = await enqueue_one(store, "elsewhere")
    await enqueue_one(store, "inside", key="hidden", user_id="ben")
    await enqueue_one(store)
    lease = (await claim_one(store)).lease
    if (transaction := await _open(store, lease)) is None:
        return
    effects = _ProgramTable()
    await effects.write(transaction, "kept")
    with pytest.raises(Exception, match=r"taken|UNIQUE|duplicate"):
        await transaction.enqueue([_with_id(taken)])
    with pytest.raises(KeyInUse):
        await transaction.enqueue([job("inside", key="hidden", row_filter=NEVER)])
    assert await transaction.complete(Settlement(lease, Completed()), ())
    assert await effects.names(store) == ["kept"]
    assert await store.check() == []


def _with_id(job_id: UUID) -> Any:
    from msgspec.structs import replace

    return replace(job("inside"), id=job_id)


async def test_no_transaction_is_begun_under_a_lease_that_has_ended(store: Store, clock: FrozenClock) -> None:
    """Neither by time, nor for a fence that is not the job's."""
    await enqueue_one(store)
    lease = (await claim_one(store)).lease
    if store.describe()["store"] == "memory":
        return
    with pytest.raises(LeaseLost):
        await _open(store, Lease(lease.job_id, lease.fence + 1))
    with pytest.raises(LeaseLost):
        await _open(store, Lease(new_id(), lease.fence))
    clock.advance(LEASE_SECONDS)
    with pytest.raises(LeaseLost):
        await _open(store, lease)


async def test_a_statement_that_fails_raises_what_the_database_says(store: Store) -> None:
    """In the driver's own words: it is the program's statement. The job can still be given back."""
    await enqueue_one(store)
    lease = (await claim_one(store)).lease
    if (transaction := await _open(store, lease)) is None:
        return
    with pytest.raises(Exception, match="nowhere") as raised:
        await transaction.execute("UPDATE nowhere SET name = 1", ())
    assert type(raised.value).__module__.split(".")[0] in {"sqlite3", "asyncpg"}
    await transaction.roll_back()
    assert await settle_one(store, lease, Completed())


async def test_a_transaction_that_is_open_too_long_is_rolled_back_and_says_so(store: Store) -> None:
    """Whatever its handler does, others must not wait for its locks."""
    await enqueue_one(store)
    lease = (await claim_one(store)).lease
    late = asyncio.Event()
    transaction = await _open(store, lease, seconds=0.3, on_timeout=late.set)
    if transaction is None:
        return
    effects = _ProgramTable()
    await effects.write(transaction, "too late")
    await asyncio.wait_for(late.wait(), 60)
    with pytest.raises(TransactionTimeout, match="transaction_seconds"):
        await transaction.execute(effects.make, ())
    with pytest.raises(TransactionTimeout):
        await transaction.complete(Settlement(lease, Completed()), ())
    await transaction.roll_back()  # harmless
    assert await effects.names(store) == []
    assert await settle_one(store, lease, Completed()), "the lease itself has not suffered"


async def test_after_its_end_a_transaction_is_of_no_use(store: Store) -> None:
    """Nothing that a handler left running can write through it."""
    await enqueue_one(store)
    lease = (await claim_one(store)).lease
    if (transaction := await _open(store, lease)) is None:
        return
    assert (await transaction.fetch("SELECT 1", ()))[0][0] == 1
    assert await transaction.complete(Settlement(lease, Completed()), ())
    with pytest.raises(WrongState, match="ended"):
        await transaction.execute("SELECT 1", ())
    with pytest.raises(WrongState):
        _ = transaction.connection
    assert not await settle_one(store, lease, Completed())
