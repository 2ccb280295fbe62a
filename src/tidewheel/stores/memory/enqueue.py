"""Enqueue jobs in a ``JobTable``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from tidewheel.core.conditions import matches
from tidewheel.core.model import (
    Enqueued,
    NewDocument,
    NewJob,
    OnDuplicate,
)
from tidewheel.errors import StoreError
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.enqueue import (
    check_parents,
    check_store_limits,
    key_in_use_error,
    parent_not_found_error,
)
from tidewheel.stores.memory import dependencies, documents
from tidewheel.stores.memory.job_rows import (
    JobRow,
    KeyName,
    expires_at,
    first_run_at,
    key_name,
    new_job,
)
from tidewheel.stores.memory.job_table import JobTable


def enqueue(table: JobTable, jobs: Sequence[NewJob], limits: StoreLimits, now: int) -> list[Enqueued]:
    """All or none: everything that can be refused is refused before the first job is written."""
    related = check_parents(jobs)
    _check_new_jobs(table, jobs, limits, now)
    answers = []
    for new in jobs:
        name = key_name(new)
        holder = table.keys.get(name) if name is not None else None
        if holder is None:
            job = new_job(new, table.next_number(), now)
            table.add(job, now)
            if new.after:
                dependencies.add_parents(table, job, new, now)
            tally = table.metrics.minute_at(now)
            tally.enqueued += 1
            tally.lane(job.topic, job.task).enqueued += 1
            answers.append(Enqueued(job.id, job.number, job.created_at, job.run_at))
            continue
        replaced = new.on_duplicate is OnDuplicate.REPLACE and holder.replaceable
        if replaced:
            holder.payload, holder.format, holder.priority = new.payload, new.format, new.priority
            holder.run_at, holder.expires_at = first_run_at(new, now), expires_at(new, now)
            table.enqueue_pending(holder, now)
        answers.append(Enqueued(holder.id, holder.number, holder.created_at, holder.run_at, True, replaced))
    if related:
        dependencies.release_dependents(table, now)
    return answers


def enqueue_with(
    table: JobTable, document: NewDocument, jobs: Sequence[NewJob], limits: StoreLimits, now: int
) -> list[Enqueued] | None:
    if not documents.version_matches(table, document, now):
        return None
    answers = enqueue(table, jobs, limits, now)  # first, because it may refuse
    documents.write(table, document, now)
    return answers


def _check_new_jobs(table: JobTable, jobs: Sequence[NewJob], limits: StoreLimits, now: int) -> None:
    names: dict[KeyName, NewJob] = {}
    ids: dict[UUID, NewJob] = {}
    added: Counter[str] = Counter()
    for new in jobs:
        name = key_name(new)
        if name is not None:
            holder = table.keys.get(name) or names.get(name)
            if holder is not None:
                if not _is_visible(new, holder, now):
                    raise key_in_use_error(new.key)
                continue
            names[name] = new
        if new.id in table.jobs or new.id in ids:
            raise StoreError(f"job id {new.id} is taken; every job needs an id of its own")
        ids[new.id] = new
        added[new.topic] += 1
    for new in ids.values():
        for parent_id in new.after:
            parent = ids.get(parent_id) or table.find(parent_id, new.tenant)
            if parent is None or parent.tenant != new.tenant or not _is_visible(new, parent, now):
                raise parent_not_found_error(parent_id)
    problem = check_store_limits(limits, added, topics=table.counts.keys, active=table.active)
    if problem is not None:
        raise problem
    table.check_capacity(len(ids))


def _is_visible(new: NewJob, other: JobRow | NewJob, now: int) -> bool:
    """Whether another job, perhaps one of the same call, is there for whoever makes this one."""
    if new.row_filter is None:
        return True
    return matches(new.row_filter, new_job(other, 0, now) if isinstance(other, NewJob) else other, now)
