"""Jobs of all kinds in a store, as many as wanted, and all of a store's jobs as one can compare them."""

from __future__ import annotations

import random
from typing import Any

from tidewheel.core.full_job import FullJob
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    BodyFormat,
    Cancelled,
    Claimed,
    ClaimRequest,
    Completed,
    Failed,
    FailureOrigin,
    JobError,
    KeyLifetime,
    Lane,
    NewJob,
    NewStep,
    Outcome,
    Progress,
    Released,
    Report,
    Retried,
    Settlement,
)
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import Store

TOPICS = ("mail", "reports", "images", "dull")
BOOM = JobError("boom", "it broke", details={"at": [1, 2]}, traceback="line 1\nline 2")
SHORT_LEASE = 0.5
"""Seconds of the leases of those that are left running."""


async def fill(store: Store, number: int, *, seed: int = 1) -> None:
    """So many jobs: half of them still pending, the others with a past of some kind."""
    rng = random.Random(seed)  # to have the same jobs again
    for start in range(0, number, 5000):
        await store.enqueue([_new(rng, start + place) for place in range(min(5000, number - start))])
    for _ in range(number // 2 // MAX_BATCH + 1):
        lanes = tuple(Lane(topic) for topic in TOPICS[:3])
        limit = min(MAX_BATCH, number // 2)
        claim = await store.claim(ClaimRequest("anna", lanes, limit, 60.0))
        if not claim.jobs:
            break
        await _work(store, rng, claim.jobs)
    waiting = await store.export_jobs(limit=min(MAX_BATCH, number))
    await store.cancel([job.record.id for job in waiting if job.record.number % 97 == 0])
    await store.claim(ClaimRequest("bert", (Lane("dull"),), max(1, number // 1000), SHORT_LEASE))
    await store.pause("reports", 4_000_000_000_000_000)


def _new(rng: random.Random, place: int) -> NewJob:
    options: dict[str, Any] = {}
    if place % 3 == 0:
        options |= {"key": f"k{place}", "key_until": rng.choice(list(KeyLifetime))}
    if place % 5 == 0:
        options |= {"tenant": f"t{place % 7}", "correlation_id": f"c{place % 50}", "headers": "00-t"}
    if place % 11 == 0:
        options |= {"format": BodyFormat.BYTES, "payload": rng.randbytes(place % 300)}
    else:
        options["payload"] = b'{"n": %d, "s": "%s"}' % (
            place,
            b"x" * (2000 if place % 50 == 0 else place % 60),
        )
    if place % 13 == 0:
        options["delay"] = 10_000.0
    if place % 17 == 0:
        options |= {"expires_in": 90_000.0, "retention": 40_000.25, "timeout": 1.5}
        if place % 4 != 3:  # those are left running
            options["lease_seconds"] = 600.0
    topic = TOPICS[place % 4]
    task = "" if place % 7 == 0 else f"task_{place % 3}"
    return NewJob(id=new_id(), topic=topic, task=task, priority=place % 3 - 1, max_attempts=5, **options)


async def _work(store: Store, rng: random.Random, jobs: tuple[Claimed, ...]) -> None:
    reports = [
        Report(
            job.lease,
            Progress(float(rng.randrange(100)), "so far", "a"),
            b'{"at": 1}',
            NewStep("a", b"[1]", 0.1),
        )
        for job in jobs
        if job.number % 10 == 0
    ]
    await store.mark_started([job.lease for job in jobs if job.number % 4 == 0])
    if reports:
        await store.report(reports)
    await store.settle([Settlement(job.lease, _outcome(rng), rng.random()) for job in jobs])


def _outcome(rng: random.Random) -> Outcome:
    drawn = rng.random()
    if drawn < 0.6:
        return Completed(b'{"ok": true}' if drawn < 0.4 else None)
    if drawn < 0.75:
        return Retried(5000.0 * (drawn < 0.65), BOOM)
    if drawn < 0.9:
        return Failed(BOOM, FailureOrigin.BURIED if drawn < 0.78 else FailureOrigin.ATTEMPT)
    return Released() if drawn < 0.95 else Cancelled(BOOM)


async def all_jobs(store: Store) -> list[FullJob]:
    jobs: list[FullJob] = []
    while page := await store.export_jobs(limit=MAX_BATCH, before=jobs[-1].record.number if jobs else None):
        jobs += page
    return jobs
