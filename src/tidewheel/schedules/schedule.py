"""A schedule: its document, its public form, and the jobs that it creates when it fires.

Firing does no I/O: it returns the jobs that are due now and the schedule's next state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from tidewheel.core import headers, payload
from tidewheel.core.clock import MICROSECONDS, to_datetime
from tidewheel.core.cron import DueRuns, Timing, load_timing, next_runs
from tidewheel.core.ids import new_id
from tidewheel.core.model import BodyFormat, Document, NewDocument, NewJob
from tidewheel.core.names import MAX_NAME_LENGTH, shorten
from tidewheel.errors import InvalidInput

if TYPE_CHECKING:
    from tidewheel.tasks.registry import Registry

DOCUMENT_KIND: Final = "schedule"
MAX_PAYLOAD_BYTES: Final = 16 * 1024
"""Largest payload of a schedule: workers read it again and again."""
SHOWN_NEXT_RUNS: Final = 5
"""So many of the next firings are told."""
RENEW_SECONDS: Final = 600.0
"""How often workers say that their code still declares a schedule."""
UNDECLARED_SECONDS: Final = 1800.0
"""When nobody has said so for this long, the schedule is shown as gone from the code."""
OVERDUE_SECONDS: Final = 60.0
"""A firing that has waited so long has nobody to make its job."""

_name = re.compile(r"[A-Za-z0-9_.:@-]{1,200}")
_NO_ID: Final = UUID(int=0)


class ScheduleOrigin(StrEnum):
    """Where a schedule comes from."""

    DECLARED = "declared"
    """from code: workers write it when they start, and only those that declare it let it fire"""
    CREATED = "created"
    """at run time: any worker that knows its task lets it fire"""


class StoredSchedule(Struct, kw_only=True, omit_defaults=True):
    """What is kept. All times are microseconds of the store's clock."""

    when: dict[str, Any]
    job: NewJob  # each firing makes one like it
    origin: ScheduleOrigin
    fired_until: int  # firings up to here have been dealt with
    paused: bool = False
    declared_at: int | None = None
    fired: int = 0  # firings that made a job
    missed: int = 0  # firings that made none
    last_fire_time: int | None = None
    last_fired_at: int | None = None
    last_job_id: UUID | None = None
    trouble: str | None = None  # why the newest firing made no job
    trouble_at: int | None = None

    def same_work(self, other: StoredSchedule) -> bool:
        """Whether the same is to be done at the same times."""
        return self.when == other.when and self.job == other.job


