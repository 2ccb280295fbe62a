"""Jobs on their way from a ``JobTable`` to another store, and into one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from uuid import UUID

from msgspec import structs

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.full_job import FullJob, make_full_job
from tidewheel.core.model import FailureOrigin, KeyLifetime
from tidewheel.stores.bounds import MAX_EXPORT_BYTES
from tidewheel.stores.memory import dependencies
from tidewheel.stores.memory.job_queries import record as recorded
from tidewheel.stores.memory.job_rows import JobRow
from tidewheel.stores.memory.job_table import JobTable
from tidewheel.stores.transfer import key_name, limit_page_bytes, mark_imported, select_new_jobs


def export_jobs(table: JobTable, limit: int, before: int | None) -> list[FullJob]:
    return limit_page_bytes(
        [_export_job(table, job) for job in islice(table.newest_first(before), limit)], MAX_EXPORT_BYTES
    )


def _export_job(table: JobTable, job: JobRow) -> FullJob:
    # Databases keep whole microseconds.
    record = structs.replace(
        recorded(table, job),
        timeout=_exact_microseconds(job.timeout),
        lease_seconds=_exact_microseconds(job.lease_seconds),
    )
    return make_full_job(
        record,
        job.progress,
        key_until=None if job.key is None else job.key_until,
        expires_at=job.expires_at,
        retention=_exact_microseconds(job.retention),
        retention_failed=_exact_microseconds(job.retention_failed),
        suspect=job.suspect,
        counts_if_lost=job.counts_if_lost,
        buried=job.origin is FailureOrigin.BURIED,
    )


def _exact_microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds_to_microseconds(seconds) / MICROSECONDS


def import_jobs(table: JobTable, jobs: Sequence[FullJob], now: int) -> list[bool]:
    names = [key_name(job) for job in jobs]
    taken = {name: table.keys[name].id for name in names if name is not None and name in table.keys}
    numbers: dict[int, UUID] = {}
    for job in jobs:
        if (other := table.find_number(job.record.number, None)) is not None:
            numbers[other.number] = other.id
    placed = select_new_jobs(jobs, table.jobs.keys(), numbers, taken)
    for job in placed:
        table.import_job(_import_row(job), now)
    for job in placed:
        dependencies.import_dependencies(table, table.jobs[job.record.id])
    dependencies.release_dependents(table, now)
    return mark_imported(jobs, placed)


def _import_row(job: FullJob) -> JobRow:
    record = job.record
    return JobRow(
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
