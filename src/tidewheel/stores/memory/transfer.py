"""Jobs on their way from a ``Book`` to another store, and into one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from uuid import UUID

from msgspec import structs

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.full_job import WholeJob, whole
from tidewheel.core.model import FailureOrigin, KeyLifetime
from tidewheel.stores.memory import dependencies
from tidewheel.stores.memory.job_queries import record as recorded
from tidewheel.stores.memory.job_rows import Job
from tidewheel.stores.memory.job_table import Book
from tidewheel.stores.protocol import MAX_WHOLE_BYTES
from tidewheel.stores.transfer import cut, key_name, to_place, were_placed


def whole_jobs(book: Book, limit: int, before: int | None) -> list[WholeJob]:
    return cut([_whole(book, job) for job in islice(book.newest_first(before), limit)], MAX_WHOLE_BYTES)


def _whole(book: Book, job: Job) -> WholeJob:
    # Databases keep whole microseconds.
    record = structs.replace(
        recorded(book, job), timeout=_exact(job.timeout), lease_seconds=_exact(job.lease_seconds)
    )
    return whole(
        record,
        job.progress,
        key_until=None if job.key is None else job.key_until,
        expires_at=job.expires_at,
        retention=_exact(job.retention),
        retention_failed=_exact(job.retention_failed),
        suspect=job.suspect,
        counts_if_lost=job.counts_if_lost,
        buried=job.origin is FailureOrigin.BURIED,
    )


def _exact(seconds: float | None) -> float | None:
    return None if seconds is None else seconds_to_microseconds(seconds) / MICROSECONDS


def place(book: Book, jobs: Sequence[WholeJob], now: int) -> list[bool]:
    names = [key_name(job) for job in jobs]
    taken = {name: book.keys[name].id for name in names if name is not None and name in book.keys}
    numbers: dict[int, UUID] = {}
    for job in jobs:
        if (other := book.find_number(job.record.number, None)) is not None:
            numbers[other.number] = other.id
    placed = to_place(jobs, book.jobs.keys(), numbers, taken)
    for job in placed:
        book.place(_job(job), now)
    for job in placed:
        dependencies.place(book, book.jobs[job.record.id])
    dependencies.release(book, now)
    return were_placed(jobs, placed)


def _job(job: WholeJob) -> Job:
    record = job.record
    return Job(
        id=record.id,
        number=record.number,
        tenant=record.tenant,
        topic=record.topic,
        task=record.task,
        payload=record.payload or b"",
        format=record.format,
        priority=record.priority,
        max_attempts=record.max_attempts,
        timeout=record.timeout,
        retry=record.retry,
        lease_seconds=record.lease_seconds,
        key=record.key,
        key_until=job.key_until or KeyLifetime.PRUNED,
        retention=job.retention,
        retention_failed=job.retention_failed,
        correlation_id=record.correlation_id,
        user_id=record.user_id,
        service_id=record.service_id,
        limit_key=record.limit_key,
        headers=record.headers,
        created_at=record.created_at,
        run_at=record.run_at,
        expires_at=job.expires_at,
        state=record.state,
        attempt=record.attempt,
        blocked=record.blocked,
        after={parent.job_id: parent.waits for parent in record.after},
        after_any=record.after_any,
        suspect=job.suspect,
        counts_if_lost=job.counts_if_lost,
        fence=record.fence,
        worker=record.worker,
        claimed_at=record.claimed_at,
        started_at=record.started_at,
        leased_until=record.leased_until,
        cancel_requested=record.cancel_requested,
        finished_at=record.finished_at,
        origin=FailureOrigin.BURIED if job.buried else None,
        result=record.result,
        progress=record.progress,
        checkpoint=record.checkpoint,
        attempts=record.attempts,
        steps={step.name: step for step in record.steps},
        error_summary=record.error_summary,
        reserves=record.reserves,
        timeouts=record.timeouts,
        releases=record.releases,
        buries=record.buries,
        kicks=record.kicks,
        touches=record.touches,
    )
