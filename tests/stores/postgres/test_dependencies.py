"""Jobs that run after others on PostgreSQL: many at once, locks, packs, and what one transaction takes."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from tests.patience import PATIENCE
from tests.servers import PostgresServer
from tests.stores.postgres.server_log import Complaints
from tests.stores.postgres.stores import opened, raw, waited_for
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    ActionResult,
    Completed,
    DerivedState,
    Failed,
    JobFilter,
    NewJob,
    Settlement,
    State,
)
from tidewheel.errors import ParentNotFound
from tidewheel.stores.bounds import MAX_RELEASED_DEPENDENTS
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import (
    BOOM,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    job,
    settle_one,
)

SECONDS = 1.0


@pytest.fixture
async def no_deadlock(postgres: PostgresServer) -> AsyncIterator[None]:
    """The server never had to end one of two that waited for each other."""
    complaints = await Complaints.of(postgres)
    yield
    assert [one for one in complaints.heard() if "deadlock" in one] == []


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    async with opened(*[postgres_url] * 4) as stores:
        yield stores


async def rows(store: PostgresStore, statement: str) -> list[Any]:
    return await store._database.fetch(statement)


async def at_once(*verbs: Callable[[], Awaitable[Any]]) -> None:
    finish = time.monotonic() + SECONDS

    async def repeat(verb: Callable[[], Awaitable[Any]]) -> None:
        while time.monotonic() < finish:
            await verb()

    async with asyncio.TaskGroup() as group:
        for verb in verbs:
            group.create_task(repeat(verb))


async def nobody_waits_in_vain(store: PostgresStore) -> None:
    """After all is told, whoever waits waits for a job that has not ended; the store's own check says so."""
    async with asyncio.timeout(PATIENCE):
        while await rows(store, "SELECT FROM {schema}.ended_parents LIMIT 1"):
            await store.rescue()
    assert await store.check() == []


@pytest.mark.usefixtures("no_deadlock")
async def test_everything_at_once_to_parents_and_children_does_not_deadlock(
    stores: list[PostgresStore],
) -> None:
    """Enqueues, ends, cancels, requeues and deletes of the same families, named in any order."""
    chance = random.Random(7)
    family: list[UUID] = await enqueue_many(stores[0], 60, max_attempts=None)

    async def grow(store: PostgresStore) -> None:
        parents = tuple(chance.sample(family[-40:], 6))
        new = [job(after=parents, after_any=chance.random() < 0.7) for _ in range(3)]
        with contextlib.suppress(ParentNotFound):  # somebody has just deleted one
            await store.enqueue(new)
            family.extend(one.id for one in new)

    async def delete(store: PostgresStore) -> None:
        if len(family) < 60:  # others were faster
            await grow(store)
            return
        gone = chance.sample(family[-60:], 2)
        await store.delete(gone)
        family[:] = [one for one in family if one not in gone]

    async def work(store: PostgresStore) -> None:
        held = await claim_jobs(store, limit=10)
        outcomes = [Failed(BOOM) if chance.random() < 0.2 else Completed() for _ in held]
        await store.settle(
            [Settlement(one.lease, outcome, 0.001) for one, outcome in zip(held, outcomes, strict=True)]
        )

    async def extend(store: PostgresStore) -> None:
        held = await claim_jobs(store, limit=5)
        await store.extend([one.lease for one in held], 60.0)
        await store.settle([Settlement(one.lease, Completed(), 0.001) for one in held[::-1]])

    await at_once(
        lambda: grow(stores[0]),
        lambda: grow(stores[1]),
        lambda: work(stores[2]),
        lambda: work(stores[3]),
        lambda: extend(stores[0]),
        lambda: stores[1].cancel(chance.sample(family[-60:], 10)),
        lambda: stores[2].requeue(chance.sample(family[-60:], 10)),
        lambda: delete(stores[0]),
        stores[3].rescue,
    )
    assert len(family) > 20
    await nobody_waits_in_vain(stores[0])


async def test_two_parents_that_end_at_once_let_their_child_go(stores: list[PostgresStore]) -> None:
    """Fan-in from two machines, again and again: the last to end is never overlooked."""
    for _ in range(20):
        first, second = await enqueue_many(stores[0], 2)
        child = await enqueue_one(stores[0], "children", after=(first, second))
        leases = [one.lease for one in await claim_jobs(stores[0])]
        await asyncio.gather(
            *(settle_one(store, lease, Completed()) for store, lease in zip(stores, leases, strict=False))
        )
        async with asyncio.timeout(PATIENCE):
            while not (got := await claim_jobs(stores[2], "children")):
                await asyncio.sleep(0.001)
        assert [one.lease.job_id for one in got] == [child]
        await settle_one(stores[2], got[0].lease, Completed())


