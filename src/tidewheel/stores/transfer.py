"""Jobs that come from another store: what every store decides alike before it writes them as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.full_job import FullJob
from tidewheel.core.model import FailureOrigin, State
from tidewheel.errors import WrongState
from tidewheel.stores.terminal_errors import retention_seconds

KeyName = tuple[str, str, str]
"""Tenant, task (or topic of a job without one), key."""

_CODES = {State.RUNNING: 2, State.COMPLETED: 3, State.FAILED: 4, State.CANCELLED: 5}


def key_name(job: FullJob) -> KeyName | None:
    """The key a job holds, if it holds one."""
    record = job.record
    if not job.holds_key or record.key is None:
        return None
    return record.tenant, record.task or record.topic, record.key


def select_new_jobs(
    jobs: Sequence[FullJob],
    ids: Collection[UUID],
    numbers: Mapping[int, UUID],
    keys: Mapping[KeyName, UUID],
) -> list[FullJob]:
    """Those that are not there yet, each once. ``WrongState`` when one would have to share what it cannot.

    ``ids`` of jobs that are there, and which jobs have the ``numbers`` and hold the ``keys`` in question.
    """
    placed: dict[UUID, FullJob] = {}
    numbered, held = dict(numbers), dict(keys)
    for job in jobs:
        record = job.record
        if record.id in ids or record.id in placed:
            continue
        if (other := numbered.setdefault(record.number, record.id)) != record.id:
            raise WrongState(
                f"job {record.id} has the number {record.number:,}, which here is that of job {other}; "
                "numbers are kept, so copy into a store without jobs of its own"
            )
        name = key_name(job)
        if name is not None and (holder := held.setdefault(name, record.id)) != record.id:
            raise WrongState(
                f"job {record.id} has the key {record.key!r}, which here is held by job {holder}; "
                "copy into a store without jobs of its own"
            )
        placed[record.id] = job
    return list(placed.values())


def mark_imported(jobs: Sequence[FullJob], placed: Sequence[FullJob]) -> list[bool]:
    """Which of these were written; of one that is named twice the first."""
    new = {job.record.id for job in placed}
    told = []
    for job in jobs:
        told.append(job.record.id in new)
        new.discard(job.record.id)
    return told


def prune_at(job: FullJob) -> int | None:
    """When a finished job's retention is over; None for one that is kept for ever, or not finished."""
    record = job.record
    origin = FailureOrigin.BURIED if job.buried else None
    keep = retention_seconds(record.state, origin, job.retention, job.retention_failed)
    if record.finished_at is None or keep is None:
        return None
    return record.finished_at + seconds_to_microseconds(keep)


def stored_state_code(job: FullJob, now: int) -> int:
    """As both databases store it: pending jobs are 0 while they wait, 1 once they are due."""
    record = job.record
    if record.state is State.PENDING:
        return int(record.run_at <= now and not record.blocked)
    return _CODES[record.state]


def limit_page_bytes(jobs: Sequence[FullJob], most_bytes: int) -> list[FullJob]:
    """The first of these whose bodies together are no larger; at least one."""
    size = 0
    for place, job in enumerate(jobs):
        size += job.size
        if size > most_bytes and place:
            return list(jobs[:place])
    return list(jobs)
