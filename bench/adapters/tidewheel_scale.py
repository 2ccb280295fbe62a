"""What a large store does to claims, lists and statistics. For Tidewheel only."""

from __future__ import annotations

import time
from typing import Any

from tidewheel import Tidewheel
from tidewheel.core.ids import new_id
from tidewheel.core.model import ClaimRequest, Completed, Lane, NewJob, Settlement
from tidewheel.stores import create_store
from tidewheel.stores.protocol import Store

BULK = 10_000
BATCH = 100
TOPICS = 1000


async def grow(store: Store, finished: int, waiting: int, delayed: int) -> None:
    """Put so many jobs of each kind into a store; those that wait are spread over a thousand topics."""
    for start in range(0, max(finished, waiting, delayed), BULK):
        if start < waiting:
            await store.enqueue([_new(f"other-{number % TOPICS}") for number in range(BULK)])
        if start < delayed:
            await store.enqueue([_new("hot", delay=86_400) for _ in range(BULK)])
        if start < finished:
            done = [_new("finished") for _ in range(BULK)]
            await store.enqueue(done)
            for first in range(0, BULK, 1000):
                await store.cancel([job.id for job in done[first : first + 1000]])


async def flat(url: str, number: int, rounds: int) -> dict[str, Any]:
    """A claim of 100 in an empty store, and in one with so many finished, waiting and delayed jobs.

    The two are measured in turn, so that the machine's mood is the same for both.
    """
    separator = "?schema=" if url.startswith("postgresql") else "."
    stores = {name: create_store(f"{url}{separator}{name}") for name in ("empty", "full")}
    for store in stores.values():
        await store.open()
        await store.migrate()
    await grow(stores["full"], number, number, number)
    times: dict[str, list[float]] = {"empty": [], "full": []}
    for round_ in range(rounds):
        for name, store in stores.items():
            elapsed = await _claim_time(store)
            if round_ >= rounds // 5:  # the first ones warm up
                times[name].append(elapsed)
    for store in stores.values():
        await store.close()
    return times


async def look(app: Tidewheel, rounds: int) -> dict[str, Any]:
    """The times of pages of jobs, by several filters, and of statistics."""
    lists: list[float] = []
    stats: list[float] = []
    filters: list[dict[str, Any]] = [{}, {"state": "pending"}, {"topic": "other-7"}, {"state": "cancelled"}]
    for _ in range(rounds):
        for chosen in filters:
            began = time.perf_counter()
            page = await app.jobs(**chosen)
            lists.append(time.perf_counter() - began)
            assert len(page.items) > 0
        began = time.perf_counter()
        await app.stats()
        stats.append(time.perf_counter() - began)
    return {"lists": lists, "stats": stats}


async def _claim_time(store: Store) -> float:
    await store.enqueue([_new("hot") for _ in range(BATCH)])
    began = time.perf_counter()
    claim = await store.claim(ClaimRequest("bench", (Lane("hot", "job"),), BATCH, 60))
    elapsed = time.perf_counter() - began
    assert len(claim.jobs) == BATCH
    await store.settle([Settlement(job.lease, Completed(), 0.0) for job in claim.jobs])
    return elapsed


def _new(topic: str, delay: float = 0.0) -> NewJob:
    return NewJob(id=new_id(), topic=topic, task="job", payload=b'{"x":1}', delay=delay, retention=1e6)
