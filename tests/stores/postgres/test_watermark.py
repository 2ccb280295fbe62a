"""Claims go on where the last one ended, and yet nothing that becomes ready behind them waits for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

from tests.patience import PATIENCE
from tests.stores.postgres.stores import opened, raw
from tidewheel.core.model import Claimed, Lane, Released
from tidewheel.stores.postgres import PostgresStore
from tidewheel.stores.postgres.claims import FULL_SCAN_SAMPLES, MIN_LEASED_BATCH
from tidewheel.stores.postgres.enqueue import enqueue_arguments
from tidewheel.stores.postgres.wakeups import ReadyHint
from tidewheel.stores.sql_files import SqlFile
from tidewheel.testing.conformance.helpers import (
    claim_from,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    job,
    settle_one,
)

LANE = Lane("mail", "")
ENQUEUE = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")["enqueue"]
BACKLOG = 3000


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    """One that drains a backlog, and another handle on the same jobs, which it hears nothing of."""
    async with opened(postgres_url, postgres_url) as stores:
        await stores[0].enqueue([job() for _ in range(BACKLOG)])
        await claim_jobs(stores[0], LANE, limit=2)
        yield stores


async def drain_until(store: PostgresStore, found: Callable[[Claimed], bool], *, limit: int = 2) -> None:
    """Full claims, one after the other, until one brings the job."""
    while True:
        jobs = await claim_jobs(store, LANE, limit=limit)
        if any(found(one) for one in jobs):  # alone, if its worker was lost
            return
        assert len(jobs) == limit, "the backlog was drained before the job was found"


async def test_claims_do_go_on_where_the_last_one_ended(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """What the other tests of this file are about: a claim does not look at what lies behind the last."""
    [first, *_] = await claim_jobs(stores[0], LANE, limit=2)
    async with raw(postgres_url) as connection:  # by hand, so that nobody is told
        await connection.execute(
            "UPDATE jobs SET state = 1, leased_until = NULL WHERE id = $1", first.lease.job_id
        )
    assert first.number not in [one.number for one in await claim_jobs(stores[0], LANE, limit=2)]


async def test_an_urgent_job_of_another_process_is_granted_soon(stores: list[PostgresStore]) -> None:
    """Without a hint it is passed over for a quarter of a second at most."""
    urgent = await enqueue_one(stores[1], priority=9)
    await drain_until(stores[0], lambda one: one.lease.job_id == urgent)


async def test_an_urgent_job_is_granted_next_after_a_hint(stores: list[PostgresStore]) -> None:
    """A store that listens hears of it and looks at everything again."""
    async with stores[0].wakeups(topics=["mail"]) as wakeups:
        urgent = await enqueue_one(stores[1], priority=9)
        assert await wakeups.wait(PATIENCE)
        [first, _] = await claim_jobs(stores[0], LANE, limit=2)
        assert first.lease.job_id == urgent


async def test_an_urgent_job_of_ones_own_is_granted_next(stores: list[PostgresStore]) -> None:
    """Nobody needs a hint about what it has written itself: enqueued, released or requeued."""
    urgent = await enqueue_one(stores[0], priority=9)
    [first, _] = await claim_jobs(stores[0], LANE, limit=2)
    assert first.lease.job_id == urgent
    assert await settle_one(stores[0], first.lease, Released())
    [again, _] = await claim_jobs(stores[0], LANE, limit=2)
    assert again.lease.job_id == urgent
    assert await settle_one(stores[0], again.lease, Released(60.0))
    await stores[0].cancel([urgent])
    await stores[0].requeue([urgent])
    [once_more, _] = await claim_jobs(stores[0], LANE, limit=2)
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
        await enqueue_many(stores[1], 1000)
        # Past all older ones, so that the mark is beyond the number of the one that is not yet visible.
        while (await claim_jobs(stores[0], LANE, limit=100))[-1].number < row["o_number"]:
            pass
        await transaction.commit()
    await drain_until(stores[0], lambda one: one.lease.job_id == late.id)


async def test_a_delayed_job_becomes_due_under_full_claims(stores: list[PostgresStore]) -> None:
    """Letting in what is due does not wait for the backlog to end."""
    delayed = await enqueue_one(stores[1], delay=0.1, priority=9)
    await drain_until(stores[0], lambda one: one.lease.job_id == delayed)


async def test_an_ended_lease_is_rescued_under_full_claims(stores: list[PostgresStore]) -> None:
    """A worker that died is noticed by one that is busy."""
    orphan = await enqueue_one(stores[1], priority=9)
    lost = await claim_one(stores[1], LANE, worker="dead", lease_seconds=0.1)
    assert lost.lease.job_id == orphan
    await drain_until(stores[0], lambda one: one.lease.job_id == orphan, limit=2)


async def test_an_expired_job_is_not_granted_long_after_its_time(stores: list[PostgresStore]) -> None:
    """Full claims do not keep jobs alive that were to be dropped when nobody had started them."""
    doomed = await enqueue_one(stores[1], expires_in=0.05)  # at the end of the backlog
    while (await stores[0].states([doomed]))[0] != "cancelled":
        assert len(await claim_jobs(stores[0], LANE, limit=2)) == 2, "the backlog was drained before"
        await asyncio.sleep(0.005)


@pytest.fixture
def dear_looks(stores: list[PostgresStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a snapshot had kept millions of dead rows in the way: nobody looks at everything any more."""
    for store in stores:
        monkeypatch.setattr(store._claimer, "_full_scan_at", float("inf"))


