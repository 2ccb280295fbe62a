"""Many handles on few jobs, doing everything at once: nothing breaks, and the books are right in the end."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from tests.patience import PATIENCE
from tests.servers import PostgresServer
from tests.stores.postgres.server_log import Complaints
from tests.stores.postgres.stores import opened, raw
from tidewheel.core.model import (
    Cancelled,
    Completed,
    Failed,
    FailureOrigin,
    JobFilter,
    KeyLifetime,
    Lease,
    NewJob,
    OnDuplicate,
    Outcome,
    Progress,
    Released,
    Report,
    Retried,
    Settlement,
)
from tidewheel.stores.memory import MemoryStore
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import BOOM, claim_from, claim_jobs, get_job, job

STORES = 20
LEAST_PACKED = (1, 5, 20)
"""Of the stores in turn: some jobs share rows, and some do not."""
SECONDS = 1.5
TOPICS = ("a", "b", "c")
KEYS = [f"key-{number}" for number in range(8)]


class Chaos:
    """What the stores share: the ids and leases they have seen."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ids: list[UUID] = []
        self.leases: list[Lease] = []
        self.done: Counter[str] = Counter()
        self.accepted: Counter[UUID] = Counter()

    def some_ids(self) -> list[UUID]:
        return self.random.sample(self.ids, min(len(self.ids), 12))

    def some_leases(self) -> list[Lease]:
        return self.random.sample(self.leases, min(len(self.leases), 12))

    async def enqueue(self, store: PostgresStore) -> None:
        # One key at the most: who has taken one and finds another free a moment later may wait in a circle,
        # and is begun again (see test_requeues_and_enqueues_of_the_same_keys_all_succeed); here nobody may.
        keys = [self.random.choice([None, *KEYS]), None, None]
        jobs = [
            job(
                self.random.choice(TOPICS),
                key=key,
                key_until=self.random.choice(list(KeyLifetime)),
                on_duplicate=self.random.choice(list(OnDuplicate)),
                priority=self.random.randrange(3),
                delay=self.random.choice([0.0, 0.0, 0.05]),
                payload=b"1" * self.random.choice([1, 1500]),
                expires_in=self.random.choice([None, 0.05]),
                retention=0.0,
                max_attempts=self.random.choice([1, 3, None]),
            )
            for key in keys[: self.random.randrange(1, 4)]
        ]
        answers = await store.enqueue(jobs)
        self.ids = (self.ids + [answer.job_id for answer in answers])[-60:]

    async def claim(self, store: PostgresStore) -> None:
        lease = self.random.choice([0.05, 5.0])
        topics = self.random.sample(TOPICS, self.random.randrange(1, 4))
        claimed = await claim_jobs(store, *topics, limit=self.random.randrange(1, 20), lease_seconds=lease)
        self.leases = (self.leases + [one.lease for one in claimed])[-60:]

    async def settle(self, store: PostgresStore) -> None:
        settlements = [Settlement(lease, self._outcome(), 0.001) for lease in self.some_leases()]
        answers = await store.settle(settlements)
        for settlement, accepted in zip(settlements, answers, strict=True):
            if accepted and isinstance(settlement.outcome, Completed):
                self.accepted[settlement.lease.job_id] += 1

    def _outcome(self) -> Outcome:
        outcomes: list[Outcome] = [
            Completed(b"1"),
            Completed(b"1"),
            Failed(BOOM),
            Failed(BOOM, FailureOrigin.BURIED),
            Cancelled(BOOM),
            Retried(0.0, BOOM),
            Retried(0.01, BOOM),
            Released(priority=self.random.randrange(3)),
        ]
        return self.random.choice(outcomes)

    async def extend(self, store: PostgresStore) -> None:
        await store.extend(self.some_leases(), self.random.choice([0.05, 5.0]))

    async def start(self, store: PostgresStore) -> None:
        await store.mark_started(self.some_leases())

    async def report(self, store: PostgresStore) -> None:
        leases = self.some_leases()
        await store.report([Report(lease, Progress(5.0, "m"), b"[1]") for lease in leases])

    async def cancel(self, store: PostgresStore) -> None:
        await store.cancel(self.some_ids())

    async def requeue(self, store: PostgresStore) -> None:
        await store.requeue(self.some_ids())

    async def delete(self, store: PostgresStore) -> None:
        await store.delete(self.some_ids()[:3])

    async def tidy(self, store: PostgresStore) -> None:
        await store.rescue()
        await store.prune()

    async def read(self, store: PostgresStore) -> None:
        await store.list_jobs(JobFilter(topic="a"), limit=10)
        await store.stats(window_seconds=60.0)
        assert await store.check() == []

    async def pause(self, store: PostgresStore) -> None:
        await store.pause("c", self.random.choice([None, await store.now() + 20_000]))

    def verbs(self) -> list[Callable[[PostgresStore], Coroutine[Any, Any, None]]]:
        often = [self.enqueue, self.claim, self.settle] * 3
        return [
            *often,
            *(self.extend, self.start, self.report, self.cancel, self.requeue, self.delete),
            *(self.tidy, self.read, self.pause),
        ]


