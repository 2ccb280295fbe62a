"""Short words for what the tests do all the time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    Claim,
    Claimed,
    ClaimRequest,
    Completed,
    Failed,
    JobError,
    JobRecord,
    Lane,
    Lease,
    NewJob,
    Outcome,
    Settlement,
    State,
)
from tidewheel.stores.protocol import Store

TOPIC = "mail"
LEASE_SECONDS = 60.0
MakeFinished = Callable[..., Awaitable[UUID]]
"""``make_completed``, ``make_failed`` or ``make_cancelled``: a job brought to that end, its options given."""
BOOM = JobError("boom", "it broke", details={"at": [1, 2]}, traceback="line 1\nline 2")


def job(topic: str = TOPIC, **options: Any) -> NewJob:
    return NewJob(id=new_id(), topic=topic, **options)


async def enqueue_one(store: Store, topic: str = TOPIC, **options: Any) -> UUID:
    """Enqueue one job; its id."""
    [answer] = await store.enqueue([job(topic, **options)])
    assert not answer.duplicate, "the test meant to enqueue a new job"
    return answer.job_id


async def enqueue_many(store: Store, number: int, topic: str = TOPIC, **options: Any) -> list[UUID]:
    return [answer.job_id for answer in await store.enqueue([job(topic, **options) for _ in range(number)])]


async def claim_from(
    store: Store,
    *lanes: Lane | str,
    limit: int = 100,
    lease_seconds: float = LEASE_SECONDS,
    worker: str = "worker-1",
    topic_limits: Mapping[str, int] | None = None,
    free: int | None = None,
    reports_starts: bool = False,
) -> Claim:
    """Claim from these lanes or whole topics (``TOPIC`` when none is named)."""
    wanted = tuple(Lane(lane) if isinstance(lane, str) else lane for lane in lanes or (TOPIC,))
    return await store.claim(
        ClaimRequest(
            worker,
            wanted,
            limit,
            lease_seconds,
            topic_limits or {},
            free_slots=free,
            reports_starts=reports_starts,
        )
    )


async def claim_jobs(store: Store, *lanes: Lane | str, **options: Any) -> list[Claimed]:
    return list((await claim_from(store, *lanes, **options)).jobs)


async def claim_one(store: Store, *lanes: Lane | str, **options: Any) -> Claimed:
    [claimed] = await claim_jobs(store, *lanes, limit=1, **options)
    return claimed


def ids(claimed: list[Claimed]) -> list[UUID]:
    return [one.lease.job_id for one in claimed]


async def settle_one(store: Store, lease: Lease, outcome: Outcome, run_seconds: float | None = None) -> bool:
    [answer] = await store.settle([Settlement(lease, outcome, run_seconds)])
    return answer


async def get_job(store: Store, job_id: UUID) -> JobRecord:
    """The whole job, which must be there."""
    record = await store.get(job_id)
    assert record is not None, f"job {job_id} has disappeared"
    return record


async def get_state(store: Store, job_id: UUID) -> State | None:
    return (await store.states([job_id]))[0]


async def make_completed(store: Store, topic: str = TOPIC, **options: Any) -> UUID:
    job_id = await enqueue_one(store, topic, **options)
    assert await settle_one(store, (await claim_one(store, topic)).lease, Completed(b"1"))
    return job_id


async def make_failed(store: Store, topic: str = TOPIC, *, error: JobError = BOOM, **options: Any) -> UUID:
    job_id = await enqueue_one(store, topic, **options)
    assert await settle_one(store, (await claim_one(store, topic)).lease, Failed(error))
    return job_id


async def make_cancelled(store: Store, topic: str = TOPIC, **options: Any) -> UUID:
    job_id = await enqueue_one(store, topic, **options)
    await store.cancel([job_id])
    return job_id
