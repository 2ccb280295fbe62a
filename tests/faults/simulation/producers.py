"""Who makes the jobs of a simulation, cancels some and looks at what is there."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from tests.faults.simulation.handlers import TASKS
from tidewheel.core.model import JobFilter, NewJob
from tidewheel.errors import StoreError
from tidewheel.verification.history import JobsListed

if TYPE_CHECKING:
    from tests.faults.simulation.world import World

TENANTS = ("root", "root", "acme", "umbrella")
PLANS = {
    "at once": 14, "work": 20, "err": 8, "err once": 8, "block": 5, "ignore": 5, "kill": 4, "snooze": 4,
    "give up": 3, "cancel": 2, "report": 4, "release": 4, "long": 13,
    "steps": 6,
}  # fmt: skip
"""What jobs do, and how often, in a hundred."""


class Producer:
    """A process that enqueues for some seconds. It is never killed: what it was told must stay true."""

    def __init__(self, world: World) -> None:
        self._chance = random.Random(world.chance.random())
        self._lease = world.lease
        self.process, self.weather, self._store = world.new_process("producer")
        self._sent: list[UUID] = []
        self._calls = self._chance.randint(3, 9)
        self._work = self.process.start(self._produce())
        world.producers.append(self)

    @property
    def done(self) -> bool:
        return self._work.done()

    async def _produce(self) -> None:
        chance = self._chance
        for _ in range(self._calls):
            await asyncio.sleep(chance.choice((0.0, 0.1, 0.5, 1.0)) * chance.random())
            number = chance.choice((1, 1, 1, 2, 5))
            jobs = [self._job() for _ in range(number)]
            self._sent += [job.id for job in jobs]
            again = chance.random() < 0.5
            try:
                await self._store.enqueue(jobs)
            except StoreError:
                if again:  # as one does with keys: whatever became of the first call, there is one job
                    await self._try_again(jobs)
            if chance.random() < 0.25:
                await self._cancel_some()
            if chance.random() < 0.25:
                await self._look()

    async def _try_again(self, jobs: list[NewJob]) -> None:
        keyed = [msgspec.structs.replace(job, id=self._id()) for job in jobs if job.key is not None]
        try:
            await self._store.enqueue(keyed)
        except StoreError:
            return

    async def _cancel_some(self) -> None:
        chosen = self._chance.sample(self._sent, min(len(self._sent), self._chance.randint(1, 2)))
        await asyncio.sleep(0.5 * self._chance.random())
        try:
            await self._store.cancel(chosen)
        except StoreError:
            return

    async def _look(self) -> None:
        tenant = self._chance.choice(TENANTS)
        try:
            page = await self._store.list_jobs(JobFilter(tenant=tenant), limit=50)
        except StoreError:
            return
        process = self.process
        ids = [job.id for job in page.items]
        process.write(JobsListed(at=process.now(), process=process.name, tenant=tenant, ids=ids))

    def _id(self) -> UUID:
        return UUID(int=self._chance.getrandbits(128), version=4)

    def _job(self) -> NewJob:
        chance, lease = self._chance, self._lease
        plan = chance.choices(list(PLANS), list(PLANS.values()))[0]
        seconds = {
            "work": chance.choice((0.01, 0.3, 1.0)) * chance.random(),
            "block": lease * chance.choice((0.3, 1.2, 3.0)) * chance.random(),
            "ignore": lease * 2 * chance.random(),
            "long": lease * (0.8 + 2.5 * chance.random() ** 2),
            "release": lease * chance.random(),
        }.get(plan, 0.5 * chance.random())
        keyed = chance.random() < 0.25
        attempts = chance.choice((1, 2, 3, 3) if plan in {"kill", "err"} else (1, 2, 3, 3, None))
        task = chance.choice(TASKS)
        return NewJob(
            id=self._id(),
            topic=task,
            task=chance.choice((task, task, "")),
            payload=msgspec.json.encode({"plan": "work" if plan == "long" else plan, "seconds": seconds}),
            tenant=chance.choice(TENANTS),
            priority=chance.choice((0, 0, 0, 10, -5)),
            delay=chance.choice((0.0, 0.0, 0.0, 2.0)) * chance.random(),
            max_attempts=attempts,
            # One that never gets done in time and has unlimited attempts would never be over.
            timeout=None if attempts is None else chance.choice((None, None, None, 1.0)),
            lease_seconds=chance.choice((None, None, None, 2.5)),
            key=chance.choice("abc") if keyed else None,
            expires_in=chance.choice((None, None, None, None, None, 3.0)),
        )
