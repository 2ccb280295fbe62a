"""What the traced processes do. Each says what it is about to do, and what it was told has been done.

``ready`` is where the tracing begins: all before it is preparation.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID

from tidewheel.core.ids import new_id
from tidewheel.core.model import ClaimRequest, Completed, Lane, NewJob, NewStep, Report, Settlement
from tidewheel.errors import StoreError
from tidewheel.stores.sqlite import SqliteStore, wal_checkpoint
from tidewheel.stores.sqlite.location import parse_url

RESULT = b'"done"'
OUTPUT_SIZE = 10_000
"""Of a step: enough for several pages."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a workload runs, and whom it tells."""

    url: str
    mouth: int
    go: int

    def say(self, what: str, *ids: UUID, error: str = "") -> None:
        """One line, one write: either all of it is heard or nothing."""
        line = json.dumps({"what": what, "ids": [str(id_) for id_ in ids], "error": error})
        os.write(self.mouth, line.encode() + b"\n")

    def ready(self) -> None:
        """Wait until the tracing has begun."""
        self.say("ready")
        os.read(self.go, 1)

    async def opened(self) -> SqliteStore:
        store = SqliteStore(self.url)
        await store.open()
        await store.migrate()
        return store

    async def enqueue(self, store: SqliteStore, number: int = 1, size: int = 100) -> list[UUID]:
        jobs = [new_job(size) for _ in range(number)]
        ids = [job.id for job in jobs]
        self.say("enqueueing", *ids)
        await store.enqueue(jobs)
        self.say("enqueued", *ids)
        return ids

    async def try_to_enqueue(self, store: SqliteStore, size: int = 100) -> bool:
        """Says the error instead of ending with it."""
        job = new_job(size)
        self.say("enqueueing", job.id)
        try:
            await store.enqueue([job])
        except StoreError as error:
            self.say("refused", job.id, error=f"{type(error).__name__}: {error}")
            return False
        self.say("enqueued", job.id)
        return True


def new_job(size: int = 100) -> NewJob:
    job_id = new_id()
    return NewJob(id=job_id, topic="mail", payload=payload_of(job_id, size))


def payload_of(job_id: UUID, size: int = 100) -> bytes:
    """Says whose it is from its first byte to its last, so that half of one can be told."""
    return b'"' + (str(job_id).encode() * (size // 36 + 1)) + b'"'


async def claimed(store: SqliteStore, number: int = 1, *, lasting: bool = True) -> list[Settlement]:
    claim = await store.claim(ClaimRequest("worker", (Lane("mail"),), number, 600, durable=lasting))
    return [Settlement(job.lease, Completed(RESULT)) for job in claim.jobs]


async def enqueue_one(stage: Stage) -> None:
    store = await stage.opened()
    stage.ready()
    await stage.enqueue(store)


async def enqueue_together(stage: Stage) -> None:
    """One caller's commit, and one that five others share, the same in every run.

    The lock is held until the writer waits for it with the first call, and the others have come.
    """
    store = await stage.opened()
    assert store._open is not None
    calls = store._open[0]._calls
    holder = sqlite3.connect(parse_url(stage.url).path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    stage.ready()
    first = asyncio.create_task(stage.enqueue(store))
    await asyncio.sleep(0)
    while not calls.empty():
        await asyncio.sleep(0.001)
    others = [asyncio.create_task(stage.enqueue(store)) for _ in range(5)]
    await asyncio.sleep(0)
    assert calls.qsize() == 5
    holder.execute("ROLLBACK")
    await asyncio.gather(first, *others)


async def enqueue_fifty(stage: Stage) -> None:
    store = await stage.opened()
    stage.ready()
    await stage.enqueue(store, 50, 1000)


async def claim_one(stage: Stage) -> None:
    store = await stage.opened()
    await stage.enqueue(store)
    stage.ready()
    [settlement] = await claimed(store)
    stage.say("claimed", settlement.lease.job_id)


async def settle_one(stage: Stage) -> None:
    store = await stage.opened()
    await stage.enqueue(store)
    [settlement] = await claimed(store)
    stage.ready()
    assert await store.settle([settlement]) == [True]
    stage.say("completed", settlement.lease.job_id)


async def finish_a_step(stage: Stage) -> None:
    store = await stage.opened()
    await stage.enqueue(store)
    [settlement] = await claimed(store)
    lease = settlement.lease
    stage.ready()
    step = NewStep("one", payload_of(lease.job_id, OUTPUT_SIZE), 0.5)
    assert await store.report([Report(lease, step=step)]) == [True]
    stage.say("stepped", lease.job_id)


async def start_for_the_first_time(stage: Stage) -> None:
    """On one thread, and without a job, which would be another's: strace counts threads apart."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    stage.ready()
    await stage.opened()
    stage.say("migrated")


async def commit_and_checkpoint(stage: Stage) -> None:
    """A log so short that each commit is followed by a restart of it, and then the end, which removes it."""
    wal_checkpoint.CHECKPOINT_BYTES = 4096  # type: ignore[misc]
    store = await stage.opened()
    stage.ready()
    for _ in range(3):
        await stage.enqueue(store)
    await store.close()


async def checkpoint_on_a_failing_disk(stage: Stage) -> None:
    wal_checkpoint.CHECKPOINT_BYTES = 4096  # type: ignore[misc]
    store = await stage.opened()
    stage.ready()
    for _ in range(5):
        await stage.try_to_enqueue(store)
    await store.close()


async def refused_then_killed(stage: Stage) -> None:
    """One enqueue into a disk that fails, and then a death that leaves no time to tidy up."""
    store = await stage.opened()
    stage.ready()
    await stage.try_to_enqueue(store)
    os.kill(os.getpid(), signal.SIGKILL)


async def refused_then_well(stage: Stage) -> None:
    """Until the disk has failed at least once and then worked three times."""
    store = await stage.opened()
    stage.ready()
    failed, worked = 0, 0
    for _ in range(200):
        if await stage.try_to_enqueue(store, 5000):
            worked += failed > 0
        else:
            failed += 1
        if worked == 3:
            break
    stage.say("problems" if await store.check() else "sound")
    await store.close()


Workload = Callable[[Stage], Awaitable[None]]
WORKLOADS: dict[str, Workload] = {
    workload.__name__: workload
    for workload in (
        enqueue_one,
        enqueue_together,
        enqueue_fifty,
        claim_one,
        settle_one,
        finish_a_step,
        start_for_the_first_time,
        commit_and_checkpoint,
        checkpoint_on_a_failing_disk,
        refused_then_killed,
        refused_then_well,
    )
}


def said_of(lines: Sequence[str]) -> list[tuple[str, list[UUID], str]]:
    """What was said, as (what, ids, error)."""
    heard = [json.loads(line) for line in lines]
    return [(entry["what"], [UUID(text) for text in entry["ids"]], entry["error"]) for entry in heard]
