"""Leases across a handler's transaction, in which nobody could write: they go on, nobody takes over early."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import Claimed, Completed, Report, RescueResult, Settlement
from tidewheel.stores.sqlite import SqliteStore
from tidewheel.stores.sqlite.handler_transaction import SqliteHandlerTransaction
from tidewheel.stores.sqlite.write_transaction import (
    LEASE_GRACE,
    MAX_LEASE_GRACE,
    MIN_PAUSE,
    lease_cutoff,
    record_lock_pause,
)
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import claim_one, enqueue_one

SECOND = seconds_to_microseconds(1)

Judge = Callable[[int], int]


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE tidewheel_sequences (name TEXT PRIMARY KEY, value INTEGER NOT NULL)")
    yield connection
    connection.close()


def test_without_a_gap_leases_are_judged_by_the_time_it_is(connection: sqlite3.Connection) -> None:
    """Short transactions are no gaps: they are part of every lease's reckoning."""
    assert lease_cutoff(connection, 100) == 100
    record_lock_pause(connection, 100, 100 + MIN_PAUSE - 1)
    assert lease_cutoff(connection, 100 + MIN_PAUSE) == 100 + MIN_PAUSE


def test_after_a_gap_leases_are_judged_by_its_beginning_for_a_moment(connection: sqlite3.Connection) -> None:
    """Long enough for every keeper to try again, not longer."""
    record_lock_pause(connection, 5 * SECOND, 8 * SECOND)
    assert lease_cutoff(connection, 8 * SECOND) == 5 * SECOND
    assert lease_cutoff(connection, 8 * SECOND + LEASE_GRACE) == 5 * SECOND
    later = 8 * SECOND + LEASE_GRACE + 1
    assert lease_cutoff(connection, later) == later


def test_gaps_that_follow_each_other_are_one(connection: sqlite3.Connection) -> None:
    """Nobody had time to extend a lease in between."""
    record_lock_pause(connection, 5 * SECOND, 8 * SECOND)
    record_lock_pause(connection, 9 * SECOND, 12 * SECOND)
    assert lease_cutoff(connection, 12 * SECOND) == 5 * SECOND


def test_many_short_gaps_do_not_keep_dead_workers_jobs_for_long(connection: sqlite3.Connection) -> None:
    """Between them the lock was free, and who lives had a turn."""
    for start in range(0, 200, 2):
        record_lock_pause(connection, start * SECOND, start * SECOND + SECOND)
    assert lease_cutoff(connection, 199 * SECOND) == 197 * SECOND - LEASE_GRACE


def test_a_gap_without_end_does_not_keep_them_for_ever(connection: sqlite3.Connection) -> None:
    """A lease that ended long ago has ended."""
    record_lock_pause(connection, 0, 200 * SECOND)
    assert lease_cutoff(connection, 200 * SECOND) == 200 * SECOND - MAX_LEASE_GRACE


def test_a_clock_that_was_set_back_knows_no_gap(connection: sqlite3.Connection) -> None:
    """What is judged is never the future."""
    record_lock_pause(connection, 50 * SECOND, 80 * SECOND)
    assert lease_cutoff(connection, 10 * SECOND) == 10 * SECOND


@asynccontextmanager
async def _opened(path: Path, clock: FrozenClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(f"sqlite:///{path}?synchronous=normal", clock=clock)
    await store.open()
    await store.migrate()
    try:
        yield store
    finally:
        await store.close()


async def _claimed(store: SqliteStore, topic: str = "mail") -> Claimed:
    await enqueue_one(store, topic)
    return await claim_one(store, topic, lease_seconds=5.0)


async def _lent(store: SqliteStore) -> tuple[SqliteHandlerTransaction, Claimed]:
    """A handler's transaction, which has the lock of the file."""
    held = await _claimed(store, "lent")
    transaction = await store.begin_transaction(
        held.lease, lease_seconds=300.0, seconds=60.0, tenant="root", on_timeout=lambda: None
    )
    return transaction, held


@contextmanager
def _locked_by_an_outsider(path: Path) -> Iterator[None]:
    outsider = sqlite3.connect(path, isolation_level=None)
    outsider.execute("PRAGMA wal_autocheckpoint = 0")
    outsider.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        outsider.execute("ROLLBACK")
        outsider.close()


@pytest.mark.parametrize("ending", ["committed", "rolled back"])
async def test_what_waited_behind_a_transaction_is_accepted(path: Path, ending: str) -> None:
    """Extensions, reports and settlements: nobody could have taken the jobs over meanwhile."""
    clock = FrozenClock()
    async with _opened(path, clock) as holder, _opened(path, clock) as lender:
        extended, reported, settled = [(await _claimed(holder)).lease for _ in range(3)]
        transaction, lent = await _lent(lender)
        clock.advance(30)
        waiting = asyncio.gather(
            holder.extend([extended], 5.0),
            holder.report([Report(reported, checkpoint=b"1")]),
            holder.settle([Settlement(settled, Completed())]),
        )
        if ending == "committed":
            assert await transaction.complete(Settlement(lent.lease, Completed()), ())
        else:
            await transaction.roll_back()
        assert list(await waiting) == [[True], [True], [True]]


async def test_nobody_takes_a_job_over_before_its_holder_had_a_chance(path: Path) -> None:
    """Another worker looks for orphans the moment the lock is free; the holder comes a bit later."""
    clock = FrozenClock()
    async with _opened(path, clock) as holder, _opened(path, clock) as other, _opened(path, clock) as lender:
        lease = (await _claimed(holder)).lease
        transaction, lent = await _lent(lender)
        clock.advance(30)
        assert await transaction.complete(Settlement(lent.lease, Completed()), ())
        assert await other.rescue() == RescueResult()
        clock.advance(1)
        assert await holder.extend([lease], 5.0) == [True]


async def test_what_is_really_orphaned_is_brought_back_a_moment_later(path: Path) -> None:
    """A gap delays a rescue by its length and two seconds."""
    clock = FrozenClock()
    async with _opened(path, clock) as store:
        lease = (await _claimed(store)).lease
        transaction, lent = await _lent(store)
        clock.advance(30)
        assert await transaction.complete(Settlement(lent.lease, Completed()), ())
        assert await store.rescue() == RescueResult()
        clock.advance(LEASE_GRACE / SECOND + 0.1)
        assert (await store.rescue()).returned == 1
        assert await store.extend([lease], 5.0) == [False], "its holder comes too late"


async def test_a_lease_that_ended_before_the_gap_has_ended(path: Path) -> None:
    """Waiting brings nothing back that was over before."""
    clock = FrozenClock()
    async with _opened(path, clock) as store:
        lease = (await _claimed(store)).lease
        clock.advance(5)
        transaction, lent = await _lent(store)
        clock.advance(30)
        assert await transaction.complete(Settlement(lent.lease, Completed()), ())
        assert await store.extend([lease], 5.0) == [False]


async def test_a_lock_of_somebody_else_is_no_gap(path: Path) -> None:
    """Who stays away from the store for longer than a lease has lost it, whatever the reason (promise 5)."""
    clock = FrozenClock()
    async with _opened(path, clock) as store:
        await _claimed(store)
        with _locked_by_an_outsider(path):
            rescuing = asyncio.create_task(store.rescue())
            await asyncio.sleep(0.05)
            clock.advance(30)
        assert (await rescuing).returned == 1
