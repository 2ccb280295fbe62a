"""Rescue jobs whose lease ended in a ``JobTable``, and prune jobs past their retention."""

from __future__ import annotations

from functools import partial

from tidewheel.core.model import (
    JobError,
    RescuedJob,
    RescueResult,
    State,
)
from tidewheel.stores.memory import dependencies, settlements
from tidewheel.stores.memory.job_rows import (
    JobRow,
)
from tidewheel.stores.memory.job_table import JobTable
from tidewheel.stores.terminal_errors import (
    CANCELLED_ON_REQUEST,
    expired_error,
    worker_lost_error,
)


def rescue(table: JobTable, now: int, limit: int) -> RescueResult:
    """Up to ``limit`` ended leases, oldest end first; then as many expired jobs, those just returned too."""
    returned = failed = cancelled = expiries = 0
    while returned + failed + cancelled < limit and (job := table.leases.first_until(now)):
        error = worker_lost_error(job.attempt)
        lost = partial(_record_rescued, table, job, job.attempt, job.worker)
        job.timeouts += 1
        counted = job.counts_if_lost
        if not counted:
            job.attempt -= 1
        if job.cancel_requested:
            settlements.cancel_job(table, job, CANCELLED_ON_REQUEST, now)
            lost(CANCELLED_ON_REQUEST)
            cancelled += 1
            continue
        if counted:
            job.keep_attempt(error, now)
            if job.max_attempts is not None and job.attempt >= job.max_attempts:
                table.finish(job, State.FAILED, now)
                lost(error)
                failed += 1
                continue
        job.suspect = True  # it may have killed the worker, so its next grant is alone
        table.return_to_pending(job, job.run_at, now)
        lost(error)
        returned += 1
    while expiries < limit and (job := table.next_expired(table.guard.confirmed_time(now))):
        error = expired_error(job.run_at)
        settlements.cancel_job(table, job, error, now)
        _record_rescued(table, job, job.attempt, None, error)
        expiries += 1
    dependencies.release_dependents(table, now)
    return RescueResult(returned, failed, cancelled, expiries)


def _record_rescued(table: JobTable, job: JobRow, attempt: int, worker: str | None, error: JobError) -> None:
    table.rescued.append(
        RescuedJob(
            job.id,
            job.topic,
            job.task,
            job.tenant,
            job.correlation_id,
            attempt,
            worker,
            job.state,
            error.code,
        )
    )


def prune(table: JobTable, limit: int, now: int) -> dict[State, int]:
    pruned: dict[State, int] = {}
    due: list[JobRow] = []
    while len(due) < limit and (job := table.finished.first_until(now)):
        due.append(job)
        table.finished.remove(job)
    for job in due:  # all of them first: what was kept for one of these goes another time
        table.remove(job)
        pruned[job.state] = pruned.get(job.state, 0) + 1
    return pruned
