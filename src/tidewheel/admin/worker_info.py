"""The workers of a queue, as people see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tidewheel.core.clock import MICROSECONDS, to_datetime
from tidewheel.core.model import JobRecord, WorkerRecord
from tidewheel.core.names import PULLER_PREFIX

if TYPE_CHECKING:
    from tidewheel.stores import Store

MISSING_SECONDS: Final = 20.0
"""A worker not heard of for this long is missing; it tells about itself every five seconds."""
MAX_COUNTED_JOBS: Final = 500
"""Running jobs that are counted by worker; of more, each worker's own figures are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """One worker, as it last told about itself."""

    name: str
    host: str
    pid: int
    version: str
    """of Tidewheel"""
    started_at: datetime
    seen_at: datetime
    seconds_since_seen: float
    """at the time of asking, by the store's clock"""
    topics: tuple[str, ...]
    tasks: tuple[str, ...]
    more_lanes: int
    """topics and tasks beyond those listed"""
    concurrency: int
    running: int
    """slots with a job: as many as the jobs it holds, up to its slots"""
    claimed: int
    """jobs it holds beyond its slots, claimed ahead"""
    stuck: int
    """slots held by handlers (or callbacks) that were told to stop and go on"""
    loop_lag_seconds: float
    """the longest its event loop let anything wait, in the five seconds before it was seen"""
    polling: bool
    """whether no wake-ups come through to it, so that it finds jobs by asking every ``poll_interval``"""
    ran: int
    """attempts settled since it started"""
    completed: int
    failed: int
    lost: int
    """leases that ended before their outcome was written"""

    @property
    def missing(self) -> bool:
        """Whether it ended without leaving, or cannot reach the store."""
        return self.seconds_since_seen > MISSING_SECONDS

    @property
    def degraded(self) -> bool:
        """Whether some of its slots are stuck; with half of them stuck it makes way for a fresh worker."""
        return self.stuck > 0


async def list_workers(store: Store) -> list[WorkerInfo]:
    """Return all that a store has on its list, by name, with the jobs that each holds now."""
    records = await store.workers()
    if records:
        running = await store.longest_running(MAX_COUNTED_JOBS + 1)
        if len(running) <= MAX_COUNTED_JOBS:
            records = with_held_jobs(records, running)
    now = await store.now()
    return [worker_info(record, now) for record in records]


def is_missing(worker: WorkerRecord, now: int) -> bool:
    """Whether it has been silent for too long, at ``now`` by the store's clock."""
    return now - worker.seen_at > MISSING_SECONDS * MICROSECONDS


def find_lost_holders(
    running: Iterable[JobRecord], workers: Iterable[WorkerRecord], now: int
) -> dict[str, int | None]:
    """The holders of these running jobs that are gone, with the time each was last seen.

    A worker is gone when it is missing. A puller is gone as well when it is not on the list (None) although
    it has held a job for longer than it takes to be listed. Any other holder that is not listed may be a
    client of the HTTP API that never announced itself.
    """
    listed = {worker.name: worker for worker in workers}
    lost: dict[str, int | None] = {}
    for job in running:
        name = job.worker or ""
        worker = listed.get(name)
        if worker is not None and is_missing(worker, now):
            lost[name] = worker.seen_at
        elif worker is None and name.startswith(PULLER_PREFIX):
            held = now - (job.claimed_at or now)
            if held > MISSING_SECONDS * MICROSECONDS:
                lost[name] = None
    return lost


def with_held_jobs(records: Iterable[WorkerRecord], running: Iterable[JobRecord]) -> list[WorkerRecord]:
    """Return the workers with their slots as the running jobs fill them.

    A worker's own figures are up to five seconds old, and would contradict the jobs listed beside them. A
    worker starts what it holds as long as it has slots; the rest is claimed ahead. A puller has no slots.
    """
    held = Counter(job.worker for job in running)
    return [_with_held_jobs(record, held[record.name]) for record in records]


def _with_held_jobs(record: WorkerRecord, held: int) -> WorkerRecord:
    slots = record.concurrency
    if record.name.startswith(PULLER_PREFIX):
        slots = max(slots, held)
    return replace(record, concurrency=slots, running=min(held, slots), claimed=max(0, held - slots))


def worker_info(record: WorkerRecord, now: int) -> WorkerInfo:
    """A record of the store at ``now``."""
    return WorkerInfo(
        name=record.name,
        host=record.host,
        pid=record.pid,
        version=record.version,
        started_at=to_datetime(record.started_at),
        seen_at=to_datetime(record.seen_at),
        seconds_since_seen=max(0.0, (now - record.seen_at) / MICROSECONDS),
        topics=tuple(sorted({lane.topic for lane in record.lanes})),
        tasks=tuple(sorted({lane.task for lane in record.lanes if lane.task})),
        more_lanes=record.more_lanes,
        concurrency=record.concurrency,
        running=record.running,
        claimed=record.claimed,
        stuck=record.stuck,
        loop_lag_seconds=record.loop_lag_seconds,
        polling=record.polling,
        ran=record.ran,
        completed=record.completed,
        failed=record.failed,
        lost=record.lost,
    )
