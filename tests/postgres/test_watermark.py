"""Claims go on where the last one ended, and yet nothing that becomes ready behind them waits for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from tests.postgres.stores import opened, raw
from windlass.model import Claimed, Lane
from windlass.outcome import Released
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.claiming import RESCAN_SECONDS
from windlass.stores.postgres.enqueueing import enqueue_arguments
from windlass.stores.queries import Queries
from windlass.testing.conformance.building import claim, claim_one, end, job, put, put_many

LANE = Lane("mail", "")
ENQUEUE = Queries("windlass.stores.postgres.sql", "verbs.sql")["enqueue"]
BACKLOG = 3000
SLACK = 0.75  # for a busy machine


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    """One that drains a backlog, and another handle on the same jobs, which it hears nothing of."""
    async with opened(postgres_url, postgres_url) as stores:
        await stores[0].enqueue([job() for _ in range(BACKLOG)])
        await claim(stores[0], LANE, limit=2)
        yield stores


async def drain_until(store: PostgresStore, found: Callable[[Claimed], bool], *, limit: int = 2) -> float:
    """Full claims, one after the other, until one brings the job; how long that took."""
    began = time.monotonic()
    while True:
        jobs = await claim(store, LANE, limit=limit)
        assert len(jobs) == limit, "the backlog was drained before the job was found"
        if any(found(one) for one in jobs):
            return time.monotonic() - began


async def test_claims_do_go_on_where_the_last_one_ended(stores: list[PostgresStore]) -> None:
    """What the other tests of this file are about: a full claim leaves a mark for the next."""
    assert stores[0]._claimer._marks
    first, second = await claim(stores[0], LANE, limit=2), await claim(stores[0], LANE, limit=2)
    assert [one.number for one in [*first, *second]] == sorted(one.number for one in [*first, *second])


async def test_an_urgent_job_of_another_process_is_granted_soon(stores: list[PostgresStore]) -> None:
    """Without a hint it is passed over for a quarter of a second at most."""
    urgent = await put(stores[1], priority=9)
    assert await drain_until(stores[0], lambda one: one.lease.job_id == urgent) < RESCAN_SECONDS + SLACK


async def test_an_urgent_job_is_granted_next_after_a_hint(stores: list[PostgresStore]) -> None:
    """A store that listens hears of it and looks at everything again."""
    async with stores[0].wakeups(topics=["mail"]) as wakeups:
        urgent = await put(stores[1], priority=9)
        assert await wakeups.wait(5.0)
        [first, _] = await claim(stores[0], LANE, limit=2)
        assert first.lease.job_id == urgent


async def test_an_urgent_job_of_ones_own_is_granted_next(stores: list[PostgresStore]) -> None:
    """Nobody needs a hint about what it has written itself: enqueued, released or requeued."""
    urgent = await put(stores[0], priority=9)
    [first, _] = await claim(stores[0], LANE, limit=2)
    assert first.lease.job_id == urgent
    assert await end(stores[0], first.lease, Released())
    [again, _] = await claim(stores[0], LANE, limit=2)
    assert again.lease.job_id == urgent
    assert await end(stores[0], again.lease, Released(60.0))
    await stores[0].cancel([urgent])
    await stores[0].requeue([urgent])
    [once_more, _] = await claim(stores[0], LANE, limit=2)
    assert once_more.lease.job_id == urgent


async def test_a_job_of_a_transaction_that_commits_late_is_found(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Its number is smaller than those granted meanwhile, so that going on would never come by it."""
    late = job()
    async with raw(postgres_url) as connection:
        transaction = connection.transaction()
        await transaction.start()
        statement = stores[0]._database.qualify(ENQUEUE)
        [row] = await connection.fetch(statement, *enqueue_arguments([late], None, again=False))
        await put_many(stores[1], 1000)
        # Past all older ones, so that the mark is beyond the number of the one that is not yet visible.
        while (await claim(stores[0], LANE, limit=100))[-1].number < row["o_number"]:
            pass
        await transaction.commit()
    assert await drain_until(stores[0], lambda one: one.lease.job_id == late.id) < RESCAN_SECONDS + SLACK


async def test_a_delayed_job_becomes_due_under_full_claims(stores: list[PostgresStore]) -> None:
    """Letting in what is due does not wait for the backlog to end."""
    delayed = await put(stores[1], delay=0.1, priority=9)
    assert (
        await drain_until(stores[0], lambda one: one.lease.job_id == delayed) < 0.1 + RESCAN_SECONDS + SLACK
    )


async def test_an_ended_lease_is_rescued_under_full_claims(stores: list[PostgresStore]) -> None:
    """A worker that died is noticed by one that is busy."""
    orphan = await put(stores[1], priority=9)
    lost = await claim_one(stores[1], LANE, worker="dead", lease_seconds=0.1)
    assert lost.lease.job_id == orphan
    took = await drain_until(stores[0], lambda one: one.lease.job_id == orphan, limit=2)
    assert took < 0.1 + 2 * RESCAN_SECONDS + SLACK


async def test_an_expired_job_is_not_granted_long_after_its_time(stores: list[PostgresStore]) -> None:
    """Full claims do not keep jobs alive that were to be dropped when nobody had started them."""
    doomed = await put(stores[1], expires_in=0.05)  # at the end of the backlog
    began = time.monotonic()
    while time.monotonic() < began + 0.05 + RESCAN_SECONDS + 0.1:
        await claim(stores[0], LANE, limit=2)
        await asyncio.sleep(0.005)
    assert (await stores[0].states([doomed]))[0] == "cancelled"


async def test_two_who_drain_the_same_lane_leave_nothing_behind(stores: list[PostgresStore]) -> None:
    """Jobs one of them passed over because the other had locked them are granted in the end."""
    granted: list[int] = []

    async def drain(store: PostgresStore) -> None:
        while jobs := await claim(store, LANE, limit=50):
            granted.extend(one.number for one in jobs)

    await asyncio.gather(drain(stores[0]), drain(stores[1]), drain(stores[0]), drain(stores[1]))
    assert len(granted) == len(set(granted)) == BACKLOG - 2
