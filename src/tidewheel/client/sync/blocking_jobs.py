"""The twins behind ``.sync``, written by ``scripts/make_blocking_twins.py``: do not edit."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack
from uuid import UUID

from tidewheel.client.sync.portal import BlockingWrapper
from tidewheel.stores.bounds import MAX_DEPENDENTS

if TYPE_CHECKING:
    from tidewheel.client.job_handle import Attempt, Job, Step
    from tidewheel.core.model import Dependents, JobError, JobRecord, Progress, Relative, State
    from tidewheel.core.timeline import TimelineEntry
    from tidewheel.tasks.options import EnqueueOptions
    from tidewheel.tasks.task import BoundTask, Task

P = ParamSpec("P")
R = TypeVar("R")


class BlockingJob(BlockingWrapper["Job[R]"], Generic[R]):
    """Blocking twin of :class:`~tidewheel.client.job_handle.Job`."""

    @property
    def duplicate(self) -> bool:
        """Whether this enqueue found its key taken, and this is the job that holds it."""
        return self._inner.duplicate

    @property
    def replaced(self) -> bool:
        """Whether that job took over the new payload (``on_duplicate="replace"``)."""
        return self._inner.replaced

    @property
    def record(self) -> JobRecord:
        """Everything the store said, in its own units."""
        return self._inner.record

    @property
    def id(self) -> UUID:
        """Time-ordered and unique (UUIDv7)."""
        return self._inner.id

    @property
    def number(self) -> int:
        """Store-wide, in enqueue order."""
        return self._inner.number

    @property
    def topic(self) -> str:
        """The lane it waits in."""
        return self._inner.topic

    @property
    def task(self) -> str:
        """The name of its task; empty when it was enqueued by a bare topic."""
        return self._inner.task

    @property
    def tenant(self) -> str:
        """Whom it belongs to."""
        return self._inner.tenant

    @property
    def priority(self) -> int:
        """Higher runs first."""
        return self._inner.priority

    @property
    def key(self) -> str | None:
        """What makes it unique within its tenant and task."""
        return self._inner.key

    @property
    def correlation_id(self) -> str | None:
        """What it belongs together with, in the caller's words."""
        return self._inner.correlation_id

    @property
    def limit_key(self) -> str | None:
        """Which jobs of its topic and tenant it is limited together with, where the topic has such limits."""
        return self._inner.limit_key

    @property
    def user_id(self) -> str | None:
        """On whose behalf it runs."""
        return self._inner.user_id

    @property
    def service_id(self) -> str | None:
        """Which service asked for it."""
        return self._inner.service_id

    @property
    def max_attempts(self) -> int | None:
        """How many attempts it gets; None is unlimited."""
        return self._inner.max_attempts

    @property
    def timeout(self) -> float | None:
        """Seconds one attempt may run; None is no timeout."""
        return self._inner.timeout

    @property
    def payload(self) -> Any:
        """The JSON it was given (or raw bytes); None when bodies are not loaded, or were never written."""
        return self._inner.payload

    @property
    def state(self) -> State:
        """The stored state. It is also a plain string: ``job.state == "failed"``."""
        return self._inner.state

    @property
    def shown_state(self) -> str:
        """The finest name for its state: ``delayed``, ``retrying``, ``blocked`` and ``claimed`` included."""
        return self._inner.shown_state

    @property
    def attempt(self) -> int:
        """How many attempts have been counted, a running one included."""
        return self._inner.attempt

    @property
    def worker(self) -> str | None:
        """Who holds it or held it last."""
        return self._inner.worker

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked a running job to stop."""
        return self._inner.cancel_requested

    @property
    def progress(self) -> Progress | None:
        """How far its handler says it is."""
        return self._inner.progress

    @property
    def checkpoint(self) -> Any:
        """What its handler asked to be remembered."""
        return self._inner.checkpoint

    @property
    def error(self) -> JobError | None:
        """Why it errored, was cancelled or expired, whatever came last."""
        return self._inner.error

    @property
    def error_summary(self) -> str | None:
        """The newest error in one line; lists carry it too."""
        return self._inner.error_summary

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts that errored, oldest first: the first ten and the last ten."""
        return self._inner.attempts

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps its runs have finished, in that order."""
        return self._inner.steps

    @property
    def after(self) -> tuple[Relative, ...]:
        """The jobs it runs after. A job just enqueued knows how those are after :meth:`refresh`."""
        return self._inner.after

    @property
    def after_any(self) -> bool:
        """Whether it runs however those end."""
        return self._inner.after_any

    @property
    def timeline(self) -> tuple[TimelineEntry, ...]:
        """What is known to have happened to it, in order, derived from all of the above."""
        return self._inner.timeline

    @property
    def created_at(self) -> datetime:
        """When it was enqueued."""
        return self._inner.created_at

    @property
    def run_at(self) -> datetime:
        """When it is, or was, due."""
        return self._inner.run_at

    @property
    def claimed_at(self) -> datetime | None:
        """When a worker last took it."""
        return self._inner.claimed_at

    @property
    def started_at(self) -> datetime | None:
        """When its handler last began."""
        return self._inner.started_at

    @property
    def finished_at(self) -> datetime | None:
        """When it reached its final state."""
        return self._inner.finished_at

    @property
    def leased_until(self) -> datetime | None:
        """Until when its worker holds it without a further sign of life."""
        return self._inner.leased_until

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job to finish and answer what its handler returned.

        Raises ``JobFailed`` or ``JobCancelled`` when it ended so, ``ResultTimeout`` after ``timeout`` seconds
        (the job goes on), ``JobNotFound`` when it has been deleted.
        """
        return self._portal.run(self._inner.result, timeout)

    def refresh(self) -> BlockingJob[R]:
        """Look again, bodies included. ``JobNotFound`` when the job is gone."""
        return BlockingJob(self._portal.run(self._inner.refresh), self._portal)

    def dependents(self, limit: int = MAX_DEPENDENTS) -> Dependents:
        """The jobs that run after it, lowest number first and at most 200, and how many there are."""
        return self._portal.run(self._inner.dependents, limit)

    def cancel(self) -> bool:
        """Cancel it: True when it ended at once, False when its worker has been asked to stop."""
        return self._portal.run(self._inner.cancel)

    def take_back(self) -> None:
        """Take it from its holder: it is pending again, and the attempt is not counted."""
        self._portal.run(self._inner.take_back)

    def requeue(self) -> None:
        """Run a failed or cancelled job again: attempts from 1, after its finished steps and checkpoint."""
        self._portal.run(self._inner.requeue)

    def delete(self) -> None:
        """Remove it with everything that belongs to it. A running job is refused."""
        self._portal.run(self._inner.delete)