_decoder = msgspec.json.Decoder(StoredSchedule)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is now. ``next_runs`` are the next five firings; none while it is paused."""

    name: str
    # None where this machine cannot read it, an unknown zone say; ``trouble`` has the reason.
    when: Timing | None
    task: str | None  # None: jobs for whoever takes them from the topic
    topic: str
    payload: Any
    options: Mapping[str, Any]
    origin: ScheduleOrigin
    paused: bool
    created_at: datetime
    updated_at: datetime
    next_runs: tuple[datetime, ...]
    last_fire_time: datetime | None  # the moment its newest job is for
    last_fired_at: datetime | None  # when that job was made
    last_job_id: UUID | None
    fired: int
    missed: int
    trouble: str | None
    trouble_at: datetime | None
    overdue_since: datetime | None  # a firing has waited since then, and no worker has made its job
    undeclared: bool  # declared by code that no worker has run for half an hour


def job_pattern(job: NewJob) -> NewJob:
    """What jobs of a schedule have in common; each gets an id of its own."""
    return msgspec.structs.replace(job, id=_NO_ID, row_filter=None)


def check_schedule_name(value: Any) -> str:
    """A name that is the same in a URL, on a command line and in a log."""
    # A URL with . or .. as a part is another URL: DELETE …/schedules/.. would be about all jobs.
    if not isinstance(value, str) or not _name.fullmatch(value) or value in {".", ".."}:
        raise InvalidInput(
            f"the name of the schedule is {shorten(value)}; "
            f"a name is 1 to {MAX_NAME_LENGTH} characters of A-Z a-z 0-9 _ . : @ -, and not . or .."
        )
    return value


def encode_schedule(name: str, stored: StoredSchedule, only_version: int) -> NewDocument:
    """The document, to be written over this version (0: only where there is none)."""
    return NewDocument(DOCUMENT_KIND, name, msgspec.json.encode(stored), expected_version=only_version)


def decode_schedule(document: Document) -> StoredSchedule:
    """What a document holds; ``InvalidInput`` for what this version of Tidewheel cannot read."""
    try:
        return _decoder.decode(document.body)
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidInput(f"schedule {shorten(document.id)} cannot be read: {error}") from None


def to_schedule(document: Document, now: int) -> Schedule:
    """A schedule for people, also one that cannot be read here."""
    try:
        body = decode_schedule(document)
    except InvalidInput as error:
        nothing = NewJob(id=_NO_ID, topic="unknown")
        body = StoredSchedule(
            when={}, job=nothing, origin=ScheduleOrigin.CREATED, fired_until=now, trouble=str(error)
        )
    trouble, when = body.trouble, None
    try:
        when = load_timing(body.when)
    except InvalidInput as error:
        trouble = trouble or str(error)
    runs: tuple[int, ...] = ()
    overdue = None
    if when is not None and not body.paused:
        runs = next_runs(when, body.fired_until, SHOWN_NEXT_RUNS)
        if runs and runs[0] <= now:  # it is late
            if runs[0] < now - OVERDUE_SECONDS * MICROSECONDS:
                overdue = to_datetime(runs[0])
            runs = next_runs(when, now, SHOWN_NEXT_RUNS)
    job = body.job
    undeclared = (
        body.origin is ScheduleOrigin.DECLARED
        and now - (body.declared_at or 0) > UNDECLARED_SECONDS * MICROSECONDS
    )
    return Schedule(
        name=document.id,
        when=when,
        task=job.task or None,
        topic=job.topic,
        payload=job.payload if job.format is BodyFormat.BYTES else payload.decode(job.payload),
        options=_options(job),
        origin=body.origin,
        paused=body.paused,
        created_at=to_datetime(document.created_at),
        updated_at=to_datetime(document.updated_at),
        next_runs=tuple(map(to_datetime, runs)),
        last_fire_time=_moment(body.last_fire_time),
        last_fired_at=_moment(body.last_fired_at),
        last_job_id=body.last_job_id,
        fired=body.fired,
        missed=body.missed,
        trouble=trouble,
        trouble_at=_moment(body.trouble_at),
        overdue_since=overdue,
        undeclared=undeclared,
    )


_OPTIONS: Final = {
    "tenant": "tenant",
    "priority": "priority",
    "max_attempts": "max_attempts",
    "timeout": "timeout",
    "key": "key",
    "key_until": "until",
    "on_duplicate": "on_duplicate",
    "expires_in": "expires",
    "retention": "retention",
    "retention_failed": "retention_failed",
    "correlation_id": "correlation_id",
    "user_id": "user_id",
    "service_id": "service_id",
    "limit_key": "limit_key",
}
"""Fields of a job, and the options that set them."""


def _options(job: NewJob) -> dict[str, Any]:
    """What its jobs are like, by the names of the options; what only a key makes sense of goes with it."""
    found = {option: getattr(job, field) for field, option in _OPTIONS.items()}
    if job.key is None:
        del found["until"], found["on_duplicate"]
    return found


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else to_datetime(microseconds)


MAX_PROBLEM_LENGTH: Final = 500
"""Longest reason that is kept, in characters."""


def can_fire_here(registry: Registry, name: str, stored: StoredSchedule) -> bool:
    """Whether this app's workers let it fire.

    One of the code's: where the code still declares it. Any other: where its task is known, whose signature
    the payload has to fit; or anywhere, if it is for whoever takes jobs of a topic.
    """
    if stored.origin is ScheduleOrigin.DECLARED:
        return name in registry.schedules
    return not stored.job.task or registry.find(stored.job.task) is not None


def make_firing_job(name: str, stored: StoredSchedule, fire_time: int) -> NewJob:
    """The job of one firing."""
    entries = {
        **headers.read_headers(stored.job.headers),
        headers.SCHEDULE_HEADER: name,
        headers.FIRE_TIME_HEADER: to_datetime(fire_time).isoformat(),
    }
    return structs.replace(stored.job, id=new_id(), headers=headers.write_headers(entries))


def check_payload(registry: Registry, stored: StoredSchedule) -> None:
    """``InvalidPayload`` when the payload does not fit the task any more."""
    job = stored.job
    task = registry.find(job.task) if job.task else registry.resolve(job.topic, "")
    if task is not None:
        task.decode(job.payload, job.format)


def fire_due(
    registry: Registry, name: str, stored: StoredSchedule, due: DueRuns, now: int
) -> tuple[StoredSchedule, list[NewJob]]:
    """The jobs of what is due, and the schedule after it.

    A payload that does not fit makes no jobs. That is remembered, and the schedule goes on.
    """
    firings = due.firings
    after = structs.replace(stored, fired_until=due.until, missed=stored.missed + due.dropped)
    if not firings:
        return after, []
    try:
        check_payload(registry, stored)
    except Exception as error:  # also of a validator of the user's, which must not end the worker
        after.missed += len(firings)
        # Without the value, where the message has one: more people see schedules than may see payloads.
        words = getattr(error, "kept", None) or str(error)
        said = words if isinstance(error, InvalidInput) else f"{type(error).__name__}: {words}"
        return record_problem(after, said, now), []
    jobs = [make_firing_job(name, stored, at) for at in firings]
    return record_run(after, jobs, firings[-1], now), jobs


def record_run(stored: StoredSchedule, jobs: list[NewJob], fire_time: int, now: int) -> StoredSchedule:
    """The schedule after these jobs were made."""
    return structs.replace(
        stored,
        fired=stored.fired + len(jobs),
        last_fire_time=fire_time,
        last_fired_at=now,
        last_job_id=jobs[-1].id,
        trouble=None,
        trouble_at=None,
    )


def record_problem(stored: StoredSchedule, reason: str, now: int) -> StoredSchedule:
    """The schedule when it could make no job, and why."""
    return structs.replace(stored, trouble=reason[:MAX_PROBLEM_LENGTH], trouble_at=now)