@pytest.mark.usefixtures("dear_looks")
async def test_an_urgent_job_needs_no_look_at_everything(stores: list[PostgresStore]) -> None:
    """Its priority has a mark of its own, and it is beyond that; without any hint, the next claim has it."""
    for priority in (9, 5, 9, -3, 20):
        urgent = await enqueue_one(stores[1], priority=priority)
        if priority < 0:
            continue  # behind the backlog, where it is found in its turn
        [first, _] = await claim_jobs(stores[0], LANE, limit=2)
        assert first.lease.job_id == urgent


@pytest.mark.usefixtures("dear_looks")
async def test_late_commits_need_no_look_at_everything(
    stores: list[PostgresStore], postgres_url: str
) -> None:
    """Looking back a little is enough for a transaction that was not open for long."""
    await test_a_job_of_a_transaction_that_commits_late_is_found(stores, postgres_url)


@pytest.mark.usefixtures("dear_looks")
async def test_a_hint_says_where_to_look(stores: list[PostgresStore]) -> None:
    """A job whose number is behind the mark is granted by the claim after the hint."""
    late = job()
    [answer] = await stores[1].enqueue([late])
    await enqueue_many(stores[0], 100)
    while (await claim_jobs(stores[0], LANE, limit=MIN_LEASED_BATCH - 1))[-1].number <= answer.number:
        pass
    async with raw(stores[0].url) as connection:  # as if it had been committed only now
        await connection.execute("UPDATE jobs SET state = 1, leased_until = NULL WHERE id = $1", late.id)
    stores[0]._handle_hint(ReadyHint("another", {"mail": answer.number}, finished=False))
    [first, *_] = await claim_jobs(stores[0], LANE, limit=2)
    assert first.lease.job_id == late.id


@pytest.mark.usefixtures("dear_looks")
async def test_a_claim_that_falls_short_says_when_to_ask_again(stores: list[PostgresStore]) -> None:
    """At once while it has not looked back, and then when everything may be looked at."""
    while await claim_jobs(stores[0], LANE, limit=1000):
        pass
    stores[0]._claimer._full_scan_at = time.monotonic() + 30
    answers = [await claim_from(stores[0], LANE) for _ in range(2)]
    assert not any(answer.jobs for answer in answers)
    assert answers[-1].next_due_in is not None
    assert 20 < answers[-1].next_due_in <= 30


async def test_looks_at_everything_are_rationed_when_they_take_long(stores: list[PostgresStore]) -> None:
    """Ten times as long as the cheapest of the last few took."""
    claimer = stores[0]._claimer
    claimer._schedule_full_scan(0.0)
    for _ in range(FULL_SCAN_SAMPLES - 1):
        claimer._schedule_full_scan(0.5)
    assert claimer._full_scan_allowed(), "all but one may have been held up"
    claimer._schedule_full_scan(0.2)
    assert not claimer._full_scan_allowed()
    assert claimer._full_scan_at - time.monotonic() == pytest.approx(2.0, abs=0.5)
    claimer._full_scan_at = 0.0
    claimer._schedule_full_scan(0.001)
    assert claimer._full_scan_allowed()


async def test_two_who_drain_the_same_lane_leave_nothing_behind(stores: list[PostgresStore]) -> None:
    """Jobs one of them passed over because the other had locked them are granted in the end."""
    granted: list[int] = []

    async def drain(store: PostgresStore) -> None:
        while jobs := await claim_jobs(store, LANE, limit=50):
            granted.extend(one.number for one in jobs)

    await asyncio.gather(drain(stores[0]), drain(stores[1]), drain(stores[0]), drain(stores[1]))
    assert len(granted) == len(set(granted)) == BACKLOG - 2
