"""Jobs of a ``JobTable`` that run after others: waiting, and what becomes of them when a parent ends."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from tidewheel.core.model import FINAL_STATES, Count, Dependents, NewJob, Relative, State
from tidewheel.stores.bounds import MAX_COUNT, MAX_DEPENDENTS, MAX_RELEASED_DEPENDENTS
from tidewheel.stores.memory.job_rows import JobRow
from tidewheel.stores.memory.job_table import JobTable
from tidewheel.stores.terminal_errors import parent_failed_error, summarise_error


def add_parents(table: JobTable, job: JobRow, new: NewJob, now: int) -> None:
    """Of a job that was just added: all its parents are there."""
    job.after_any = new.after_any
    failed: JobRow | None = None
    for parent_id in new.after:
        parent = table.jobs[parent_id]
        ended = parent.state in FINAL_STATES
        job.after[parent_id] = not ended
        table.add_dependency(job, parent_id)
        badly = parent.state in (State.FAILED, State.CANCELLED) and not new.after_any
        if badly and (failed is None or parent_id.bytes < failed.id.bytes):
            failed = parent
    if failed is not None:
        _cancel_dependent(table, job, failed.id, failed.state, now)
    else:
        job.blocked = sum(job.after.values())
        table.enqueue_pending(job, now)


def import_dependencies(table: JobTable, job: JobRow) -> None:
    """Of a job that came from another store, before its parents or after them."""
    for parent_id in job.after:
        table.add_dependency(job, parent_id)
        _requeue_ended_parent(table, parent_id)
    _requeue_ended_parent(table, job.id)


def _requeue_ended_parent(table: JobTable, parent_id: UUID) -> None:
    """Somebody may wait for a job that had ended where it came from, and had not been told yet."""
    parent = table.jobs.get(parent_id)
    if parent is not None and parent.state in FINAL_STATES:
        waiting = [child for child in table.children.get(parent_id, {}).values() if child.after[parent_id]]
        if any(child.state is State.PENDING for child in waiting):
            table.ended_parents[parent_id] = parent.state


def restore_parents(table: JobTable, jobs: Iterable[JobRow], now: int) -> None:
    """Of jobs that came back to be run once more, all of them: parents that have ended by now are over,
    however they did.
    """
    for job in jobs:
        for parent_id in job.after:
            job.after[parent_id] = _unfinished(table, parent_id)
        job.blocked = sum(job.after.values())
        if job.blocked:
            table.enqueue_pending(job, now)


def must_wait(table: JobTable, job: JobRow) -> bool:
    """Whether a finished job would have to wait, if it were to be run once more."""
    return any(_unfinished(table, parent_id) for parent_id in job.after)


def _unfinished(table: JobTable, job_id: UUID) -> bool:
    job = table.jobs.get(job_id)
    return job is not None and job.state not in FINAL_STATES


def release_dependents(table: JobTable, now: int, limit: int = MAX_RELEASED_DEPENDENTS) -> None:
    """Let go of jobs whose parents have ended, or cancel them; so many, the rest is for another time.

    A job that is cancelled is a parent that has ended in its turn: it joins the line, and nothing recurses.
    """
    while limit > 0 and table.ended_parents:
        parent_id = min(table.ended_parents, key=lambda job_id: job_id.bytes)
        state = table.ended_parents[parent_id]
        waiting = [child for child in table.children.get(parent_id, {}).values() if child.after[parent_id]]
        for child in waiting[:limit]:
            child.after[parent_id] = False
            if child.state is not State.PENDING:
                continue  # it has ended by itself
            if state is State.COMPLETED or child.after_any:
                child.blocked -= 1
                table.enqueue_pending(child, now)
            else:
                _cancel_dependent(table, child, parent_id, state, now)
        if len(waiting) <= limit:
            del table.ended_parents[parent_id]
        limit -= len(waiting)


def _cancel_dependent(table: JobTable, job: JobRow, parent_id: UUID, state: State | None, now: int) -> None:
    job.error_summary = summarise_error(parent_failed_error(parent_id, state))
    table.finish(job, State.CANCELLED, now)


def parents(table: JobTable, job: JobRow) -> tuple[Relative, ...]:
    """The jobs this one runs after, as ``get`` shows them."""
    pending = job.state is State.PENDING
    found = []
    for parent_id, waits in job.after.items():
        parent = table.jobs.get(parent_id)
        found.append(Relative(parent_id, None if parent is None else parent.state, waits and pending))
    return tuple(found)


def dependents(table: JobTable, job_id: UUID, limit: int, tenant: str | None) -> Dependents:
    related = table.children.get(job_id, {}).values()
    children = sorted(
        (child for child in related if tenant in (None, child.tenant)), key=lambda child: child.number
    )
    told = tuple(
        Relative(child.id, child.state, child.after[job_id] and child.state is State.PENDING)
        for child in children[: min(limit, MAX_DEPENDENTS)]
    )
    return Dependents(told, Count(min(len(children), MAX_COUNT), exact=len(children) <= MAX_COUNT))
