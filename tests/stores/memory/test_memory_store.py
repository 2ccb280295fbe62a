"""What only the memory store promises: names, speed without quadratic corners, searches that give up."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import pytest

from tidewheel.core.conditions import Compare, Comparison, Field
from tidewheel.core.model import Completed, JobFilter, Settlement, State
from tidewheel.errors import ConfigurationError, NotOpen
from tidewheel.stores import create_store
from tidewheel.stores.memory import MemoryStore
from tidewheel.stores.memory.job_rows import JobHeap, new_job
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    claim_from,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_state,
    job,
)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


async def test_the_url_selects_the_memory_store() -> None:
    """``memory://`` needs no file and no server."""
    assert isinstance(create_store("memory://"), MemoryStore)


async def test_a_url_of_another_store_is_refused() -> None:
    """With the two forms that work."""
    with pytest.raises(ConfigurationError, match="memory://name"):
        MemoryStore("sqlite:///jobs.db")


async def test_an_unnamed_store_is_private_to_itself_and_its_siblings(store: MemoryStore) -> None:
    """Two tests in one process do not meet."""
    job_id = await enqueue_one(store)
    stranger = MemoryStore()
    await stranger.open()
    assert await get_state(stranger, job_id) is None
    sibling = store.sibling()
    await sibling.open()
    assert await get_state(sibling, job_id) is State.PENDING


async def test_stores_of_one_name_share_their_jobs() -> None:
    """For the parts of one process that cannot hand a store around."""
    name = f"memory://{uuid.uuid4().hex}"
    first, second = MemoryStore(name), MemoryStore(name)
    await first.open()
    await second.open()
    job_id = await enqueue_one(first)
    await first.close()
    assert await get_state(second, job_id) is State.PENDING
    third = MemoryStore(f"{name}-other")
    await third.open()
    assert await get_state(third, job_id) is None


async def test_a_store_that_is_not_open_says_so() -> None:
    """Before open and after close; opened again it still has its jobs."""
    store = MemoryStore()
    with pytest.raises(NotOpen, match="open"):
        await store.topics()
    await store.open()
    job_id = await enqueue_one(store)
    await store.close()
    await store.close()
    with pytest.raises(NotOpen):
        await store.get(job_id)
    await store.open()
    assert await get_state(store, job_id) is State.PENDING


async def test_draining_a_long_queue_takes_no_longer_per_job(store: MemoryStore) -> None:
    """Each claim looks at what it takes, not at what waits: 100 claims of 20,000 leave no heap to rescan."""
    for _ in range(2):
        await store.enqueue([job(task=f"task-{number % 5}", priority=number % 7) for number in range(10_000)])
    taken = 0
    while jobs := (await claim_from(store, limit=200)).jobs:
        taken += len(jobs)
        await store.settle([Settlement(claimed.lease, Completed()) for claimed in jobs])
    assert taken == 20_000
    assert await store.check() == []


async def test_a_heap_does_not_keep_what_left_it() -> None:
    """Jobs cancelled long before they are due must not pile up as forgotten entries."""
    heap = JobHeap()
    jobs = [new_job(job(), number, now=0) for number in range(10_000)]
    for one in jobs:
        heap.push(one, one.number)
    for one in jobs[10:]:
        heap.remove(one)
    assert len(heap) == 10
    assert len(heap._entries) < 200
    assert sorted(one.number for one in heap) == list(range(10))


async def test_a_renewed_lease_does_not_grow_the_store(store: MemoryStore) -> None:
    """An extension replaces the end of a lease, however many there are."""
    await enqueue_one(store)
    lease = (await claim_one(store)).lease
    for _ in range(1000):
        await store.extend([lease], 60)
    assert len(store._table.leases._entries) < 200


class TickingClock(FrozenClock):
    """A clock on which every look at ``monotonic`` takes a while."""

    ticks = 0.0

    def monotonic(self) -> float:
        self.ticks += 0.3
        return self.ticks


@pytest.mark.parametrize(
    "where",
    [JobFilter(text="needle"), JobFilter(condition=Compare(Field.USER_ID, Comparison.EQUAL, "needle"))],
    ids=["text", "condition"],
)
async def test_a_search_gives_up_after_its_time_and_can_be_continued(where: JobFilter) -> None:
    """A partial page says how far back it searched, and its cursor goes on from there."""
    store = MemoryStore(clock=TickingClock())
    await store.open()
    needle = await enqueue_one(store, payload=b'"needle"', user_id="needle")
    await enqueue_many(store, 3000)
    page = await store.list_jobs(where, limit=10)
    assert (page.items, page.partial) == ((), True)
    assert page.searched_back_to is not None
    assert not (await store.count(where)).exact
    pages = 1
    while page.cursor is not None:
        page = await store.list_jobs(where, limit=10, cursor=page.cursor)
        pages += 1
    assert [item.id for item in page.items] == [needle]
    assert pages > 2


async def test_how_far_a_search_came_tells_nothing_of_other_tenants() -> None:
    """It is stopped by the tenant's own jobs, and says when one of those was made, or says nothing."""
    clock = TickingClock()
    store = MemoryStore(clock=clock)
    await store.open()
    own = clock.now()
    await enqueue_many(store, 2000, tenant="mine")
    clock.advance(60)
    await enqueue_many(store, 3000, tenant="other")
    page = await store.list_jobs(JobFilter(text="needle", tenant="mine"), limit=10)
    assert (page.partial, page.searched_back_to) == (True, own)
    page = await store.list_jobs(JobFilter(text="needle", tenant="nobody"), limit=10)
    assert (page.partial, page.searched_back_to, page.cursor) == (False, None, None)
