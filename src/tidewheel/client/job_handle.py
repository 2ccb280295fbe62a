"""The handle on one job, and a page of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from uuid import UUID

from msgspec import Struct

from tidewheel.client import visibility
from tidewheel.client.sync.blocking_jobs import BlockingJob
from tidewheel.core import payload
from tidewheel.core.clock import to_datetime
from tidewheel.core.model import (
    BodyFormat,
    Dependents,
    Enqueued,
    JobError,
    JobRecord,
    NewJob,
    Progress,
    Relative,
    State,
)
from tidewheel.core.security_context import (
    SecurityContext,
    acting_as,
    current_context,
    effective_tenant,
)
from tidewheel.core.timeline import TimelineEntry, timeline
from tidewheel.core.urls import is_http_url
from tidewheel.stores.bounds import MAX_DEPENDENTS

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that did not complete."""

    attempt: int
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    error: JobError


@dataclass(frozen=True, slots=True)
class Step:
    """One finished step."""

    name: str
    output: Any
    attempt: int
    worker: str | None
    started_at: datetime
    finished_at: datetime

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return (self.finished_at - self.started_at).total_seconds()


class EnqueuedJob(Struct, frozen=True, gc=False):
    """A job just written: what was asked for, and what the store made of it."""

    job: NewJob
    result: Enqueued

    @property
    def id(self) -> UUID:
        return self.result.job_id

    @property
    def number(self) -> int:
        return self.result.number

    def record(self) -> JobRecord:
        """The job as the store would show it, without asking again."""
        job, answer = self.job, self.result
        return JobRecord(
            id=answer.job_id,
            number=answer.number,
            tenant=job.tenant,
            topic=job.topic,
            task=job.task,
            state=State.PENDING,
            priority=job.priority,
            attempt=0,
            max_attempts=job.max_attempts,
            created_at=answer.created_at,
            run_at=answer.run_at,
            timeout=job.timeout,
            key=job.key,
            correlation_id=job.correlation_id,
            user_id=job.user_id,
            service_id=job.service_id,
            limit_key=job.limit_key,
            format=job.format,
            retry=job.retry,
            headers=job.headers,
            payload=job.payload,
            after=tuple([Relative(parent, None, waits=True) for parent in job.after]),
            after_any=job.after_any,
        )


