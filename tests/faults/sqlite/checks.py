"""What must hold of a database after anything that was done to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from tests.faults.sqlite.workloads import OUTPUT_SIZE, RESULT, payload_of
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    ClaimRequest,
    Completed,
    JobFilter,
    JobRecord,
    Lane,
    NewJob,
    Settlement,
    State,
)
from tidewheel.stores.sqlite import SqliteStore


@asynccontextmanager
async def reopened(database: Path, options: str = "") -> AsyncIterator[SqliteStore]:
    store = SqliteStore(f"sqlite:///{database}{options}")
    await store.open()
    try:
        await store.migrate()
        yield store
    finally:
        await store.close()


async def jobs_after(database: Path, options: str = "") -> dict[UUID, JobRecord]:
    """Every job of a file that is sound and works."""
    async with reopened(database, options) as store:
        return await jobs_in(store)


async def jobs_in(store: SqliteStore) -> dict[UUID, JobRecord]:
    """Every job of a store that is sound and works. Each is whole: its own body, a result if completed."""
    assert await store.check() == []
    page = await store.list_jobs(JobFilter(), limit=100_000)
    records = {}
    for listed in page.items:
        record = await store.get(listed.id)
        assert record is not None
        assert record.payload is not None
        assert record.payload == payload_of(record.id, len(record.payload) - 38), record
        assert all(step.output == payload_of(record.id, OUTPUT_SIZE) for step in record.steps), record
        assert (record.result == RESULT) is (record.state is State.COMPLETED), record
        records[record.id] = record
    await works(store)
    return records


async def works(store: SqliteStore) -> None:
    """A job can be enqueued, claimed and completed."""
    job = NewJob(id=new_id(), topic="afterwards", payload=b"1")
    await store.enqueue([job])
    claim = await store.claim(ClaimRequest("checker", (Lane("afterwards"),), 1, 60))
    [claimed] = claim.jobs
    assert claimed.lease.job_id == job.id
    assert await store.settle([Settlement(claimed.lease, Completed(b"2"))]) == [True]
    assert await store.delete([job.id])


def all_or_nothing(ids: Collection[UUID], present: Collection[UUID]) -> bool:
    there = [job_id for job_id in ids if job_id in present]
    return len(there) in (0, len(ids))