async def test_all_verbs_at_once_leave_the_books_in_order(
    postgres: PostgresServer, postgres_url: str
) -> None:
    """No verb fails, no two wait for each other in a circle, no job is lost, doubled or completed twice."""
    chaos = Chaos(20)
    complaints = await Complaints.of(postgres)

    async def live(store: PostgresStore, end: float) -> None:
        while time.monotonic() < end:
            verb = chaos.random.choice(chaos.verbs())
            await verb(store)
            chaos.done[verb.__name__] += 1

    async with opened(*[f"{postgres_url}&connections=2"] * STORES) as stores:
        for number, store in enumerate(stores):
            store._claimer.min_leased_batch = LEAST_PACKED[number % len(LEAST_PACKED)]
        end = time.monotonic() + SECONDS  # from here: to open so many takes a while on a busy machine
        async with asyncio.TaskGroup() as group:
            for store in stores:
                group.create_task(live(store, end))
        assert len(chaos.done) == len({verb.__name__ for verb in chaos.verbs()})
        assert complaints.heard() == []
        store = stores[0]
        assert await store.check() == []
        await store.prune()  # adds up the counters
        assert await store.check() == []
        stats = await store.stats(window_seconds=60.0)
        async with raw(postgres_url) as connection:
            there = dict(await connection.fetch("SELECT state, count(*) FROM all_jobs GROUP BY state"))
        assert stats.pending == there.get(0, 0) + there.get(1, 0)
        assert (stats.running, stats.completed) == (there.get(2, 0), there.get(3, 0))
        assert (stats.failed, stats.cancelled) == (there.get(4, 0), there.get(5, 0))
    assert set(chaos.accepted.values()) <= {1}


async def test_one_key_lets_one_job_in_wherever_it_comes_from(postgres_url: str) -> None:
    """Fifty callers over five stores, at the same moment, with the same key: one job, whose id all learn."""
    async with opened(*[postgres_url] * 5) as stores:
        for turn in range(10):
            calls = [store.enqueue([job(key=f"key-{turn}")]) for store in stores for _ in range(10)]
            answers = [answer for [answer] in await asyncio.gather(*calls)]
            assert [answer.duplicate for answer in answers].count(False) == 1
            assert len({answer.job_id for answer in answers}) == 1
        assert (await stores[0].count(JobFilter())).total == 10
        assert await stores[0].check() == []


async def test_a_key_until_finished_lets_the_next_job_in_at_that_moment(postgres_url: str) -> None:
    """While holders finish, new jobs with their key come in: never two at a time."""
    async with opened(*[postgres_url] * 4) as stores:
        end = time.monotonic() + 0.6
        let_in: list[UUID] = []
        outcomes: list[Outcome] = [Completed(b"1"), Failed(BOOM), Cancelled(BOOM)]

        async def enqueue(store: PostgresStore) -> None:
            while time.monotonic() < end:
                new = job(key="k", key_until=KeyLifetime.FINISHED, max_attempts=1)
                [answer] = await store.enqueue([new])
                if not answer.duplicate:
                    assert answer.job_id == new.id
                    let_in.append(new.id)
                assert (await store.states([answer.job_id]))[0] is not None

        async def work(store: PostgresStore) -> None:
            while time.monotonic() < end:
                claimed = (await claim_from(store)).jobs
                assert len(claimed) <= 1
                for one in claimed:
                    settlement = Settlement(one.lease, random.choice(outcomes), 0.001)
                    assert await store.settle([settlement]) == [True]

        await asyncio.gather(*map(enqueue, stores[:3]), *map(work, stores[2:]))
        assert len(let_in) == len(set(let_in)) > 3
        states = await stores[0].states(let_in[-1000:])
        assert {state for state in states[:-1] if state is not None and not state.final} == set()
        assert await stores[0].check() == []


async def test_a_storm_on_one_key_is_weathered(postgres_url: str) -> None:
    """Ten thousand calls that mean the same job, repeated or debounced, are dealt with in bulk."""
    async with opened(postgres_url) as [store]:
        for way in OnDuplicate:

            def storm(way: OnDuplicate = way) -> list[NewJob]:
                return [
                    job(key=way, on_duplicate=way, delay=60.0 + n, payload=b"%d" % n) for n in range(5000)
                ]

            async with asyncio.timeout(PATIENCE):
                single = await asyncio.gather(*(store.enqueue([one]) for one in storm()))
                batch = await store.enqueue(storm())
            answers = [*(answer for [answer] in single), *batch]
            [first] = [answer for answer in answers if not answer.duplicate]
            assert {answer.job_id for answer in answers} == {first.job_id}
            assert {answer.replaced for answer in batch} == {way is OnDuplicate.REPLACE}
            if way is OnDuplicate.REPLACE:
                assert (await get_job(store, first.job_id)).payload == b"4999"
                assert [answer.run_at for answer in batch] == sorted({answer.run_at for answer in batch})
        assert await store.check() == []


async def test_a_batch_that_debounces_its_own_jobs_is_dealt_with_in_order(postgres_url: str) -> None:
    """Kept and replaced duplicates of one key in one call answer as they do when sent one by one."""
    ways = [OnDuplicate.REPLACE, OnDuplicate.KEEP] * 3 + [OnDuplicate.REPLACE] * 3 + [OnDuplicate.KEEP]
    jobs = [
        job(key="k", on_duplicate=way, run_at=2_000_000_000_000_000 + n, payload=b"%d" % n)
        for n, way in enumerate(ways)
    ]
    memory = MemoryStore("memory://")
    await memory.open()
    async with opened(postgres_url) as [store]:
        expected, answers = await memory.enqueue(jobs), await store.enqueue(jobs)
        told = [(one.job_id, one.run_at, one.duplicate, one.replaced) for one in answers]
        assert told == [(one.job_id, one.run_at, one.duplicate, one.replaced) for one in expected]
        assert (
            (await get_job(store, jobs[0].id)).payload == (await get_job(memory, jobs[0].id)).payload == b"8"
        )