class Job(Generic[R]):
    """One job as last seen. Fields do not change by themselves; :meth:`refresh` looks again.

    Jobs from a list carry no bodies: ``payload``, ``checkpoint``, ``attempts``, ``steps`` and ``error`` are
    empty there until :meth:`refresh`, and ``timeline`` knows of no errors.
    """

    duplicate: bool
    """Whether this enqueue found its key taken, and this is the job that holds it."""
    replaced: bool
    """Whether that job took over the new payload (``on_duplicate="replace"``)."""

    def __init__(
        self,
        app: Tidewheel,
        seen: JobRecord | EnqueuedJob,
        *,
        duplicate: bool = False,
        replaced: bool = False,
    ) -> None:
        self._app = app
        self._record = seen
        self.duplicate = duplicate
        self.replaced = replaced

    def __repr__(self) -> str:
        record = self.record
        return f"<Job {record.id} {record.task or record.topic} {record.state}>"

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def record(self) -> JobRecord:
        """Everything the store said, in its own units."""
        seen = self._record
        if isinstance(seen, EnqueuedJob):  # put together when it is asked for: many who enqueue never do
            seen = self._record = seen.record()
        return seen

    # -- what it is -------------------------------------------------------------------------------------

    @property
    def id(self) -> UUID:
        """Time-ordered and unique (UUIDv7)."""
        return self._record.id

    @property
    def number(self) -> int:
        """Store-wide, in enqueue order."""
        return self._record.number

    @property
    def topic(self) -> str:
        """The lane it waits in."""
        return self.record.topic

    @property
    def task(self) -> str:
        """The name of its task; empty when it was enqueued by a bare topic."""
        return self.record.task

    @property
    def tenant(self) -> str:
        """Whom it belongs to."""
        return self.record.tenant

    @property
    def priority(self) -> int:
        """Higher runs first."""
        return self.record.priority

    @property
    def key(self) -> str | None:
        """What makes it unique within its tenant and task."""
        return self.record.key

    @property
    def correlation_id(self) -> str | None:
        """What it belongs together with, in the caller's words."""
        return self.record.correlation_id

    @property
    def limit_key(self) -> str | None:
        """Which jobs of its topic and tenant it is limited together with, where the topic has such limits."""
        return self.record.limit_key

    @property
    def user_id(self) -> str | None:
        """On whose behalf it runs."""
        return self.record.user_id

    @property
    def service_id(self) -> str | None:
        """Which service asked for it."""
        return self.record.service_id

    @property
    def max_attempts(self) -> int | None:
        """How many attempts it gets; None is unlimited."""
        return self.record.max_attempts

    @property
    def timeout(self) -> float | None:
        """Seconds one attempt may run; None is no timeout."""
        return self.record.timeout

    @property
    def payload(self) -> Any:
        """The JSON it was given (or raw bytes); None when bodies are not loaded, or were never written."""
        body = self.record.payload
        if body is None or self.record.format is BodyFormat.BYTES:
            return body
        return payload.decode(body)

    # -- how it is doing --------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The stored state. It is also a plain string: ``job.state == "failed"``."""
        return self.record.state

    @property
    def shown_state(self) -> str:
        """The finest name for its state: ``delayed``, ``retrying``, ``blocked`` and ``claimed`` included."""
        return str(self.record.shown_state(self._app.clock.now()))

    @property
    def attempt(self) -> int:
        """How many attempts have been counted, a running one included."""
        return self.record.attempt

    @property
    def worker(self) -> str | None:
        """Who holds it or held it last."""
        return self.record.worker

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked a running job to stop."""
        return self.record.cancel_requested

    @property
    def progress(self) -> Progress | None:
        """How far its handler says it is."""
        return self.record.progress

    @property
    def checkpoint(self) -> Any:
        """What its handler asked to be remembered."""
        body = self.record.checkpoint
        return None if body is None else payload.decode(body)

    @property
    def error(self) -> JobError | None:
        """Why it errored, was cancelled or expired, whatever came last."""
        return self.record.newest_error

    @property
    def error_summary(self) -> str | None:
        """The newest error in one line; lists carry it too."""
        return self.record.error_summary

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts that errored, oldest first: the first ten and the last ten."""
        return tuple(
            Attempt(
                attempt=kept.attempt,
                worker=kept.worker,
                started_at=_moment(kept.started_at),
                ended_at=to_datetime(kept.ended_at),
                error=kept.error,
            )
            for kept in self.record.attempts
        )

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps its runs have finished, in that order."""
        return tuple(
            Step(
                name=kept.name,
                output=payload.decode(kept.output),
                attempt=kept.attempt,
                worker=kept.worker,
                started_at=to_datetime(kept.started_at),
                finished_at=to_datetime(kept.finished_at),
            )
            for kept in self.record.steps
        )

    @property
    def after(self) -> tuple[Relative, ...]:
        """The jobs it runs after. A job just enqueued knows how those are after :meth:`refresh`."""
        return self.record.after

    @property
    def after_any(self) -> bool:
        """Whether it runs however those end."""
        return self.record.after_any

    @property
    def timeline(self) -> tuple[TimelineEntry, ...]:
        """What is known to have happened to it, in order, derived from all of the above."""
        return timeline(self.record)

    @property
    def created_at(self) -> datetime:
        """When it was enqueued."""
        return to_datetime(self.record.created_at)

    @property
    def run_at(self) -> datetime:
        """When it is, or was, due."""
        return to_datetime(self.record.run_at)

    @property
    def claimed_at(self) -> datetime | None:
        """When a worker last took it."""
        return _moment(self.record.claimed_at)

    @property
    def started_at(self) -> datetime | None:
        """When its handler last began."""
        return _moment(self.record.started_at)

    @property
    def finished_at(self) -> datetime | None:
        """When it reached its final state."""
        return _moment(self.record.finished_at)

    @property
    def leased_until(self) -> datetime | None:
        """Until when its worker holds it without a further sign of life."""
        return _moment(self.record.leased_until)

    # -- what can be done with it -----------------------------------------------------------------------

    async def result(self, timeout: float | None = None) -> R:
        """Wait for the job to finish and answer what its handler returned.

        Raises ``JobFailed`` or ``JobCancelled`` when it ended so, ``ResultTimeout`` after ``timeout`` seconds
        (the job goes on), ``JobNotFound`` when it has been deleted.
        """
        with self._as_owner():
            return cast("R", await self._app.result(self.id, timeout))

    async def refresh(self) -> Job[R]:
        """Look again, bodies included. ``JobNotFound`` when the job is gone."""
        with self._as_owner():
            self._record = (await self._app.get(self.id)).record
        return self

    async def dependents(self, limit: int = MAX_DEPENDENTS) -> Dependents:
        """The jobs that run after it, lowest number first and at most 200, and how many there are."""
        with self._as_owner():
            tenant = effective_tenant(uuids=self._app.settings.tenant_uuids)
            return await visibility.visible_dependents(self._app.store, self.id, limit, tenant)

    async def cancel(self) -> bool:
        """Cancel it: True when it ended at once, False when its worker has been asked to stop."""
        with self._as_owner():
            ended = await self._app.cancel(self.id)
        await self.refresh()
        return ended

    async def take_back(self) -> None:
        """Take it from its holder: it is pending again, and the attempt is not counted."""
        with self._as_owner():
            await self._app.take_back(self.id)
        await self.refresh()

    async def requeue(self) -> None:
        """Run a failed or cancelled job again: attempts from 1, after its finished steps and checkpoint."""
        with self._as_owner():
            await self._app.requeue(self.id)
        await self.refresh()

    async def delete(self) -> None:
        """Remove it with everything that belongs to it. A running job is refused."""
        with self._as_owner():
            await self._app.delete(self.id)

    def _as_owner(self) -> AbstractContextManager[object]:
        """Code that acts for all tenants asks for the job's own: row-level security may hold it to one.

        Over HTTP the token says whose jobs there are, and whose a new one is has not been told.
        """
        if current_context() is not None or is_http_url(self._app.url):
            return nullcontext()
        return acting_as(SecurityContext(self.tenant, allow_root=True))

    @property
    def sync(self) -> BlockingJob[R]:
        """The same handle with blocking calls."""
        return BlockingJob(self, self._app.portal)


@dataclass(frozen=True, slots=True)
class JobPage(Generic[T]):
    """Some jobs, newest first. Pass ``cursor`` back for the next page; None means there is none."""

    items: tuple[T, ...]
    cursor: int | None
    total: int
    total_exact: bool  # False: there are at least ``total``
    limit: int
    offset: int
    partial: bool = False  # a search ran out of time; ``cursor`` continues it
    searched_back_to: datetime | None = None  # how far a partial search came

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> T:
        return self.items[index]

    def map(self, function: Callable[[T], U]) -> JobPage[U]:
        """The same page with other handles."""
        return JobPage(
            tuple(function(item) for item in self.items),
            self.cursor,
            self.total,
            self.total_exact,
            self.limit,
            self.offset,
            self.partial,
            self.searched_back_to,
        )


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else to_datetime(microseconds)
