"""The program of a process under test: a worker, or a producer, that writes down what it does."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
from collections import deque
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from msgspec import structs

from tidewheel.core.model import JobFilter, NewJob
from tidewheel.errors import StoreError
from tidewheel.schedules.scheduler import Scheduler
from tidewheel.stores import Store
from tidewheel.verification.history import FileRecorder, JobsListed
from tidewheel.verification.recording_store import RecordingStore
from tidewheel.verification.stdin_control import call_when_parent_exits, read_instructions
from tidewheel.verification.workload import TENANTS, make_job, make_workload_app
from tidewheel.worker import Worker

WORKER_CONCURRENCY = 10
GUARD_CONCURRENCY = 50
"""Plenty: whatever comes back must find a free slot there, or nobody could say how soon it came back."""
MAX_BATCH_JOBS = 10
KEY_COUNT = 50
"""Keys are used again and again, so that some are taken."""
MAX_CANCELLABLE_JOBS = 100
"""Jobs a producer may still cancel."""
READY = b"ready\n"


def main() -> None:
    """Read the orders and follow them until called off."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    orders = read_instructions()
    if orders is not None:
        asyncio.run(_follow(orders))


async def _follow(orders: dict[str, Any]) -> None:
    recorder = FileRecorder(Path(orders["history"]), orders["name"])
    role = orders["role"]
    app = make_workload_app(
        orders["url"],
        lease=orders["lease"],
        concurrency=GUARD_CONCURRENCY if role == "guard" else WORKER_CONCURRENCY,
        recorder=recorder,
        spared=role == "guard",
    )
    async with app:
        store = cast("Store", RecordingStore(app.store, recorder))
        os.write(sys.stdout.fileno(), READY)
        if role != "producer":
            worker = Worker(
                store,
                app.registry,
                app.settings,
                name=orders["name"],
                clock=app.clock,
                make_scheduler=Scheduler,
            )
            call_when_parent_exits(worker.stop)
            await worker.run()
        else:
            loop = asyncio.get_running_loop()
            stopped = asyncio.Event()
            call_when_parent_exits(lambda: loop.call_soon_threadsafe(stopped.set))
            producer = Producer(store, recorder, random.Random(orders["seed"]), orders["pause"])  # noqa: S311
            await producer.run(stopped)


class Producer:
    """Enqueues, cancels and looks, one call after another."""

    def __init__(self, store: Store, recorder: FileRecorder, choose: random.Random, pause: float) -> None:
        self._store = store
        self._recorder = recorder
        self._choose = choose
        self._pause = pause
        self._recent: deque[UUID] = deque(maxlen=MAX_CANCELLABLE_JOBS)
        self._owned: deque[tuple[UUID, str]] = deque(maxlen=MAX_CANCELLABLE_JOBS)  # each with its tenant

    async def run(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            try:
                await self._call()
            except StoreError:
                await asyncio.sleep(0.1)  # it was written down; the next call tries again
            await asyncio.sleep(self._choose.uniform(0.0, 2 * self._pause))

    async def _call(self) -> None:
        choose = self._choose
        dice = choose.random()
        if dice < 0.03 and self._recent:
            await self._store.cancel([choose.choice(self._recent)])
        elif dice < 0.05:
            tenant = choose.choice(TENANTS)
            page = await self._store.list_jobs(JobFilter(tenant=tenant), limit=20)
            ids = [record.id for record in page.items]
            me = self._recorder
            me.write(JobsListed(at=me.now(), process=me.name, tenant=tenant, ids=ids))
        elif dice < 0.15:
            answers = await self._store.enqueue([make_job(choose, key=f"key-{choose.randrange(KEY_COUNT)}")])
            self._recent.append(answers[0].job_id)
        elif dice < 0.25 and self._owned:
            await self._enqueue_after()
        else:
            number = choose.randint(2, MAX_BATCH_JOBS) if dice < 0.35 else 1
            await self._enqueue([make_job(choose) for _ in range(number)])

    async def _enqueue(self, jobs: list[NewJob]) -> None:
        answers = await self._store.enqueue(jobs)
        self._recent += [answer.job_id for answer in answers]
        self._owned += [(job.id, job.tenant) for job in jobs]

    async def _enqueue_after(self) -> None:
        """A job that runs after some of those that were just made."""
        choose = self._choose
        job = make_job(choose)
        theirs = [job_id for job_id, tenant in self._owned if tenant == job.tenant]
        parents = tuple(choose.sample(theirs, min(len(theirs), choose.randint(1, 3))))
        await self._enqueue([structs.replace(job, after=parents, after_any=choose.random() < 0.5)])
