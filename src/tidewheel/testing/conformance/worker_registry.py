"""The list of workers: who is there, who has left, who has vanished (Q42)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tidewheel.core.model import Lane, State, WorkerRecord
from tidewheel.stores.bounds import MAX_WORKERS, WORKERS_KEPT_SECONDS
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import make_completed

STARTED_AT = 1_700_000_000_000_000


def _worker(name: str = "ada", **fields: Any) -> WorkerRecord:
    given: dict[str, Any] = {"host": "box", "pid": 4711, "version": "0.1.0", "started_at": STARTED_AT}
    return WorkerRecord(name=name, **(given | fields))


async def _names(store: Store) -> list[str]:
    return [worker.name for worker in await store.workers()]


async def test_nobody_is_listed_before_the_first_beat(store: Store) -> None:
    """Claiming alone makes no worker."""
    assert await store.workers() == []


async def test_a_beat_lists_a_worker_with_all_it_tells(store: Store, clock: FrozenClock) -> None:
    """Every field comes back as it was given; only when it was seen is the store's word."""
    told = _worker(
        "höst:1 <b>",
        pid=2**31 - 1,
        lanes=(Lane("mail", "send"), Lane("mail", ""), Lane("any", None), Lane("q", 'a "quoted" täsk')),
        more_lanes=7,
        concurrency=10,
        running=3,
        claimed=40,
        stuck=2,
        loop_lag_seconds=0.1 + 0.2,
        ran=2**40,
        completed=5,
        failed=6,
        lost=1,
        seen_at=1,
    )
    await store.heartbeat(told)
    assert await store.workers() == [replace(told, seen_at=clock.now())]


async def test_the_next_beat_renews_everything(store: Store, clock: FrozenClock) -> None:
    """Also what hardly ever changes: a worker may be restarted elsewhere under its name."""
    await store.heartbeat(_worker(running=3, lanes=(Lane("a"),)))
    clock.advance(5)
    again = _worker(host="other", pid=1, version="0.2.0", started_at=STARTED_AT + 1, lanes=(Lane("b"),))
    await store.heartbeat(again)
    assert await store.workers() == [replace(again, seen_at=clock.now())]


async def test_workers_are_listed_by_name(store: Store, clock: FrozenClock) -> None:
    """Sorted the way computers sort, whoever was seen last."""
    for name in ("b", "ä", "B", "a", "a-10", "a-2"):
        clock.advance(1)
        await store.heartbeat(_worker(name))
    assert await _names(store) == ["B", "a", "a-10", "a-2", "b", "ä"]


async def test_a_worker_that_leaves_is_gone(store: Store) -> None:
    """At once; the others stay, and leaving twice is no error."""
    await store.heartbeat(_worker("ada"))
    await store.heartbeat(_worker("bob"))
    await store.deregister_worker("ada", STARTED_AT)
    await store.deregister_worker("ada", STARTED_AT)
    await store.deregister_worker("never there", STARTED_AT)
    assert await _names(store) == ["bob"]


async def test_leaving_does_not_take_a_successor_along(store: Store) -> None:
    """A worker restarted under the same name may beat before the old one has said goodbye."""
    await store.heartbeat(_worker(started_at=STARTED_AT + 1))
    await store.deregister_worker("ada", STARTED_AT)
    assert await _names(store) == ["ada"]


async def test_a_worker_that_vanished_stays_listed_for_a_day(store: Store, clock: FrozenClock) -> None:
    """Somebody should be able to see that it vanished; then pruning forgets it."""
    await store.heartbeat(_worker("gone"))
    seen_at = clock.now()
    clock.advance(WORKERS_KEPT_SECONDS - 1)
    await store.heartbeat(_worker("here"))
    assert await store.prune() == {}
    gone, here = await store.workers()
    assert (gone.name, gone.seen_at, here.seen_at) == ("gone", seen_at, clock.now())
    clock.advance(1)
    assert await _names(store) == ["gone", "here"], "it is pruning that forgets"
    assert await store.prune() == {}
    assert await _names(store) == ["here"]


async def test_vanished_workers_are_forgotten_while_many_jobs_are_pruned(
    store: Store, clock: FrozenClock
) -> None:
    """Also by a call that finds as many jobs as it may remove."""
    await store.heartbeat(_worker("gone"))
    await make_completed(store, retention=1.0)
    clock.advance(WORKERS_KEPT_SECONDS)
    assert await store.prune(1) == {State.COMPLETED: 1}
    assert await _names(store) == []


async def test_of_too_many_workers_those_seen_last_are_listed(store: Store, clock: FrozenClock) -> None:
    """A list has an end; the dead fall off it first."""
    await store.heartbeat(_worker("0 the oldest"))
    clock.advance(1)
    await asyncio.gather(*(store.heartbeat(_worker(f"w{number:04}")) for number in range(MAX_WORKERS)))
    assert await _names(store) == [f"w{number:04}" for number in range(MAX_WORKERS)]
    await store.heartbeat(_worker("zoe"))
    listed = await _names(store)
    assert (len(listed), listed[0], listed[-1]) == (MAX_WORKERS, "w0000", f"w{MAX_WORKERS - 1:04}")


async def test_the_list_is_shared_by_siblings(store: Store) -> None:
    """The keeper beats on a connection of its own."""
    other = store.sibling()
    await other.open()
    try:
        await other.heartbeat(_worker())
        assert await _names(store) == ["ada"]
    finally:
        await other.close()


async def test_workers_are_no_problem_of_the_store(store: Store) -> None:
    """A listed worker that holds no jobs, or is dead, breaks no invariant."""
    await store.heartbeat(_worker())
    assert await store.check() == []
