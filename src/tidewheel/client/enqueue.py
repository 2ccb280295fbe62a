"""From checked jobs to handles: writing in batches, and finding the job that already holds a key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidewheel.client.handler_transaction import Transaction, current_transaction
from tidewheel.client.job_handle import EnqueuedJob, Job
from tidewheel.core.conditions import matches
from tidewheel.core.model import Enqueued, JobRecord, NewJob
from tidewheel.errors import NotAuthenticated, NotPermitted, StoreUnavailable
from tidewheel.stores.bounds import MAX_ENQUEUE_BATCH
from tidewheel.stores.protocol import SplitsBatches, Store
from tidewheel.telemetry import job_log

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

_MAX_PARALLEL_LOOKUPS: Final = 100
"""Duplicates looked up at a time."""
_MAX_TRIES: Final = 5
"""How often a job is offered again whose duplicate vanished before it could be read."""


async def enqueue_job(app: Tidewheel, job: NewJob) -> Job[Any]:
    """Write a job that is already checked; its handle."""
    if app.registry.middleware.has_enqueue_hooks:
        (job,) = app.registry.prepare_jobs(app, (job,))
    store = current_transaction(app) or app.store if type(job.payload) is bytes else app.lane.open()
    telemetry = app.telemetry
    (answer,) = await (store.enqueue((job,)) if telemetry.off else telemetry.enqueue(store.enqueue, (job,)))
    if app.settings.log_jobs and current_transaction(app) is None:  # else it is not there yet
        job_log.log_enqueued(((job, answer),))
    if answer.duplicate:
        ((_, handle),) = await _resolve_duplicates(app, store, (job,), [(0, answer)])
    else:
        handle = Job(app, EnqueuedJob(job, answer))
    if app.after_enqueue is not None and current_transaction(app) is None:  # as above
        await app.after_enqueue([handle])
    return handle


async def enqueue_jobs(app: Tidewheel, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[Job[Any]]:
    """Write jobs that are already checked; their handles, in the same order.

    One store call for each ``MAX_ENQUEUE_BATCH`` jobs; a single one for the lane, which takes all or none.
    ``whole``: all or none, also where the store might write them in parts.
    """
    jobs = app.registry.prepare_jobs(app, jobs)
    store: Store | Transaction
    if not jobs or type(jobs[0].payload) is bytes:
        store, size = current_transaction(app) or app.store, MAX_ENQUEUE_BATCH
    else:
        store, size = app.lane.open(), len(jobs)
    write = store.enqueue_atomically if atomic and isinstance(store, SplitsBatches) else store.enqueue
    telemetry = app.telemetry
    handles: list[Job[Any]] = []
    for start in range(0, len(jobs), size):
        batch = jobs[start : start + size]
        answers = await (write(batch) if telemetry.off else telemetry.enqueue(write, batch))
        if app.settings.log_jobs and current_transaction(app) is None:
            job_log.log_enqueued(zip(batch, answers, strict=True))
        handles.extend(
            [Job(app, EnqueuedJob(job, answer)) for job, answer in zip(batch, answers, strict=True)]
        )
        duplicates = [(start + index, answer) for index, answer in enumerate(answers) if answer.duplicate]
        for index, handle in await _resolve_duplicates(app, store, jobs, duplicates):
            handles[index] = handle
    if app.after_enqueue is not None and current_transaction(app) is None:
        await app.after_enqueue(handles)
    return handles


async def _resolve_duplicates(
    app: Tidewheel, store: Store | Transaction, jobs: Sequence[NewJob], duplicates: list[tuple[int, Enqueued]]
) -> list[tuple[int, Job[Any]]]:
    """The jobs that hold the keys. Where one has just been pruned, the new job is offered again."""
    found: list[tuple[int, Job[Any]]] = []
    for _ in range(_MAX_TRIES):
        vanished: list[int] = []
        for chunk in _chunks(duplicates):
            # A key lets nobody through to another tenant, whatever becomes of it meanwhile.
            records = await asyncio.gather(
                *(_key_holder(store, answer, jobs[index].tenant) for index, answer in chunk)
            )
            for (index, answer), record in zip(chunk, records, strict=True):
                if record is None or _is_hidden_now(jobs[index], answer, record, app.clock.now()):
                    vanished.append(index)
                else:
                    found.append((index, Job(app, record, duplicate=True, replaced=answer.replaced)))
        if not vanished:
            return found
        answers = await store.enqueue([jobs[index] for index in vanished])
        duplicates = []
        for index, answer in zip(vanished, answers, strict=True):
            if answer.duplicate:
                duplicates.append((index, answer))
            else:
                found.append((index, Job(app, EnqueuedJob(jobs[index], answer))))
    raise StoreUnavailable(
        f"a job's key is taken and freed again and again; given up after {_MAX_TRIES} tries, try again"
    )


async def _key_holder(store: Store | Transaction, answer: Enqueued, tenant: str) -> JobRecord | None:
    """The job that holds the key; None where it has just been pruned."""
    if answer.holder is None:
        return await store.get(answer.job_id, tenant=tenant)
    # Over HTTP whose it is the token says, and who may enqueue may not be one who may look.
    try:
        return await store.get(answer.job_id) or answer.holder
    except (NotAuthenticated, NotPermitted):
        return answer.holder


def _is_hidden_now(job: NewJob, answer: Enqueued, record: JobRecord, now: int) -> bool:
    """Whether a holder that was in view when its key was looked up is not any more: states change."""
    return job.row_filter is not None and not answer.replaced and not matches(job.row_filter, record, now)


def _chunks(items: list[tuple[int, Enqueued]]) -> Iterator[list[tuple[int, Enqueued]]]:
    return (
        items[start : start + _MAX_PARALLEL_LOOKUPS] for start in range(0, len(items), _MAX_PARALLEL_LOOKUPS)
    )
