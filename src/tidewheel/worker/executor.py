"""One attempt: decode, call the handler, turn what happened into an outcome."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

from tidewheel.client.handler_transaction import current_handler
from tidewheel.core.clock import Clock
from tidewheel.core.model import ROOT_TENANT, Completed, Outcome, Report, StepRecord
from tidewheel.core.security_context import act_as_job_owner
from tidewheel.errors import LeaseLost, StoreUnavailable
from tidewheel.settings import Settings
from tidewheel.stores.protocol import Store
from tidewheel.tasks.context import Context
from tidewheel.worker import outcomes
from tidewheel.worker.active_jobs import ActiveJob, StopReason
from tidewheel.worker.async_waits import join_futures, retrieve_exception
from tidewheel.worker.backoff import Backoff, RecoverySignal
from tidewheel.worker.handler_calls import HandlerThreads, as_coroutine, run_in_context

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.stores.protocol import HandlerTransaction
    from tidewheel.tasks.middleware import MiddlewareStack
    from tidewheel.tasks.task import Task
    from tidewheel.tasks.task_location import TaskLocation
    from tidewheel.worker.processes.pool import ProcessPool

PRECISE_TIMEOUT_SECONDS = 10.0
"""Timeouts shorter than this many seconds end on time; longer ones within the keeper's half second."""

_log = logging.getLogger("tidewheel.worker")

T = TypeVar("T")


class AttemptRun:
    """What a context needs to know of its run (``tidewheel.tasks.context.RunControl``)."""

    __slots__ = ("_active", "_store", "_worker", "loop")

    def __init__(self, active: ActiveJob, store: Store, executor: JobExecutor) -> None:
        self._active = active
        self._store = store
        self._worker = executor
        self.loop = executor.loop

    @property
    def cancelled(self) -> bool:
        return self._active.stop_reason is not None

    @property
    def cancel_requested(self) -> bool:
        return self._active.stop_reason is StopReason.CANCEL

    @property
    def shutting_down(self) -> bool:
        return self._worker.shutting_down

    @property
    def worker(self) -> str:
        return self._worker.name

    @property
    def lost(self) -> bool:
        return self._active.stop_reason is StopReason.LOST or self._active.settling

    @property
    def app(self) -> Tidewheel:
        return self._active.task.app

    async def begin_transaction(self) -> HandlerTransaction:
        """Open the handler's own transaction."""
        active = self._active
        if self.lost:  # also when its outcome is on its way: nobody would end what begins now
            raise LeaseLost(f"job {active.job.lease.job_id} has ended for this run; no transaction was begun")
        lease_seconds = active.job.lease_seconds
        return await self._store.begin_transaction(
            active.job.lease,
            lease_seconds=lease_seconds,
            seconds=self._worker.settings.transaction_seconds or lease_seconds / 3,
            tenant=active.job.tenant,
            on_timeout=active.expire_transaction,
            run_seconds=self._run_seconds(),
        )

    async def report(self, report: Report) -> bool:
        """Write it. While the store is away progress is let go, and others wait: they are a promise."""
        if report.checkpoint is None and report.step is None:
            try:
                return not self.lost and (await self._send(report))[0]
            except StoreUnavailable as error:
                _log.info("progress of job %s was not written: %s", self._active.job.lease.job_id, error)
                return True
        what = "saving a checkpoint" if report.step is None else "saving a step"
        kept = await self._retry_until_answered(what, lambda: self._send(report))
        return kept is not None and kept[0]

    async def _send(self, report: Report) -> list[bool]:
        """A report records the start, if none is recorded: a job with progress has begun."""
        return await self._store.report([replace(report, run_seconds=self._run_seconds())])

    def _run_seconds(self) -> float:
        started = self._active.started
        return 0.0 if started is None else max(0.0, self._worker.clock.monotonic() - started)

    async def steps(self) -> tuple[StepRecord, ...] | None:
        return await self._retry_until_answered(
            "reading steps", lambda: self._store.finished_steps(self._active.job.lease)
        )

    async def _retry_until_answered(self, what: str, call: Callable[[], Awaitable[T]]) -> T | None:
        """The store's answer, however long it is away; None once the lease is lost."""
        backoff = Backoff(what, self._worker.recovery, 1.0)
        while not self.lost:
            try:
                answer = await call()
            except StoreUnavailable as error:
                if self._active.stop_reason is not None:
                    raise  # asked to stop: a function on a thread must not wait here for ever
                await backoff.pause_after_failure(error)
            else:
                backoff.record_success()
                return answer
        return None

    async def run_on_thread(self, call: Callable[[], Any]) -> Any:
        """A step's plain function. Like a handler, one that does not end when it should keeps the slot."""
        thread = self._worker.threads.run(call)
        thread.add_done_callback(retrieve_exception)
        self._hold_slot_until(thread)
        return await asyncio.shield(thread)

    def _hold_slot_until(self, thread: asyncio.Future[Any]) -> None:
        """See to it that the slot is not given away before this has ended."""
        self._active.thread = join_futures(self._active.thread, thread)


