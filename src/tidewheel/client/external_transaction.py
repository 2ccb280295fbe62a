"""``task.using(connection)``: jobs that are part of the caller's own transaction.

The job exists when that transaction commits, and not at all when it is rolled back. On a connection whose
calls block, so do these; on one whose calls are awaited, these are. Nothing has to be open for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar

from tidewheel.client.drivers import wrap_connection
from tidewheel.client.drivers.base import AsyncExternalConnection, ExternalConnection
from tidewheel.client.job_handle import EnqueuedJob, Job
from tidewheel.core.model import Enqueued, NewJob
from tidewheel.errors import InvalidInput, StoreUnavailable
from tidewheel.stores.external_transaction import ExternalEnqueueResult, TransactionSteps, UncommittedEnqueue

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.client.sync.blocking_jobs import BlockingJob
    from tidewheel.tasks.options import JobTemplate
    from tidewheel.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger("tidewheel")

_MAX_TRIES: Final = 5
"""How often a job is offered again whose duplicate vanished before it could be read."""


class AsyncConnection(Protocol):
    """For type checkers: a connection whose calls are awaited."""

    @property
    def execute(self) -> Callable[..., Awaitable[Any]]: ...


class UsingTask(Generic[P, R]):
    """A task on a connection whose calls block. Made by :meth:`Task.using`."""

    def __init__(self, task: Task[P, R], template: JobTemplate, external: ExternalConnection) -> None:
        self._task = task
        self._template = template
        self._borrowed = external

    def __repr__(self) -> str:
        return f"<UsingTask {self._task.name} on {self._borrowed.dialect}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> BlockingJob[R]:
        """Make a job of this call, as part of the connection's transaction."""
        job = self._task.job_for_call(self._template, args, kwargs)
        return _enqueue(self._task.app, (job,), self._borrowed)[0]

    def enqueue_many(self, payloads: Iterable[Any]) -> list[BlockingJob[R]]:
        """One job for each payload, handles in the same order. See ``Task.enqueue_many``."""
        jobs = self._task.jobs_for_payloads(self._template, payloads)
        return _enqueue(self._task.app, jobs, self._borrowed)


class AsyncUsingTask(Generic[P, R]):
    """A task on a connection whose calls are awaited. Made by :meth:`Task.using`."""

    def __init__(self, task: Task[P, R], template: JobTemplate, external: AsyncExternalConnection) -> None:
        self._task = task
        self._template = template
        self._borrowed = external

    def __repr__(self) -> str:
        return f"<AsyncUsingTask {self._task.name} on {self._borrowed.dialect}>"

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Make a job of this call, as part of the connection's transaction."""
        job = self._task.job_for_call(self._template, args, kwargs)
        return (await _enqueue_async(self._task.app, (job,), self._borrowed))[0]

    async def enqueue_many(self, payloads: Iterable[Any]) -> list[Job[R]]:
        """One job for each payload, handles in the same order. See ``Task.enqueue_many``."""
        jobs = self._task.jobs_for_payloads(self._template, payloads)
        return await _enqueue_async(self._task.app, jobs, self._borrowed)


def bind_task(
    task: Task[P, R], template: JobTemplate, connection: object
) -> UsingTask[P, R] | AsyncUsingTask[P, R]:
    """The task on this connection, whatever kind it is."""
    external = wrap_connection(connection)
    if isinstance(external, AsyncExternalConnection):
        return AsyncUsingTask(task, template, external)
    return UsingTask(task, template, external)


def enqueue_externally(
    app: Tidewheel, jobs: Sequence[NewJob], connection: object
) -> list[BlockingJob[Any]] | Coroutine[Any, Any, list[Job[Any]]]:
    """Checked jobs on this connection: their handles, or a coroutine of them."""
    external = wrap_connection(connection)
    if isinstance(external, AsyncExternalConnection):
        return _enqueue_async(app, jobs, external)
    return _enqueue(app, jobs, external)


def first_handle(
    handles: list[BlockingJob[Any]] | Coroutine[Any, Any, list[Job[Any]]],
) -> BlockingJob[Any] | Coroutine[Any, Any, Job[Any]]:
    """Of a single job."""
    return handles[0] if isinstance(handles, list) else _first_handle(handles)


async def _first_handle(handles: Coroutine[Any, Any, list[Job[Any]]]) -> Job[Any]:
    return (await handles)[0]


def _enqueue(app: Tidewheel, jobs: Sequence[NewJob], external: ExternalConnection) -> list[BlockingJob[Any]]:
    handles, uncommitted = external.run_steps(_enqueue_steps(app, jobs, external.dialect))
    _notify_on_commit(app, uncommitted)
    return [handle.sync for handle in handles]


async def _enqueue_async(
    app: Tidewheel, jobs: Sequence[NewJob], external: AsyncExternalConnection
) -> list[Job[Any]]:
    handles, uncommitted = await external.run_steps(_enqueue_steps(app, jobs, external.dialect))
    _notify_on_commit(app, uncommitted)
    return handles


def _enqueue_steps(
    app: Tidewheel, jobs: Sequence[NewJob], dialect: str
) -> TransactionSteps[tuple[list[Job[Any]], list[UncommittedEnqueue]]]:
    joiner = app.external_transaction
    if dialect != joiner.dialect:
        raise InvalidInput(
            f"this connection is to {dialect}, and the app's jobs are in {joiner.dialect}; use a connection "
            "to the database of the app's URL"
        )
    jobs = app.registry.prepare_jobs(app, jobs)
    if any(type(job.payload) is not bytes for job in jobs):
        raise InvalidInput(
            "a job of a task that is not durable is in no database, so it cannot be part of a transaction"
        )
    handles: list[Job[Any]] = []
    uncommitted: list[UncommittedEnqueue] = []
    if jobs:
        joined = yield from (
            joiner.enqueue(jobs)
            if app.telemetry.off
            else app.telemetry.join_transaction(joiner.enqueue, jobs)
        )
        uncommitted.extend(joined.uncommitted)
        for job, answer in zip(jobs, joined.enqueued, strict=True):
            handle = yield from _handle(app, job, answer, joined, uncommitted)
            handles.append(handle)
    if app.after_external_enqueue is not None:
        app.after_external_enqueue(handles)
    return handles, uncommitted


def _handle(
    app: Tidewheel,
    job: NewJob,
    answer: Enqueued,
    result: ExternalEnqueueResult,
    uncommitted: list[UncommittedEnqueue],
) -> TransactionSteps[Job[Any]]:
    """The new job, or the one that holds its key. Where that has just been pruned, it is offered again."""
    for _ in range(_MAX_TRIES):
        if not answer.duplicate:
            return Job(app, EnqueuedJob(job, answer))
        record = result.key_holders.get(answer.job_id)
        if record is not None:
            return Job(app, record, duplicate=True, replaced=answer.replaced)
        result = yield from app.external_transaction.enqueue((job,))
        uncommitted.extend(result.uncommitted)
        (answer,) = result.enqueued
    raise StoreUnavailable(
        f"a job's key is taken and freed again and again; given up after {_MAX_TRIES} tries, try again"
    )


def _notify_on_commit(app: Tidewheel, uncommitted: Iterable[UncommittedEnqueue]) -> None:
    for one in uncommitted:
        try:
            app.notify_on_commit(one)
        except Exception as error:
            # The jobs are written, and whoever polls finds them; a program that ends starts no threads.
            _log.debug("the end of a transaction will not be told: %s", error)
