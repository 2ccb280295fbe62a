"""Enqueue, claim, rescue and settle on a ``JobTable``."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import assert_never
from uuid import UUID

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.conditions import matches
from tidewheel.core.model import (
    FOREVER,
    Cancelled,
    Claim,
    ClaimRequest,
    Completed,
    Enqueued,
    Failed,
    FailureOrigin,
    JobError,
    NewDocument,
    NewJob,
    OnDuplicate,
    Released,
    RescuedJob,
    RescueResult,
    Retried,
    Settlement,
    State,
)
from tidewheel.errors import StoreError
from tidewheel.stores.bounds import MAX_BATCH, StoreLimits
from tidewheel.stores.enqueue import (
    check_parents,
    check_store_limits,
    key_in_use_error,
    parent_not_found_error,
)
from tidewheel.stores.memory import dependencies, documents, topic_limits
from tidewheel.stores.memory.job_rows import (
    JobHeap,
    JobRow,
    KeyName,
    expires_at,
    first_run_at,
    key_name,
    new_job,
)
from tidewheel.stores.memory.job_table import JobTable
from tidewheel.stores.terminal_errors import (
    CANCELLED_ON_REQUEST,
    expired_error,
    summarise_error,
    worker_lost_error,
)

Lanes = Mapping[tuple[str, str], JobHeap]
"""Due jobs by topic and task."""


def enqueue(book: JobTable, jobs: Sequence[NewJob], limits: StoreLimits, now: int) -> list[Enqueued]:
    """All or none: everything that can be refused is refused before the first job is written."""
    related = check_parents(jobs)
    _check_new_jobs(book, jobs, limits, now)
    answers = []
    for new in jobs:
        name = key_name(new)
        holder = book.keys.get(name) if name is not None else None
        if holder is None:
            job = new_job(new, book.next_number(), now)
            book.add(job, now)
            if new.after:
                dependencies.add_parents(book, job, new, now)
            tally = book.metrics.minute_at(now)
            tally.enqueued += 1
            tally.lane(job.topic, job.task).enqueued += 1
            answers.append(Enqueued(job.id, job.number, job.created_at, job.run_at))
            continue
        replaced = new.on_duplicate is OnDuplicate.REPLACE and holder.replaceable
        if replaced:
            holder.payload, holder.format, holder.priority = new.payload, new.format, new.priority
            holder.run_at, holder.expires_at = first_run_at(new, now), expires_at(new, now)
            book.enqueue_pending(holder, now)
        answers.append(Enqueued(holder.id, holder.number, holder.created_at, holder.run_at, True, replaced))
    if related:
        dependencies.release_dependents(book, now)
    return answers


def enqueue_with(
    book: JobTable, document: NewDocument, jobs: Sequence[NewJob], limits: StoreLimits, now: int
) -> list[Enqueued] | None:
    if not documents.version_matches(book, document, now):
        return None
    answers = enqueue(book, jobs, limits, now)  # first, because it may refuse
    documents.write(book, document, now)
    return answers


def _check_new_jobs(book: JobTable, jobs: Sequence[NewJob], limits: StoreLimits, now: int) -> None:
    names: dict[KeyName, NewJob] = {}
    ids: dict[UUID, NewJob] = {}
    added: Counter[str] = Counter()
    for new in jobs:
        name = key_name(new)
        if name is not None:
            holder = book.keys.get(name) or names.get(name)
            if holder is not None:
                if not _is_visible(new, holder, now):
                    raise key_in_use_error(new.key)
                continue
            names[name] = new
        if new.id in book.jobs or new.id in ids:
            raise StoreError(f"job id {new.id} is taken; every job needs an id of its own")
        ids[new.id] = new
        added[new.topic] += 1
    for new in ids.values():
        for parent_id in new.after:
            parent = ids.get(parent_id) or book.find(parent_id, new.tenant)
            if parent is None or parent.tenant != new.tenant or not _is_visible(new, parent, now):
                raise parent_not_found_error(parent_id)
    problem = check_store_limits(limits, added, topics=book.counts.keys, active=book.active)
    if problem is not None:
        raise problem
    book.check_capacity(len(ids))


def _is_visible(new: NewJob, other: JobRow | NewJob, now: int) -> bool:
    """Whether another job, perhaps one of the same call, is there for whoever makes this one."""
    if new.row_filter is None:
        return True
    return matches(new.row_filter, new_job(other, 0, now) if isinstance(other, NewJob) else other, now)


def claim(book: JobTable, request: ClaimRequest, now: int) -> Claim:
    rescue(book, now, MAX_BATCH)
    book.promote(now)
    lanes = book.lanes(request.lanes)
    room_at, kept_back = None, False
    if book.limits and any(topic in book.limits for topic, _ in lanes):
        jobs, room_at, kept_back = topic_limits.choose_jobs(book, request, lanes, now)
        jobs, stopped_early = _cut_at_suspect(jobs, request.limit)
    else:
        jobs, stopped_early = _choose_jobs(book, request, lanes, now)
    next_due_in = 0.0 if stopped_early else _next_due_in(book, lanes, room_at, now)
    granted = []
    for job in jobs:
        lease_seconds = request.lease_seconds if job.lease_seconds is None else job.lease_seconds
        book.grant(job, request.worker, now + seconds_to_microseconds(lease_seconds), now)
        job.counts_if_lost = len(jobs) == 1 and not request.reports_starts
        topic_limits.advance_job_meters(book, job, now)
        granted.append(job.to_claimed(lease_seconds))
    return Claim(tuple(granted), next_due_in, kept_back)


def _next_due_in(book: JobTable, lanes: Lanes, room_at: int | None, now: int) -> float | None:
    """Seconds until a claim may find more: a delayed job, a lease that ends, a pause that ends, a rate that
    allows.

    Leases granted by the claim at hand are not looked at: their worker knows of them.
    """
    moments = [book.waiting.first_key(), book.leases.first_key(), room_at]
    moments += [book.paused_until(topic, now) for (topic, _), ready in lanes.items() if ready]
    moment = min((moment for moment in moments if moment is not None and moment < FOREVER), default=None)
    return None if moment is None else max(0, moment - now) / MICROSECONDS


def _choose_jobs(book: JobTable, request: ClaimRequest, lanes: Lanes, now: int) -> tuple[list[JobRow], bool]:
    """The best jobs across the lanes, taken out of them.

    True when the limit or a suspect ended the choice, so that asking again at once may find more.
    """
    room = dict(request.topic_limits)
    heads = [
        (-job.priority, job.number, ready)
        for (topic, _), ready in lanes.items()
        if not book.paused_until(topic, now) and (job := ready.first())
    ]
    heapq.heapify(heads)
    chosen: list[JobRow] = []
    while heads and len(chosen) < request.limit:
        ready = heads[0][2]
        job = ready.first()
        if job is None or room.get(job.topic, 1) <= 0:
            heapq.heappop(heads)
            continue
        if job.suspect and chosen:
            return chosen, True
        ready.remove(job)
        chosen.append(job)
        if job.suspect:
            return chosen, True
        if job.topic in room:
            room[job.topic] -= 1
        if following := ready.first():
            heapq.heapreplace(heads, (-following.priority, following.number, ready))
    return chosen, len(chosen) >= request.limit


def _cut_at_suspect(jobs: list[JobRow], limit: int) -> tuple[list[JobRow], bool]:
    """A suspect is the only one when it comes first, and the end of the choice otherwise. Best first."""
    stopped_early = len(jobs) >= limit
    suspect = next((position for position, job in enumerate(jobs) if job.suspect), None)
    if suspect is not None:
        stopped_early = True
        del jobs[max(suspect, 1) :]
    return sorted(jobs, key=lambda job: (-job.priority, job.number)), stopped_early


def rescue(book: JobTable, now: int, limit: int) -> RescueResult:
    """Up to ``limit`` ended leases, oldest end first; then as many expired jobs, those just returned too."""
    returned = failed = cancelled = expiries = 0
    while returned + failed + cancelled < limit and (job := book.leases.first_until(now)):
        error = worker_lost_error(job.attempt)
        lost = partial(_record_rescued, book, job, job.attempt, job.worker)
        job.timeouts += 1
        counted = job.counts_if_lost
        if not counted:
            job.attempt -= 1
        if job.cancel_requested:
            cancel_job(book, job, CANCELLED_ON_REQUEST, now)
            lost(CANCELLED_ON_REQUEST)
            cancelled += 1
            continue
        if counted:
            job.keep_attempt(error, now)
            if job.max_attempts is not None and job.attempt >= job.max_attempts:
                book.finish(job, State.FAILED, now)
                lost(error)
                failed += 1
                continue
        job.suspect = True  # it may have killed the worker, so its next grant is alone
        book.return_to_pending(job, job.run_at, now)
        lost(error)
        returned += 1
    while expiries < limit and (job := book.next_expired(book.guard.confirmed_time(now))):
        error = expired_error(job.run_at)
        cancel_job(book, job, error, now)
        _record_rescued(book, job, job.attempt, None, error)
        expiries += 1
    dependencies.release_dependents(book, now)
    return RescueResult(returned, failed, cancelled, expiries)


def _record_rescued(book: JobTable, job: JobRow, attempt: int, worker: str | None, error: JobError) -> None:
    book.rescued.append(
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


def cancel_job(book: JobTable, job: JobRow, error: JobError, now: int) -> None:
    """End a job without an attempt that could carry the reason: the summary does."""
    job.error_summary = summarise_error(error)
    book.finish(job, State.CANCELLED, now)


def settle(book: JobTable, settlement: Settlement, now: int) -> bool:
    job = book.job_under_lease(settlement.lease, now)
    if job is None:
        return False
    outcome = settlement.outcome
    _measure(book, job, settlement, now)
    match outcome:
        case Completed():
            job.result = outcome.result
            book.finish(job, State.COMPLETED, now)
        case Retried():
            job.keep_attempt(outcome.error, now)
            job.suspect = False  # its worker lived to tell
            if not job.cancel_requested and job.max_attempts is not None and job.attempt >= job.max_attempts:
                book.finish(job, State.FAILED, now)
                return True
            if not job.cancel_requested:
                tally = book.metrics.minute_at(now)
                tally.retried += 1
                tally.lane(job.topic, job.task).retried += 1
            _retry_or_cancel(book, job, outcome.delay, now)
        case Failed():
            job.origin = outcome.origin
            job.buries += outcome.origin is FailureOrigin.BURIED
            if outcome.priority is not None:
                job.priority = outcome.priority
            job.keep_attempt(outcome.error, now)
            book.finish(job, State.FAILED, now)
        case Released():
            release_job(book, job, outcome, now)
        case Cancelled():
            job.keep_attempt(outcome.error, now)
            book.finish(job, State.CANCELLED, now)
        case _:
            assert_never(outcome)
    return True


def release_job(book: JobTable, job: JobRow, released: Released, now: int) -> None:
    """Give a running job back. It stays suspect if it was: given back unstarted, it has proved nothing."""
    job.attempt -= 1
    if not job.cancel_requested:
        job.releases += released.counted
        job.reserves -= not released.taken
        if released.priority is not None:
            job.priority = released.priority
    _retry_or_cancel(book, job, released.delay, now)


def _retry_or_cancel(book: JobTable, job: JobRow, delay: float, now: int) -> None:
    if job.cancel_requested:
        cancel_job(book, job, CANCELLED_ON_REQUEST, now)
    elif delay > 0:
        book.return_to_pending(job, now + seconds_to_microseconds(delay), now)
    else:
        book.return_to_pending(
            job, job.run_at, now
        )  # it has been due all along; its wait is measured from there


def _measure(book: JobTable, job: JobRow, settlement: Settlement, now: int) -> None:
    """How long the handler ran, and how long the job had been due before."""
    if settlement.run_seconds is None:
        return
    run_time = max(0, seconds_to_microseconds(settlement.run_seconds))
    started_at = job.record_start(now - run_time)
    tally = book.metrics.minute_at(now)
    lane = tally.lane(job.topic, job.task)
    wait_time = max(0, started_at - job.run_at)
    tally.wait_time.add(wait_time)
    lane.waits += 1
    lane.wait_us += wait_time
    if isinstance(settlement.outcome, Completed | Retried | Failed):
        tally.run_time.add(run_time)
        lane.runs += 1
        lane.run_us += run_time
