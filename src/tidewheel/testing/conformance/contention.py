"""Several claimers at once: every job to exactly one of them, best first, none left behind."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from uuid import UUID

from tidewheel.model import Claimed, JobFilter, Settlement, State
from tidewheel.outcome import Completed
from tidewheel.stores.protocol import Store
from tidewheel.testing.conformance.building import ask, job

CLAIMERS = 4
JOBS = 400


async def _together(store: Store, work: Callable[[Store, int], Awaitable[None]]) -> None:
    """Run ``work`` once per claimer, each on a thread, a loop and a sibling of its own, all at once."""
    start = threading.Barrier(CLAIMERS)

    async def one(number: int) -> None:
        sibling = store.sibling()
        await sibling.open()
        try:
            await asyncio.to_thread(start.wait)
            await work(sibling, number)
        finally:
            await sibling.close()

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, one(number)) for number in range(CLAIMERS)))


async def test_concurrent_claimers_never_get_the_same_job(store: Store) -> None:
    """Every job is granted once, under a fence of its own."""
    new = [job(priority=index % 3) for index in range(JOBS)]
    await store.enqueue(new)
    taken: list[list[Claimed]] = [[] for _ in range(CLAIMERS)]

    async def drain(sibling: Store, number: int) -> None:
        while jobs := (await ask(sibling, worker=f"worker-{number}", limit=7)).jobs:
            taken[number] += jobs

    await _together(store, drain)
    everything = [claimed for one in taken for claimed in one]
    assert Counter(claimed.lease.job_id for claimed in everything) == Counter(one.id for one in new)
    assert len({claimed.lease.fence for claimed in everything}) == JOBS
    for one in taken:  # between claimers there is no order: their claims may overlap
        assert one == sorted(one, key=lambda claimed: (-claimed.priority, claimed.number))
    assert await store.check() == []


async def test_concurrent_claimers_all_get_their_share(store: Store) -> None:
    """With enough to do nobody goes away with empty hands."""
    await store.enqueue([job() for _ in range(CLAIMERS * 10)])
    shares = [0] * CLAIMERS

    async def take_ten(sibling: Store, number: int) -> None:
        for _ in range(10):
            shares[number] += len((await ask(sibling, limit=1)).jobs)

    await _together(store, take_ten)
    assert shares == [10] * CLAIMERS


async def test_concurrent_settlements_of_one_lease_succeed_once(store: Store) -> None:
    """Exactly one of them is told True."""
    await store.enqueue([job() for _ in range(20)])
    leases = [claimed.lease for claimed in (await ask(store)).jobs]
    wins: list[list[bool]] = [[] for _ in range(CLAIMERS)]

    async def settle_all(sibling: Store, number: int) -> None:
        for lease in leases:
            wins[number] += await sibling.settle([Settlement(lease, Completed(str(number).encode()))])

    await _together(store, settle_all)
    assert [sum(answers) for answers in zip(*wins, strict=True)] == [1] * len(leases)


async def test_concurrent_enqueues_of_one_key_write_one_job(store: Store) -> None:
    """The losers are told who won."""
    holders: list[list[UUID]] = [[] for _ in range(CLAIMERS)]

    async def enqueue_keys(sibling: Store, number: int) -> None:
        for key in range(20):
            [answer] = await sibling.enqueue([job(key=str(key))])
            holders[number].append(answer.job_id)

    await _together(store, enqueue_keys)
    assert all(len(set(same_key)) == 1 for same_key in zip(*holders, strict=True))
    assert (await store.count(JobFilter(state=State.PENDING))).total == 20


async def test_enqueueing_and_draining_at_once_loses_nothing(store: Store) -> None:
    """Producers and workers share the store; in the end everything is completed, once."""
    done: list[list[UUID]] = [[] for _ in range(CLAIMERS)]

    async def work(sibling: Store, number: int) -> None:
        for _ in range(10):
            await sibling.enqueue([job() for _ in range(5)])
            jobs = (await ask(sibling, limit=3)).jobs
            answers = await sibling.settle([Settlement(claimed.lease, Completed()) for claimed in jobs])
            assert all(answers)
            done[number] += [claimed.lease.job_id for claimed in jobs]
        while jobs := (await ask(sibling, limit=10)).jobs:
            await sibling.settle([Settlement(claimed.lease, Completed()) for claimed in jobs])
            done[number] += [claimed.lease.job_id for claimed in jobs]

    await _together(store, work)
    finished = [job_id for one in done for job_id in one]
    assert len(finished) == len(set(finished)) == CLAIMERS * 50
    assert (await store.count(JobFilter(state=State.COMPLETED))).total == CLAIMERS * 50
    assert await store.check() == []
