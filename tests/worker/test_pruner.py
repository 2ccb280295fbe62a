"""Finished jobs are removed in the background, by one worker of all, and never at full speed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tidewheel.core.model import JobFilter, State
from tidewheel.stores.memory import MemoryStore
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import make_completed, make_failed
from tidewheel.worker import store_maintenance
from tidewheel.worker.store_maintenance import (
    LOCK_KIND,
    MAX_REST_SECONDS,
    PRUNE_LOCK_ID,
    PRUNE_LOCK_SECONDS,
    Pruner,
    rest_after,
)

BATCH = 2


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def store(clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryStore]:
    monkeypatch.setattr(store_maintenance, "MAX_BATCH", BATCH)
    store = MemoryStore(clock=clock)
    await store.open()
    yield store
    await store.close()


async def _left(store: MemoryStore) -> int:
    return (await store.count(JobFilter())).total


async def test_a_backlog_is_worked_off_to_its_end(store: MemoryStore, clock: FrozenClock) -> None:
    """In many batches, each counted by state; the turn is given back for the next time."""
    one = Pruner(store, clock)
    for _ in range(2):
        for _ in range(6):
            await make_completed(store, retention=0.0)
        await make_failed(store, retention_failed=0.0)
        assert await one.prune_backlog() == 7
        assert await _left(store) == 0
    assert one.pruned == {State.COMPLETED: 12, State.FAILED: 2}


async def test_what_is_not_overdue_takes_nobody_a_turn(store: MemoryStore, clock: FrozenClock) -> None:
    """A worker that finds nothing writes nothing."""
    await make_completed(store, retention=10.0)
    assert await Pruner(store, clock).prune_backlog() == 0
    assert await store.document(LOCK_KIND, PRUNE_LOCK_ID) is None


async def test_one_worker_at_a_time_works_off_a_backlog(store: MemoryStore, clock: FrozenClock) -> None:
    """Others leave it at one batch, until the one who has the turn ends or is not heard of any more."""
    for _ in range(10):
        await make_completed(store, retention=0.0)
    dead = Pruner(store, clock)
    assert await dead._turn.acquire()  # and is never heard of again
    other = Pruner(store, clock)
    assert await other.prune_backlog() == BATCH
    assert await other.prune_backlog() == BATCH
    clock.advance(PRUNE_LOCK_SECONDS)
    assert await other.prune_backlog() == 6
    assert await _left(store) == 0


async def test_who_was_stopped_for_longer_than_its_turn_leaves_it_to_another(
    store: MemoryStore, clock: FrozenClock
) -> None:
    """A laptop that slept, a process that was stopped: two do not go on together."""
    stopped, other = Pruner(store, clock), Pruner(store, clock)
    assert await stopped._turn.acquire()
    assert not await other._turn.acquire()
    clock.advance(PRUNE_LOCK_SECONDS / 2)
    assert await stopped._turn.renew()
    clock.advance(PRUNE_LOCK_SECONDS)
    assert await other._turn.acquire()
    assert not await stopped._turn.renew()
    await stopped._turn.release()
    assert not await stopped._turn.acquire(), "and it took nothing away from the other"


def test_a_pruner_rests_nine_times_as_long_as_it_works() -> None:
    """A tenth of the time is all it takes; but on a machine that is busy for good it goes on as well."""
    assert rest_after(0.01) == pytest.approx(0.09)
    assert rest_after(60.0) == MAX_REST_SECONDS
