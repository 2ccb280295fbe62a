"""The life of a job in entries, derived from its record. No I/O.

Nothing is written for it: a record tells when a job was made, claimed, started and finished, and which
attempts errored. An entry has the same id whenever its job is looked at, so that whoever looks twice can tell
what is new.

What a record does not tell is not here. It forgets a claim and a start that were given back, an ending that
was followed by a requeue, and, but for the first and the last ten, attempts that errored; of due times and
progress it knows the latest. Whoever watches a job as it lives sees those as well, each once. It does not
know when a cancellation was requested or a job requeued: those entries have no time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from tidewheel.core.clock import MICROSECONDS, to_datetime
from tidewheel.core.model import AttemptRecord, JobError, JobRecord, Progress, State

MIN_TRUNCATED_ATTEMPTS = 20
"""A record with so many attempts may have lost some: those between its first ten and its last ten."""


class Happening(StrEnum):
    """What an entry tells."""

    ENQUEUED = "enqueued"
    BLOCKED = "blocked"
    """it waits for other jobs; told as long as it does"""
    DELAYED = "delayed"
    """it is due later, ``until`` says when"""
    CLAIMED = "claimed"
    STARTED = "started"
    STEP = "step"
    """a step finished"""
    PROGRESS = "progress"
    """the latest its handler reported"""
    ERRORED = "errored"
    """an attempt ended with an error"""
    RETRYING = "retrying"
    """it is due again, ``until`` says when"""
    CANCEL_REQUESTED = "cancel_requested"
    REQUEUED = "requeued"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class TimelineEntry(Struct, frozen=True, kw_only=True, gc=False):
    """Something that happened to a job."""

    id: str  # among the entries of its job; the same whenever it is looked at
    what: Happening
    at: datetime | None  # None: nobody wrote down when
    until: datetime | None = None
    attempt: int | None = None
    worker: str | None = None
    seconds: float | None = None  # how long what ended had taken
    error: JobError | None = None
    step: str | None = None
    progress: Progress | None = None


def timeline(job: JobRecord) -> tuple[TimelineEntry, ...]:
    """What is known to have happened, in order. Needs a record that has its attempts and steps."""
    entries: dict[str, TimelineEntry] = {}
    moment = job.created_at
    keys: dict[str, int] = {}
    for at, entry in _entries(job):
        if entry.id in entries:  # the start of an attempt that ended the job is told by both
            continue
        moment = moment if at is None else at  # what has no time stays behind what it followed
        entries[entry.id] = entry
        keys[entry.id] = moment
    return tuple(sorted(entries.values(), key=lambda entry: keys[entry.id]))


def _entries(job: JobRecord) -> Iterator[tuple[int | None, TimelineEntry]]:
    """The entries with their times; of equal times in the order in which things happen."""
    yield _entry(Happening.ENQUEUED, job.created_at, "enqueued")
    requeued = _requeued_since_last_error(job)
    if job.blocked:
        yield (
            (None if requeued else job.created_at),
            TimelineEntry(
                id=f"blocked-{job.kicks}",
                what=Happening.BLOCKED,
                at=None if requeued else to_datetime(job.created_at),
            ),
        )
    if not job.attempts and not requeued and _was_delayed(job):
        delayed = f"delayed-{job.run_at}"
        yield _entry(Happening.DELAYED, job.created_at, delayed, until=to_datetime(job.run_at))
    yield from _error_entries(job)
    last = job.attempts[-1] if job.attempts else None
    if requeued:
        yield None, _requeued_after(last)
    elif last is not None and _waited_after(last, job):
        yield _entry(
            Happening.RETRYING,
            last.ended_at,
            f"retrying-{last.attempt}-{job.run_at}",
            until=to_datetime(max(last.ended_at, job.run_at)),
            attempt=last.attempt,
        )
    yield from _current_run(job)
    for step in job.steps:
        yield _entry(
            Happening.STEP,
            step.finished_at,
            f"step-{step.name}",
            attempt=step.attempt,
            worker=step.worker,
            seconds=_seconds(step.started_at, step.finished_at),
            step=step.name,
        )
    if (progress := job.progress) is not None and job.state is not State.COMPLETED:
        reported = f"progress-{progress.updated_at}"
        yield _entry(Happening.PROGRESS, progress.updated_at, reported, progress=progress)
    if job.cancel_requested:
        requested = f"cancel_requested-{job.claimed_at}"
        yield None, TimelineEntry(id=requested, what=Happening.CANCEL_REQUESTED, at=None)
    if job.state.final and job.finished_at is not None:
        yield _entry(
            Happening(job.state),
            job.finished_at,
            f"{job.state}-{job.finished_at}",
            attempt=job.attempt or None,
            worker=job.worker,
            seconds=_seconds(job.started_at, job.finished_at),
            error=None if job.state is State.COMPLETED else job.newest_error,
        )


def _current_run(job: JobRecord) -> Iterator[tuple[int | None, TimelineEntry]]:
    """The claim and the start the record itself has: of the run at hand, or the last one."""
    # A cancelled job may have got its attempt back: which one it was cannot be told.
    attempt = None if job.state is State.CANCELLED else job.attempt
    if job.claimed_at is not None:
        claimed = f"claimed-{job.claimed_at}"
        yield _entry(Happening.CLAIMED, job.claimed_at, claimed, attempt=attempt, worker=job.worker)
    if job.started_at is not None:
        started = f"started-{job.started_at}"
        yield _entry(Happening.STARTED, job.started_at, started, attempt=attempt, worker=job.worker)


def _error_entries(job: JobRecord) -> Iterator[tuple[int | None, TimelineEntry]]:
    """The attempts that errored, and the requeues between them."""
    whole = len(job.attempts) < MIN_TRUNCATED_ATTEMPTS
    before: AttemptRecord | None = None
    for position, kept in enumerate(job.attempts):
        # Attempts may be missing in the middle. Whatever happened there was told when it could be.
        certain = whole or position != MIN_TRUNCATED_ATTEMPTS // 2
        if before is not None and certain and kept.attempt <= before.attempt:
            yield None, _requeued_after(before)
        if kept.started_at is not None:
            yield _entry(
                Happening.STARTED,
                kept.started_at,
                f"started-{kept.started_at}",
                attempt=kept.attempt,
                worker=kept.worker,
            )
        yield _entry(
            Happening.ERRORED,
            kept.ended_at,
            f"errored-{kept.attempt}-{kept.ended_at}",
            attempt=kept.attempt,
            worker=kept.worker,
            seconds=_seconds(kept.started_at, kept.ended_at),
            error=kept.error,
        )
        before = kept


def _was_delayed(job: JobRecord) -> bool:
    # A job that was cancelled, requeued and cancelled again looks like a delayed one, but for this.
    surely = job.state is not State.CANCELLED or job.finished_at is None or job.run_at > job.finished_at
    return job.run_at > job.created_at and surely


def _waited_after(last: AttemptRecord, job: JobRecord) -> bool:
    """Whether ``run_at`` is still the due time given after this attempt."""
    if job.state is State.PENDING:
        return job.attempt == last.attempt
    return job.state in (State.RUNNING, State.COMPLETED) and job.attempt == last.attempt + 1


def _requeued_since_last_error(job: JobRecord) -> bool:
    """Attempts only grow, but for a requeue; and only what had ended has a reason without an attempt."""
    if not job.attempts:
        return job.error_summary is not None and job.state is not State.CANCELLED
    newest = job.attempts[-1].attempt
    if job.state in (State.RUNNING, State.COMPLETED):
        return job.attempt <= newest
    return job.attempt < newest


def _requeued_after(last: AttemptRecord | None) -> TimelineEntry:
    after = "the beginning" if last is None else last.ended_at
    return TimelineEntry(id=f"requeued-after-{after}", what=Happening.REQUEUED, at=None)


def _entry(
    what: Happening,
    at: int,
    entry_id: str,
    *,
    until: datetime | None = None,
    attempt: int | None = None,
    worker: str | None = None,
    seconds: float | None = None,
    error: JobError | None = None,
    step: str | None = None,
    progress: Progress | None = None,
) -> tuple[int, TimelineEntry]:
    return at, TimelineEntry(
        id=entry_id,
        what=what,
        at=to_datetime(at),
        until=until,
        attempt=attempt,
        worker=worker,
        seconds=seconds,
        error=error,
        step=step,
        progress=progress,
    )


def _seconds(began: int | None, ended: int) -> float | None:
    return None if began is None else (ended - began) / MICROSECONDS
