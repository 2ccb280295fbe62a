"""What operators do to single jobs of a ``JobTable``."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from tidewheel.core.model import ActionResult, Released, State
from tidewheel.stores.memory import dependencies, settlements
from tidewheel.stores.memory.job_rows import JobRow
from tidewheel.stores.memory.job_table import JobTable
from tidewheel.stores.terminal_errors import CANCELLED_ON_REQUEST


def requeue(table: JobTable, job_ids: Iterable[UUID], tenant: str | None, now: int) -> list[ActionResult]:
    back: list[JobRow] = []
    verdicts = [requeue_job(table, table.find(job_id, tenant), now, back) for job_id in job_ids]
    dependencies.restore_parents(table, back, now)
    return verdicts


def requeue_job(table: JobTable, job: JobRow | None, now: int, back: list[JobRow]) -> ActionResult:
    """``back``: those that came back, this one with them; they are yet to wait for what they run after."""
    if job is None:
        return ActionResult.NOT_FOUND
    if job.state not in (State.FAILED, State.CANCELLED):
        return ActionResult.WRONG_STATE
    if table.key_taken(job):
        return ActionResult.KEY_TAKEN
    job.kicks += 1
    return_to_pending(table, job, now)
    back.append(job)
    return ActionResult.DONE


def return_to_pending(table: JobTable, job: JobRow, now: int) -> None:
    """Failed or cancelled to pending, due now, whatever it runs after."""
    table.take_key(job)
    job.attempt = 0
    job.origin = job.result = job.progress = None
    job.expires_at = None  # somebody wants it run now, whatever its expiry once was
    table.return_to_pending(job, now, now)


def cancel(table: JobTable, job_id: UUID, tenant: str | None, now: int) -> ActionResult:
    job = table.find(job_id, tenant)
    if job is None:
        return ActionResult.NOT_FOUND
    match job.state:
        case State.PENDING:
            settlements.cancel_job(table, job, CANCELLED_ON_REQUEST, now)
            return ActionResult.DONE
        case State.RUNNING:
            job.cancel_requested = True
            return ActionResult.REQUESTED
        case _:
            return ActionResult.WRONG_STATE


def take_back(table: JobTable, job_id: UUID, tenant: str | None, now: int) -> ActionResult:
    job = table.find(job_id, tenant)
    if job is None:
        return ActionResult.NOT_FOUND
    if job.state is not State.RUNNING:
        return ActionResult.WRONG_STATE
    settlements.release_job(table, job, Released(counted=False), now)
    return ActionResult.DONE


def delete(table: JobTable, job_id: UUID, tenant: str | None) -> ActionResult:
    job = table.find(job_id, tenant)
    if job is None:
        return ActionResult.NOT_FOUND
    if job.state is State.RUNNING:
        return ActionResult.WRONG_STATE
    table.remove(job)
    table.has_ended_parents = True  # whoever waits for its result must not wait on
    return ActionResult.DONE
