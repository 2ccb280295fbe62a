"""From checked jobs to handles: writing in batches, and finding the job that already holds a key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from windlass.errors import StoreUnavailable
from windlass.job import Job
from windlass.model import Enqueued, JobRecord, NewJob, State
from windlass.stores.protocol import MAX_ENQUEUE_BATCH, Store

if TYPE_CHECKING:
    from windlass.app import Windlass

_LOOKUPS: Final = 100
"""Duplicates looked up at a time."""
_TRIES: Final = 5
"""How often a job is offered again whose duplicate vanished before it could be read."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one new job: its record, or that of the job which holds its key."""

    record: JobRecord
    duplicate: bool = False
    replaced: bool = False


async def submit(app: Windlass, jobs: Sequence[NewJob]) -> list[Job[Any]]:
    """Write jobs that are already checked; their handles, in the same order."""
    written = await _write(app.store, jobs)
    handles: list[Job[Any]] = [
        Job(app, item.record, duplicate=item.duplicate, replaced=item.replaced) for item in written
    ]
    if app.after_enqueue is not None:
        await app.after_enqueue(handles)
    return handles


async def _write(store: Store, jobs: Sequence[NewJob]) -> list[Written]:
    """One store call for each ``MAX_ENQUEUE_BATCH`` jobs."""
    written: list[Written | None] = []
    for start in range(0, len(jobs), MAX_ENQUEUE_BATCH):
        batch = jobs[start : start + MAX_ENQUEUE_BATCH]
        answers = await store.enqueue(batch)
        written.extend(
            None if answer.duplicate else Written(_fresh_record(job, answer))
            for job, answer in zip(batch, answers, strict=True)
        )
        duplicates = [(start + index, answer) for index, answer in enumerate(answers) if answer.duplicate]
        for index, found in await _find(store, jobs, duplicates):
            written[index] = found
    return [item for item in written if item is not None]


async def _find(
    store: Store, jobs: Sequence[NewJob], duplicates: list[tuple[int, Enqueued]]
) -> list[tuple[int, Written]]:
    """The jobs that hold the keys. Where one has just been pruned, the new job is offered again."""
    found: list[tuple[int, Written]] = []
    for _ in range(_TRIES):
        vanished: list[int] = []
        for chunk in _chunks(duplicates):
            records = await asyncio.gather(*(store.get(answer.job_id) for _, answer in chunk))
            for (index, answer), record in zip(chunk, records, strict=True):
                if record is None:
                    vanished.append(index)
                else:
                    found.append((index, Written(record, duplicate=True, replaced=answer.replaced)))
        if not vanished:
            return found
        answers = await store.enqueue([jobs[index] for index in vanished])
        duplicates = []
        for index, answer in zip(vanished, answers, strict=True):
            if answer.duplicate:
                duplicates.append((index, answer))
            else:
                found.append((index, Written(_fresh_record(jobs[index], answer))))
    raise StoreUnavailable(
        f"a job's key is taken and freed again and again; given up after {_TRIES} tries, try again"
    )


def _chunks(items: list[tuple[int, Enqueued]]) -> Iterator[list[tuple[int, Enqueued]]]:
    return (items[start : start + _LOOKUPS] for start in range(0, len(items), _LOOKUPS))


def _fresh_record(job: NewJob, answer: Enqueued) -> JobRecord:
    """A job just written, as the store would show it, without asking again."""
    return JobRecord(
        id=answer.job_id,
        number=answer.number,
        tenant=job.tenant,
        topic=job.topic,
        task=job.task,
        state=State.PENDING,
        priority=job.priority,
        attempt=0,
        max_attempts=job.max_attempts,
        created_at=answer.created_at,
        run_at=answer.run_at,
        timeout=job.timeout,
        key=job.key,
        correlation_id=job.correlation_id,
        user_id=job.user_id,
        service_id=job.service_id,
        format=job.format,
        payload=job.payload,
    )