class JobExecutor:
    """What the attempts of one worker share. Without ``places`` every handler runs in this process."""

    def __init__(
        self,
        name: str,
        store: Store,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        recovery: RecoverySignal,
        clock: Clock,
        places: Mapping[Task[..., Any], TaskLocation] | None,
    ) -> None:
        self.name = name
        self.middleware: MiddlewareStack | None = (
            None  # middleware and carried variables, where there are any
        )
        self.store = store
        self.recovery = recovery
        self.settings = settings
        self.loop = loop
        self.threads = HandlerThreads("handler")
        self.shutting_down = False
        self.clock = clock
        self._places = places
        self._processes: ProcessPool | None = None

    def announce_shutdown(self) -> None:
        """Handlers that look see that the worker has been told to stop."""
        self.shutting_down = True
        if self._processes is not None:
            self._processes.announce_shutdown()

    async def close(self) -> None:
        """Let go of threads and processes."""
        self.threads.close()
        if self._processes is not None:
            await self._processes.close()

    async def execute(self, active: ActiveJob) -> Outcome | None:
        """Run the handler under this lease. None when the lease was lost and nobody wants the outcome.

        Runs in its slot's task, ``held.handler``. Whoever wants the handler to stop sets ``held.stop`` and
        cancels that task; a handler that returns normally all the same is taken at ``held.stop``'s word.
        """
        job, task = active.job, active.task
        isolated = task.isolation is not None and self._places is not None
        if isolated and (self.middleware is None or not self.middleware.wraps_runs):
            return await self._run_in_process(active)
        try:
            args, kwargs = task.decode(job.payload, job.format)
        except Exception as error:
            return outcomes.after_bad_payload(job, error)
        context = None
        if task.signature.context is not None:
            limit = self.settings.max_result_bytes
            context = active.context = Context(
                job, AttemptRun(active, self.store, self), checkpoint_limit=limit
            )
        timer = None
        # Longer timeouts are watched by the keeper: a timer of its own would be a tax on every short job.
        # A process has its own, which begins when the task has been imported.
        if job.timeout is not None and job.timeout < PRECISE_TIMEOUT_SECONDS and not isolated:
            timer = self.loop.call_later(job.timeout, active.expire)
        try:
            if self.middleware is not None:
                value = await self._run_in_middleware(self.middleware, active, context, args, kwargs)
            elif task.is_async:
                variables = contextvars.copy_context()
                if context is not None:
                    variables.run(current_handler.set, context)
                if job.tenant != ROOT_TENANT:  # else it would do nothing, at a price
                    variables.run(act_as_job_owner, job)
                started = variables.run(task.invoke, context, args, kwargs)
                if not isinstance(started, CoroutineType):
                    started = as_coroutine(started)
                value = await run_in_context(variables, started)
            else:
                value = await self._run_on_thread(active, context, args, kwargs)
        except asyncio.CancelledError as error:
            if active.stop_reason is not None:
                return outcomes.after_stop(job, task.retry, active.stop_reason)
            # Cancelled from inside: the handler let somebody else's cancellation escape.
            return outcomes.after_error(job, task.retry, error)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if active.stop_reason is not None:
                return outcomes.after_stop(job, task.retry, active.stop_reason)
            return outcomes.after_error(job, task.retry, error)
        finally:
            if timer is not None:
                timer.cancel()
        if active.stop_reason is not None and active.stop_reason in (
            StopReason.LOST,
            StopReason.TIMEOUT,
            StopReason.TRANSACTION,
        ):
            return outcomes.after_stop(job, task.retry, active.stop_reason)
        # A handler that finished although it was asked to stop has finished.
        return outcomes.after_return(task, value, self.settings.max_result_bytes)

    async def _run_in_middleware(
        self,
        middleware: MiddlewareStack,
        active: ActiveJob,
        context: Context | None,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> Any:
        """What the handler returns inside all middleware, with the job's carried variables set.

        Middleware runs here, in the handler's own context variables: an async handler and one on a thread see
        what it sets there. One in a process of its own does not; it gets the carried variables.
        """
        job, task = active.job, active.task
        if context is None and middleware.wraps_runs:
            limit = self.settings.max_result_bytes
            context = active.context = Context(
                job, AttemptRun(active, self.store, self), checkpoint_limit=limit
            )
        variables = contextvars.copy_context()
        variables.run(current_handler.set, context)
        variables.run(act_as_job_owner, job)
        variables.run(middleware.restore_variables, job.headers)

        async def handler() -> Any:
            if task.isolation is not None and self._places is not None:
                outcome = await self._run_in_process(active)
                if isinstance(outcome, Completed):
                    return task.decode_result(outcome.result)
                raise outcomes.OutcomeReached(outcome)
            if task.is_async:
                return await task.invoke(context, args, kwargs)
            return await self._run_on_thread(active, context, args, kwargs)

        if context is None:
            return await run_in_context(variables, handler())
        return await run_in_context(variables, middleware.run(context, handler))

    async def _run_in_process(self, active: ActiveJob) -> Outcome | None:
        if self._processes is None:
            # Imported here: who has no such tasks pays nothing for them.
            from tidewheel.worker.processes.pool import ProcessPool

            self._processes = ProcessPool(
                self.loop,
                self.settings,
                self.clock,
                self._places or {},
                lambda active: AttemptRun(active, self.store, self),
            )
        return await self._processes.execute(active)

    async def _run_on_thread(
        self, active: ActiveJob, context: Context | None, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> object:
        def call() -> object:  # in a copy of the context variables that ends with it
            current_handler.set(context)
            act_as_job_owner(active.job)
            return active.task.invoke(context, args, kwargs)

        active.thread = self.threads.run(call)
        active.thread.add_done_callback(retrieve_exception)
        # Shielded: cancelling the wait cannot stop the thread, and its answer must find its future.
        return await asyncio.shield(active.thread)