class BlockingTask(BlockingWrapper["Task[P, R]"], Generic[P, R]):
    """Blocking twin of :class:`~tidewheel.tasks.task.Task`."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> BlockingJob[R]:
        """Make a job of this call. The arguments are checked against the signature first."""
        return BlockingJob(self._portal.run(self._inner.enqueue, *args, **kwargs), self._portal)

    def enqueue_many(self, payloads: Iterable[Any]) -> list[BlockingJob[R]]:
        """One job for each payload, written together, handles in the same order.

        A payload is a mapping of the function's parameters, or the object (or bytes) it takes. All of them
        are checked before the first is written.
        """
        return [
            BlockingJob(item, self._portal) for item in self._portal.run(self._inner.enqueue_many, payloads)
        ]

    def options(self, **options: Unpack[EnqueueOptions]) -> BlockingBoundTask[P, R]:
        """The task with options for the jobs to come: ``send.options(delay=60).enqueue(...)``."""
        return BlockingBoundTask(self._inner.options(**options), self._portal)


class BlockingBoundTask(BlockingWrapper["BoundTask[P, R]"], Generic[P, R]):
    """Blocking twin of :class:`~tidewheel.tasks.task.BoundTask`."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> BlockingJob[R]:
        """Make a job of this call. The arguments are checked against the signature first."""
        return BlockingJob(self._portal.run(self._inner.enqueue, *args, **kwargs), self._portal)

    def enqueue_many(self, payloads: Iterable[Any]) -> list[BlockingJob[R]]:
        """One job for each payload, written together, handles in order. See ``Task.enqueue_many``."""
        return [
            BlockingJob(item, self._portal) for item in self._portal.run(self._inner.enqueue_many, payloads)
        ]

    def options(self, **options: Unpack[EnqueueOptions]) -> BlockingBoundTask[P, R]:
        """More options, laid over these."""
        return BlockingBoundTask(self._inner.options(**options), self._portal)