async def test_a_child_that_is_locked_is_not_waited_for_by_who_ends_its_parent(
    stores: list[PostgresStore],
) -> None:
    """Its worker goes on; the child is let go by the next rescue after the lock is gone."""
    parent = await enqueue_one(stores[0])
    child = await enqueue_one(stores[0], "children", after=(parent,))
    lease = (await claim_one(stores[0])).lease
    schema = stores[1]._database.schema
    async with stores[1]._database.connection() as holder, holder.transaction():
        await holder.execute(f"SELECT FROM {schema}.jobs WHERE id = $1 FOR UPDATE", child)
        assert await asyncio.wait_for(settle_one(stores[0], lease, Completed()), PATIENCE)
        assert (await get_job(stores[2], child)).blocked == 1
    async with asyncio.timeout(PATIENCE):
        while (await get_job(stores[2], child)).blocked:
            await stores[2].rescue()


async def test_who_brings_a_child_back_locks_it_and_its_parents_in_the_order_of_ids(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """As whoever deletes both does; otherwise each would have what the other wants."""
    early, late = sorted((new_id(), new_id()))
    await stores[0].enqueue([NewJob(id=late, topic="mail")])
    await stores[0].enqueue([NewJob(id=early, topic="children", after=(late,))])
    await stores[0].cancel([early])
    async with raw(postgres_url) as operator, operator.transaction():
        await operator.execute("SELECT FROM finished_jobs WHERE id = $1 FOR UPDATE", early)
        requeueing = asyncio.create_task(stores[1].requeue([early]))
        await waited_for(operator)
        await operator.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE NOWAIT", late)
    assert await requeueing == [ActionResult.DONE]
    assert (await get_job(stores[0], early)).blocked == 1


async def test_who_enqueues_a_child_locks_its_parents_in_the_order_of_ids_ended_or_not(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Somebody who brings back the first may want the second next."""
    early, late = sorted(await enqueue_many(stores[0], 2))
    await stores[0].cancel([early])
    async with raw(postgres_url) as operator, operator.transaction():
        await operator.execute("SELECT FROM finished_jobs WHERE id = $1 FOR UPDATE", early)
        enqueueing = asyncio.create_task(
            enqueue_one(stores[1], "children", after=(late, early), after_any=True)
        )
        await waited_for(operator)
        await operator.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE NOWAIT", late)
    assert (await get_job(stores[0], await enqueueing)).blocked == 1


async def test_who_kicks_a_parent_and_its_child_takes_the_note_of_the_parent_first(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Whoever tells the child how its parent ended has the note, and wants the child."""
    parent = await enqueue_one(stores[0], max_attempts=1)
    child = await enqueue_one(stores[0], "children", after=(parent,), after_any=True, delay=60.0)
    assert await settle_one(stores[0], (await claim_one(stores[0])).lease, Failed(BOOM))
    async with raw(postgres_url) as teller:
        await teller.execute(
            "INSERT INTO ended_parents (parent, tenant, state) VALUES ($1, 'root', 4)", parent
        )
    async with raw(postgres_url) as teller, teller.transaction():
        await teller.execute("SELECT FROM ended_parents WHERE parent = $1 FOR UPDATE", parent)
        kicking = asyncio.create_task(stores[1].kick_jobs([child, parent]))
        await waited_for(teller)
        await teller.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE NOWAIT", child)
    assert await kicking == [ActionResult.DONE] * 2
    await nobody_waits_in_vain(stores[0])


async def test_who_waits_for_a_child_holds_no_other_parent_s_children(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """What was let go of is committed, whoever has the children of the next one locked."""
    parents = sorted(await enqueue_many(stores[0], 2))
    free, locked = [await enqueue_one(stores[0], "children", after=(one,)) for one in parents]
    held = await claim_jobs(stores[0])
    async with raw(postgres_url) as one, raw(postgres_url) as other, other.transaction():
        await other.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", locked)
        async with one.transaction():
            await one.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", free)
            await stores[0].settle([Settlement(each.lease, Completed(), 0.001) for each in held])
            await waited_for(one)  # it is looked after, and waits for this one
        async with asyncio.timeout(PATIENCE):
            while (await get_job(stores[2], free)).blocked:
                await asyncio.sleep(0.01)
        assert (await get_job(stores[2], locked)).blocked == 1
    async with asyncio.timeout(PATIENCE):
        while (await get_job(stores[2], locked)).blocked:
            await stores[2].rescue()


async def test_a_child_that_has_ended_and_is_being_removed_is_not_waited_for(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Who ends its parent may hold what the other wants next."""
    parent = await enqueue_one(stores[0])
    child = await enqueue_one(stores[0], "children", after=(parent,))
    await stores[0].cancel([child])
    lease = (await claim_one(stores[0])).lease
    async with raw(postgres_url) as operator, operator.transaction():
        await operator.execute("DELETE FROM dependencies WHERE child = $1", child)
        assert await asyncio.wait_for(settle_one(stores[1], lease, Completed()), PATIENCE)
    await nobody_waits_in_vain(stores[0])


async def test_a_packed_parent_is_unpacked_and_others_stay_packed(stores: list[PostgresStore]) -> None:
    """And a job that others run after is not packed when it is claimed."""
    stores[0]._claimer.min_leased_batch = 1
    parents = await enqueue_many(stores[0], 5)
    leases = {one.lease.job_id: one.lease for one in await claim_jobs(stores[0])}
    assert len(await rows(stores[0], "SELECT FROM {schema}.batched_jobs")) == 5
    child = await enqueue_one(stores[0], "children", after=(parents[2],))
    assert len(await rows(stores[0], "SELECT FROM {schema}.batched_jobs")) == 4
    await stores[0].settle([Settlement(lease, Completed(), 0.001) for lease in leases.values()])
    assert [one.lease.job_id for one in await claim_jobs(stores[0], "children")] == [child]
    awaited = await enqueue_one(stores[0])
    await enqueue_one(stores[0], "children", after=(awaited,))
    await claim_one(stores[0])
    assert await rows(stores[0], "SELECT FROM {schema}.batched_jobs WHERE state = 2 AND topic = 'mail'") == []


async def test_a_parent_that_is_just_being_completed_is_waited_for_and_found(
    stores: list[PostgresStore],
) -> None:
    """Whoever enqueues a child at that moment finds how it ended."""
    parent = await enqueue_one(stores[0])
    lease = (await claim_one(stores[0])).lease
    settling = await stores[0].begin_transaction(
        lease, lease_seconds=60.0, seconds=10.0, tenant="root", on_timeout=lambda: None
    )
    await settling.execute(
        f"SELECT FROM {stores[0]._database.schema}.jobs WHERE id = $1 FOR UPDATE",
        [parent],
    )
    enqueueing = asyncio.create_task(enqueue_one(stores[1], "children", after=(parent,)))
    await asyncio.sleep(0.1)
    assert not enqueueing.done()
    assert await settling.complete(Settlement(lease, Completed(), 0.001), [])
    record = await get_job(stores[1], await enqueueing)
    assert (record.blocked, record.after[0].state) == (0, State.COMPLETED)


async def test_neighbours_of_a_call_that_names_a_missing_parent_are_written(
    stores: list[PostgresStore],
) -> None:
    """Calls that were joined into one write do not suffer for each other."""
    good = [job() for _ in range(5)]
    calls = [stores[0].enqueue([one]) for one in good]
    wrong = stores[0].enqueue([job(after=(new_id(),))])
    *answers, refused = await asyncio.gather(*calls, wrong, return_exceptions=True)
    assert isinstance(refused, ParentNotFound)
    assert [one[0].job_id for one in answers] == [one.id for one in good]  # type: ignore[index]


@pytest.mark.long
async def test_a_hundred_thousand_children(stores: list[PostgresStore]) -> None:
    """No transaction takes more than a thousand, and all are let go in seconds."""
    await try_fan_out(stores[0])


async def try_fan_out(store: PostgresStore, number: int = 100_000) -> None:
    parent = await enqueue_one(store)
    began = time.perf_counter()
    for _ in range(number // 10_000):
        await store.enqueue([NewJob(id=new_id(), topic="children", after=(parent,)) for _ in range(10_000)])
    enqueued = time.perf_counter()
    lease = (await claim_one(store)).lease
    assert await settle_one(store, lease, Completed())
    settled = time.perf_counter()
    while (await store.count(JobFilter(state=DerivedState.BLOCKED))).total:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(store.rescue(), 30)
    ended = time.perf_counter()
    print(
        f"{number:,} children: enqueued in {enqueued - began:.1f} s, the end of the parent took "
        f"{(settled - enqueued) * 1000:.0f} ms, all were ready {ended - enqueued:.1f} s after"
    )
    assert await store.check() == []
    assert (await store.stats(window_seconds=60.0)).pending == number
    assert MAX_RELEASED_DEPENDENTS == 1000
