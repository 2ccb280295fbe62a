"""What operators do to single jobs of a ``JobTable``."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from tidewheel.core.model import ActionResult, Released, State
from tidewheel.stores.memory import dependencies, settlements
from tidewheel.stores.memory.job_rows import JobRow
from tidewheel.stores.memory.job_table import JobTable
from tidewheel.stores.terminal_errors import CANCELLED_ON_REQUEST


def requeue(book: JobTable, job_ids: Iterable[UUID], tenant: str | None, now: int) -> list[ActionResult]:
    back: list[JobRow] = []
    verdicts = [requeue_job(book, book.find(job_id, tenant), now, back) for job_id in job_ids]
    dependencies.restore_parents(book, back, now)
    return verdicts


def requeue_job(book: JobTable, job: JobRow | None, now: int, back: list[JobRow]) -> ActionResult:
    """``back``: those that came back, this one with them; they are yet to wait for what they run after."""
    if job is None:
        return ActionResult.NOT_FOUND
    if job.state not in (State.FAILED, State.CANCELLED):
        return ActionResult.WRONG_STATE
    if book.key_taken(job):
        return ActionResult.KEY_TAKEN
    job.kicks += 1
    return_to_pending(book, job, now)
    back.append(job)
    return ActionResult.DONE


def return_to_pending(book: JobTable, job: JobRow, now: int) -> None:
    """Failed or cancelled to pending, due now, whatever it runs after."""
    book.take_key(job)
    job.attempt = 0
    job.origin = job.result = job.progress = None
    job.expires_at = None  # somebody wants it run now, whatever its expiry once was
    book.return_to_pending(job, now, now)


def cancel(book: JobTable, job_id: UUID, tenant: str | None, now: int) -> ActionResult:
    job = book.find(job_id, tenant)
    if job is None:
        return ActionResult.NOT_FOUND
    match job.state:
        case State.PENDING:
            settlements.cancel_job(book, job, CANCELLED_ON_REQUEST, now)
            return ActionResult.DONE
        case State.RUNNING:
            job.cancel_requested = True
            return ActionResult.REQUESTED
        case _:
            return ActionResult.WRONG_STATE


def take_back(book: JobTable, job_id: UUID, tenant: str | None, now: int) -> ActionResult:
    job = book.find(job_id, tenant)
    if job is None:
        return ActionResult.NOT_FOUND
    if job.state is not State.RUNNING:
        return ActionResult.WRONG_STATE
    settlements.release_job(book, job, Released(counted=False), now)
    return ActionResult.DONE


def delete(book: JobTable, job_id: UUID, tenant: str | None) -> ActionResult:
    job = book.find(job_id, tenant)
    if job is None:
        return ActionResult.NOT_FOUND
    if job.state is State.RUNNING:
        return ActionResult.WRONG_STATE
    book.remove(job)
    book.has_ended_parents = True  # whoever waits for its result must not wait on
    return ActionResult.DONE
