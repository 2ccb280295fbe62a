"""Calling what a task wants called when its jobs end.

After the store has accepted the outcome: a callback tells of something that is written, can change nothing of
it, and keeps no outcome waiting. Until it is done it counts as a slot in use, which is what bounds how many
wait. A worker that dies in between calls nobody; what must happen is a job of its own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from tidewheel.core.model import Completed, Failed, Outcome, Report, Retried, Settlement
from tidewheel.core.security_context import act_as_job_owner
from tidewheel.errors import LeaseLost
from tidewheel.tasks.callbacks import Callback
from tidewheel.tasks.context import Context
from tidewheel.tasks.registry import Registry
from tidewheel.worker.active_jobs import ActiveJob
from tidewheel.worker.executor import AttemptRun, JobExecutor
from tidewheel.worker.slots import Slots
from tidewheel.worker.stuck_handlers import StuckHandlers

if TYPE_CHECKING:
    from tidewheel.stores.memory.local_store import LocalStore
    from tidewheel.stores.protocol import HandlerTransaction
    from tidewheel.tasks.callbacks import Callbacks

CALLBACK_TIMEOUT_SECONDS = 60.0
"""Longest a callback may take; then it is cancelled, or left to itself on its thread."""
CANCEL_GRACE_SECONDS = 1.0
"""How long a cancelled callback may take to end."""

_log = logging.getLogger("tidewheel.worker")


class SettledRun(AttemptRun):
    """What a context knows of a run whose lease has been settled."""

    __slots__ = ()

    @property
    def cancelled(self) -> bool:
        return False

    async def report(self, report: Report) -> bool:
        raise LeaseLost(
            f"job {report.lease.job_id} has been settled; a callback may read its context, but progress and "
            "checkpoints belong to a handler that runs"
        )

    async def begin_transaction(self) -> HandlerTransaction:
        raise LeaseLost("the job has been settled; what a callback wants done for sure is a job of its own")


class CallbackRunner:
    """Calls the callbacks of accepted outcomes, as many at a time as the worker has slots."""

    def __init__(
        self,
        registry: Registry,
        executor: JobExecutor,
        slots: Slots,
        stuck_handlers: StuckHandlers,
        freed: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._slots = slots
        self._stuck = stuck_handlers
        self._freed = freed
        self._waiting: deque[tuple[ActiveJob, Outcome, Callbacks]] = deque()
        self._calling: dict[asyncio.Task[None], UUID] = {}  # and of which job, in their order
        self._last: dict[UUID, asyncio.Task[None]] = {}  # of each of those jobs

    @property
    def has_callbacks(self) -> bool:
        """Whether any task of this app has callbacks."""
        return self._registry.has_callbacks

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._calling

    def on_settled(self, batch: Collection[tuple[ActiveJob, Settlement]], answers: list[bool]) -> None:
        """These outcomes are written, or were refused."""
        for (active, settlement), accepted in zip(batch, answers, strict=True):
            callbacks = active.task.callbacks
            if accepted and callbacks is not None and _matching_callbacks(callbacks, settlement.outcome):
                self._slots.running += 1
                self._waiting.append((active, settlement.outcome, callbacks))
        self._call_waiting()

    async def finish(self, seconds: float) -> None:
        """The worker ends: wait so long for those under way, then let go of them."""
        loop = self._executor.loop
        deadline = loop.time() + seconds
        while self._calling and (left := deadline - loop.time()) > 0:
            await asyncio.wait(list(self._calling), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if self.idle:
            return
        _log.warning(
            "the worker ends: callbacks of %d jobs are stopped and those of %d are not called",
            len(self._calling),
            len(self._waiting),
        )
        self._waiting.clear()
        for task in self._calling:
            task.cancel()
        if self._calling:
            await asyncio.wait(list(self._calling), timeout=CANCEL_GRACE_SECONDS)

    def _call_waiting(self) -> None:
        while self._waiting and len(self._calling) < self._slots.concurrency:
            active, outcome, callbacks = self._waiting.popleft()
            job_id = active.job.lease.job_id
            calling = self._call_all(active, outcome, callbacks, self._last.get(job_id))
            self._last[job_id] = task = self._executor.loop.create_task(calling)
            self._calling[task] = job_id
            task.add_done_callback(self._on_call_done)

    def _on_call_done(self, task: asyncio.Task[None]) -> None:
        job_id = self._calling.pop(task)
        if self._last[job_id] is task:
            del self._last[job_id]
        self._slots.running -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("callbacks failed in the worker itself", exc_info=error)
        self._call_waiting()
        self._freed()

    # -- one job ------------------------------------------------------------------------------------------

    async def _call_all(
        self, active: ActiveJob, outcome: Outcome, callbacks: Callbacks, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:  # of an earlier attempt: a job that is tried again at once may be faster
            await asyncio.wait((before,))
        executor = self._executor
        limit = executor.settings.max_result_bytes
        context = Context(active.job, SettledRun(active, executor.store, executor), checkpoint_limit=limit)
        for callback in _matching_callbacks(callbacks, outcome):
            await self._call(active, callback, context, outcome)

    async def _call(self, active: ActiveJob, callback: Callback, context: Context, outcome: Outcome) -> None:
        job_id, task, option = active.job.lease.job_id, active.task.name, callback.option
        call = _CallbackCall(self._executor, active, callback, context, outcome)
        running = self._executor.loop.create_task(call.run())
        try:
            await asyncio.wait((running,), timeout=CALLBACK_TIMEOUT_SECONDS)
        finally:
            # Cancelled ourselves: the worker ends.
            late = not running.done()
            if late:
                running.cancel()
        if late:
            await asyncio.wait((running,), timeout=CANCEL_GRACE_SECONDS)
            _log.error(
                "%s of job %s (%s) took longer than %g s and is given up%s",
                option,
                job_id,
                task,
                CALLBACK_TIMEOUT_SECONDS,
                "" if call.is_over(running) else "; it still runs",
            )
            if not call.is_over(running):
                self._stuck.track_callback(active, call, functools.partial(call.is_over, running))
        elif (error := running.result()) is not None:
            _log.error("%s of job %s (%s) failed", option, job_id, task, exc_info=error)


class _CallbackCall:
    """One call of one callback."""

    def __init__(
        self, executor: JobExecutor, active: ActiveJob, callback: Callback, context: Context, outcome: Outcome
    ) -> None:
        self._executor = executor
        self._active = active
        self._callback = callback
        self._context = context
        self._outcome = outcome
        self._thread: asyncio.Future[Any] | None = None

    async def run(self) -> BaseException | None:
        """What it raised. As a value: an event loop would end with a SystemExit that leaves a task."""
        act_as_job_owner(self._active.job)  # in this task's own variables, as its handler did
        try:
            self._active.task.app.registry.middleware.restore_variables(self._active.job.headers)
            value = self._value()
            if self._callback.is_async:
                said = self._callback(self._context, value)
            else:
                call = functools.partial(self._callback, self._context, value)
                self._thread = self._executor.threads.run(call)
                said = await asyncio.shield(self._thread)
            if inspect.isawaitable(said):  # also of a plain function: a lambda that calls an async one
                await said
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return error
        return None

    def is_over(self, running: asyncio.Task[Any]) -> bool:
        return running.done() and (self._thread is None or self._thread.done())

    def _value(self) -> object:
        """What the handler returned, as ``job.result()`` gives it; or the error."""
        outcome = self._outcome
        if isinstance(outcome, Completed):
            task = self._active.task
            if task.durable:
                return task.decode_result(outcome.result)
            # The object itself, which the lane has by now.
            job_id = self._active.job.lease.job_id
            return cast("LocalStore", self._executor.store).result_of(job_id)
        return outcome.error if isinstance(outcome, Failed | Retried) else None


def _matching_callbacks(callbacks: Callbacks, outcome: Outcome) -> list[Callback]:
    """Which of them this outcome concerns, in order."""
    match outcome:
        case Completed():
            concerned = [callbacks.on_success]
        case Retried():
            concerned = [callbacks.fallback]
        case Failed():
            concerned = [callbacks.fallback, callbacks.on_failure]
        case _:
            concerned = []
    return [callback for callback in concerned if callback is not None]
