"""What operators do to single jobs of a ``Book``, and pruning."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from tidewheel.core.model import Released, State, Verdict
from tidewheel.stores.memory import dependencies, settlements
from tidewheel.stores.memory.job_rows import Job
from tidewheel.stores.memory.job_table import Book
from tidewheel.stores.terminal_errors import CANCELLED_ON_REQUEST


def requeue(book: Book, job_ids: Iterable[UUID], tenant: str | None, now: int) -> list[Verdict]:
    back: list[Job] = []
    verdicts = [requeue_one(book, book.find(job_id, tenant), now, back) for job_id in job_ids]
    dependencies.wait_again(book, back, now)
    return verdicts


def requeue_one(book: Book, job: Job | None, now: int, back: list[Job]) -> Verdict:
    """``back``: those that came back, this one with them; they are yet to wait for what they run after."""
    if job is None:
        return Verdict.NOT_FOUND
    if job.state not in (State.FAILED, State.CANCELLED):
        return Verdict.WRONG_STATE
    if book.key_taken(job):
        return Verdict.KEY_TAKEN
    job.kicks += 1
    revive(book, job, now)
    back.append(job)
    return Verdict.DONE


def revive(book: Book, job: Job, now: int) -> None:
    """Failed or cancelled to pending, due now, whatever it runs after."""
    book.hold_key(job)
    job.attempt = 0
    job.origin = job.result = job.progress = None
    job.expires_at = None  # somebody wants it run now, whatever its expiry once was
    book.bring_back(job, now, now)


def cancel(book: Book, job_id: UUID, tenant: str | None, now: int) -> Verdict:
    job = book.find(job_id, tenant)
    if job is None:
        return Verdict.NOT_FOUND
    match job.state:
        case State.PENDING:
            settlements.cancel(book, job, CANCELLED_ON_REQUEST, now)
            return Verdict.DONE
        case State.RUNNING:
            job.cancel_requested = True
            return Verdict.REQUESTED
        case _:
            return Verdict.WRONG_STATE


def take_back(book: Book, job_id: UUID, tenant: str | None, now: int) -> Verdict:
    job = book.find(job_id, tenant)
    if job is None:
        return Verdict.NOT_FOUND
    if job.state is not State.RUNNING:
        return Verdict.WRONG_STATE
    settlements.release(book, job, Released(counted=False), now)
    return Verdict.DONE


def delete(book: Book, job_id: UUID, tenant: str | None) -> Verdict:
    job = book.find(job_id, tenant)
    if job is None:
        return Verdict.NOT_FOUND
    if job.state is State.RUNNING:
        return Verdict.WRONG_STATE
    book.remove(job)
    book.some_ended = True  # whoever waits for its result must not wait on
    return Verdict.DONE


def prune(book: Book, limit: int, now: int) -> dict[State, int]:
    pruned: dict[State, int] = {}
    due: list[Job] = []
    while len(due) < limit and (job := book.finished.first_until(now)):
        due.append(job)
        book.finished.forget(job)
    for job in due:  # all of them first: what was kept for one of these goes another time
        book.remove(job)
        pruned[job.state] = pruned.get(job.state, 0) + 1
    return pruned
