"""Leases across a time in which nobody could write: they go on, and nobody takes over too soon."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from windlass.clock import seconds_to_microseconds
from windlass.errors import StoreUnavailable
from windlass.model import Claimed, Report, Rescued, Settlement
from windlass.outcome import Completed
from windlass.stores.sqlite import SqliteStore
from windlass.stores.sqlite.gaps import AFTERWARDS, LEAST, LONGEST, Gaps
from windlass.testing.clock import FrozenClock
from windlass.testing.conformance.building import claim_one, put

SECOND = seconds_to_microseconds(1)


def test_without_a_wait_leases_are_judged_by_the_time_it_is() -> None:
    """Short waits are no gaps: they are part of every lease's reckoning."""
    gaps = Gaps()
    assert gaps.judge(100, 100) == 100
    assert gaps.judge(100, 100 + LEAST - 1) == 100 + LEAST - 1


def test_after_a_gap_leases_are_judged_by_its_beginning_for_a_moment() -> None:
    """Long enough for every keeper to try again, not longer."""
    gaps = Gaps()
    assert gaps.judge(5 * SECOND, 8 * SECOND) == 5 * SECOND
    assert gaps.judge(8 * SECOND + AFTERWARDS, 8 * SECOND + AFTERWARDS) == 5 * SECOND
    later = 8 * SECOND + AFTERWARDS + 1
    assert gaps.judge(later, later) == later


def test_gaps_that_follow_each_other_are_one() -> None:
    """Nobody had time to extend a lease in between."""
    gaps = Gaps()
    gaps.judge(5 * SECOND, 8 * SECOND)
    assert gaps.judge(9 * SECOND, 12 * SECOND) == 5 * SECOND


def test_many_short_gaps_do_not_keep_dead_workers_jobs_for_long() -> None:
    """Between them the lock was free: who lives had a turn within twice the longest of them."""
    gaps = Gaps()
    for start in range(0, 200, 2):
        judged = gaps.judge(start * SECOND, start * SECOND + SECOND)
    assert judged == 199 * SECOND - 2 * SECOND - AFTERWARDS


def test_a_gap_without_end_does_not_keep_them_for_ever() -> None:
    """A lease that ended long ago has ended."""
    assert Gaps().judge(0, 200 * SECOND) == 200 * SECOND - LONGEST


def test_a_clock_that_was_set_back_makes_no_lease_end_later_than_now() -> None:
    """What is judged is never the future."""
    gaps = Gaps()
    gaps.judge(50 * SECOND, 80 * SECOND)
    assert gaps.judge(10 * SECOND, 10 * SECOND) == 10 * SECOND


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@asynccontextmanager
async def _opened(path: Path, clock: FrozenClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(f"sqlite:///{path}?synchronous=normal", clock=clock)
    await store.open()
    await store.migrate()
    try:
        yield store
    finally:
        await store.close()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The write lock in somebody else's hands."""
    outsider = sqlite3.connect(path, isolation_level=None)
    outsider.execute("PRAGMA wal_autocheckpoint = 0")
    outsider.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        outsider.execute("ROLLBACK")
        outsider.close()


async def _waits_for_the_lock(store: SqliteStore) -> None:
    """Until its writer has taken up what was asked, and so has looked at the time."""
    assert store._open is not None
    while not store._open[0]._calls.empty():
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)


async def _claimed(store: SqliteStore) -> Claimed:
    await put(store)
    return await claim_one(store, lease_seconds=5.0)


async def test_an_extension_that_could_not_be_written_in_time_is_granted(path: Path) -> None:
    """Nobody could have taken the job over meanwhile."""
    clock = FrozenClock()
    async with _opened(path, clock) as store:
        lease = (await _claimed(store)).lease
        with _locked(path):
            extending = asyncio.create_task(store.extend([lease], 5.0))
            await _waits_for_the_lock(store)
            clock.advance(30)
        assert await extending == [True]
        clock.advance(4.9)
        assert await store.report([Report(lease, checkpoint=b"1")]) == [True]


async def test_a_wait_that_was_given_up_in_between_is_one_gap(path: Path) -> None:
    """The lock stayed out of reach; that a call did not wait for all of it changes nothing."""
    clock = FrozenClock()
    store = SqliteStore(f"sqlite:///{path}?synchronous=normal&busy_timeout=0.1", clock=clock)
    await store.open()
    await store.migrate()
    lease = (await _claimed(store)).lease
    with _locked(path):
        with pytest.raises(StoreUnavailable):
            await store.extend([lease], 5.0)
        clock.advance(30)
    assert await store.extend([lease], 5.0) == [True]
    await store.close()


async def test_a_settlement_that_waited_is_accepted(path: Path) -> None:
    """The work is done, and the job was nobody else's."""
    clock = FrozenClock()
    async with _opened(path, clock) as store:
        lease = (await _claimed(store)).lease
        with _locked(path):
            settling = asyncio.create_task(store.settle([Settlement(lease, Completed())]))
            await _waits_for_the_lock(store)
            clock.advance(30)
        assert await settling == [True]


async def test_whoever_waited_takes_nothing_over_before_others_had_their_chance(path: Path) -> None:
    """A worker elsewhere looks for orphans the moment the lock is free; the holder comes a bit later."""
    clock = FrozenClock()
    async with _opened(path, clock) as holder, _opened(path, clock) as other:
        lease = (await _claimed(holder)).lease
        with _locked(path):
            rescuing = asyncio.create_task(other.rescue())
            extending = asyncio.create_task(holder.extend([lease], 5.0))
            await _waits_for_the_lock(other)
            await _waits_for_the_lock(holder)
            clock.advance(30)
        assert await rescuing == Rescued()
        assert await extending == [True]


async def test_what_is_really_orphaned_is_brought_back_a_moment_later(path: Path) -> None:
    """A gap delays a rescue by its length and two seconds."""
    clock = FrozenClock()
    async with _opened(path, clock) as store:
        lease = (await _claimed(store)).lease
        with _locked(path):
            rescuing = asyncio.create_task(store.rescue())
            await _waits_for_the_lock(store)
            clock.advance(30)
        assert await rescuing == Rescued()
        clock.advance(AFTERWARDS / SECOND + 0.1)
        assert (await store.rescue()).returned == 1
        assert await store.extend([lease], 5.0) == [False], "its holder comes too late"


async def test_a_lease_that_ended_before_the_gap_has_ended(path: Path) -> None:
    """Waiting brings nothing back that was over before."""
    clock = FrozenClock()
    async with _opened(path, clock) as store:
        lease = (await _claimed(store)).lease
        clock.advance(5)
        with _locked(path):
            extending = asyncio.create_task(store.extend([lease], 5.0))
            await _waits_for_the_lock(store)
            clock.advance(30)
        assert await extending == [False]


async def test_a_lent_transaction_is_a_gap_for_those_who_wait_behind_it(path: Path) -> None:
    """In the same process they wait in line, and not for the lock."""
    clock = FrozenClock()
    async with _opened(path, clock) as store:
        lent_to, waiting = (await _claimed(store)).lease, (await _claimed(store)).lease
        transaction = await store.begin(
            lent_to, lease_seconds=60.0, seconds=20.0, tenant="root", on_timeout=lambda: None
        )
        extending = asyncio.create_task(store.extend([waiting], 5.0))
        clock.advance(30)
        await transaction.roll_back()
        assert await extending == [True]
        assert await store.rescue() == Rescued(), "also its own lease was kept over it"
