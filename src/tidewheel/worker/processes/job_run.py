"""In the process: one job, from its payload to its outcome.

The handler runs on the main thread, an async one on an event loop there that outlives the job. That is where
Python delivers signals, so a handler that does not obey can be interrupted in the middle of what it does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidewheel.core.model import Outcome, Report, StepRecord
from tidewheel.core.security_context import act_as_job_owner
from tidewheel.errors import StoreUnavailable, WrongState
from tidewheel.tasks.context import Context
from tidewheel.tasks.task import Task
from tidewheel.worker import outcomes
from tidewheel.worker.async_waits import retrieve_exception
from tidewheel.worker.handler_calls import HandlerThreads
from tidewheel.worker.processes.memory_limit import MemoryLimit
from tidewheel.worker.processes.messages import (
    ChildChannel,
    ChildRequest,
    Ended,
    Reply,
    Reported,
    RunJob,
    StepsRequested,
)

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.stores.protocol import HandlerTransaction


class HandlerInterrupted(BaseException):
    """Raised inside a handler that was asked to stop and did not. It may clean up; then it is killed."""


class ChildEventLoops:
    """The event loops of this process, made when they are first needed."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._beside: asyncio.AbstractEventLoop | None = None
        self.threads = HandlerThreads("step")  # for plain functions of async handlers

    def runner(self) -> asyncio.Runner:
        """For async handlers, on the main thread. One for all jobs: clients and pools may be kept there."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner

    def side_loop(self) -> asyncio.AbstractEventLoop:
        """For what a plain function says through ``ctx.sync``, on a thread of its own."""
        if self._beside is None:
            self._beside = asyncio.new_event_loop()
            threading.Thread(target=self._beside.run_forever, name="tidewheel-context", daemon=True).start()
        return self._beside

    def prepare(self, task: Task[..., Any]) -> None:
        """Have the loop that this task may use."""
        if task.is_async:
            self.runner().get_loop()
        elif task.signature.context is not None:
            self.side_loop()

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()


class ChildJobRun:
    """One job. Also what its context knows of the run (``tidewheel.tasks.context.RunControl``)."""

    _numbers = itertools.count(1)

    def __init__(
        self,
        message: RunJob,
        task: Task[..., Any],
        channel: ChildChannel,
        loops: ChildEventLoops,
        memory: MemoryLimit,
    ) -> None:
        self._message = message
        self._task = task
        self._channel = channel
        self._loops = loops
        self._memory = memory
        self._waiting: dict[int, concurrent.futures.Future[Reply]] = {}
        self._awaiting: asyncio.Task[Any] | None = None
        self._interruptible = False
        self._out_of_memory = False
        self._on_threads = 0  # plain functions of steps that have not ended
        self.cancelled = False
        self.cancel_requested = False
        self.shutting_down = message.shutting_down
        self.worker = message.worker

    # -- for the main thread ------------------------------------------------------------------------------

    def run(self) -> Ended:
        """Call the handler."""
        limit = self._message.memory_limit
        outcome = self._outcome()
        worn = limit is not None and (self._out_of_memory or self._memory.needs_restart(limit))
        # A step's function that is still at work would be so beside the next job.
        return Ended.from_outcome(outcome, worn=worn or self._on_threads > 0)

    def interrupt(self) -> None:
        """SIGTERM. Ours comes after a stop was asked; a service manager's is not meant for handlers."""
        if self._interruptible and self.cancelled:
            self._interruptible = False
            raise HandlerInterrupted("the handler was asked to stop and did not")

    def _outcome(self) -> Outcome | None:
        job, task, limit = self._message.job, self._task, self._message.memory_limit
        try:
            args, kwargs = task.decode(job.payload, job.format)
        except Exception as error:
            return outcomes.after_bad_payload(job, error)
        context = None
        if task.signature.context is not None:
            context = Context(job, self, checkpoint_limit=self._message.max_result_bytes)
        if limit is not None:
            self._loops.prepare(task)  # first: what they take is not the handler's
            self._memory.set(limit)
        value, raised = self._call(context, args, kwargs)
        if raised is None:
            return outcomes.after_return(task, value, self._message.max_result_bytes)
        if self.cancelled:
            return None  # why it was stopped, and what that means, the worker knows
        if limit is not None and isinstance(raised, MemoryError):
            self._out_of_memory = True
            described = replace(
                outcomes.describe_exception(raised),
                code="memory_limit",
                message=f"the handler needed more memory than its limit of {limit:,} bytes (memory_limit)",
            )
            return outcomes.after_failure(job, task.retry, described, raised)
        return outcomes.after_error(job, task.retry, raised)

    def _call(
        self, context: Context | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, BaseException | None]:
        """What the handler returned or raised; afterwards there is memory again."""
        variables = contextvars.copy_context()
        variables.run(act_as_job_owner, self._message.job)
        variables.run(self._task.app.telemetry.extract_context, self._message.job)
        try:
            variables.run(self._task.app.registry.middleware.restore_variables, self._message.job.headers)
            self._interruptible = True
            if self._task.is_async:
                awaited = self._awaited(context, args, kwargs)
                value, error = self._loops.runner().run(awaited, context=variables)
            else:
                value, error = variables.run(self._task.invoke, context, args, kwargs), None
            self._interruptible = False
        except BaseException as raised:
            self._interruptible = False
            value, error = None, raised
        self._memory.clear()
        return value, error

    async def _awaited(
        self, context: Context | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, BaseException | None]:
        me = self._awaiting = asyncio.current_task()
        if self.cancelled and me is not None:
            me.cancel()  # asked before there was anything to cancel
        try:
            return await self._task.invoke(context, args, kwargs), None
        except BaseException as error:  # caught here, so that its traceback does not show how we got there
            return None, error
        finally:
            self._awaiting = None

    # -- for the thread that receives ---------------------------------------------------------------------

    def stop(self, *, requested: bool) -> None:
        """The worker wants the handler to end."""
        self.cancel_requested = requested
        self.cancelled = True
        task = self._awaiting
        if task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def receive_reply(self, answer: Reply) -> None:
        """To a report; its sender may be gone."""
        waiting = self._waiting.pop(answer.number, None)
        if waiting is not None and waiting.set_running_or_notify_cancel():
            waiting.set_result(answer)

    # -- for the context ----------------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loops.side_loop()

    @property
    def lost(self) -> bool:
        return False  # a process that has lost its lease is killed

    @property
    def app(self) -> Tidewheel:
        return self._task.app

    async def begin_transaction(self) -> HandlerTransaction:
        raise WrongState(
            'ctx.transaction is not there for a handler with isolation="process": its process has no part in '
            "the store; do the statements in a task without isolation"
        )

    async def report(self, report: Report) -> bool:
        number = next(self._numbers)
        said = Reported(number, report.progress, report.checkpoint, report.step)
        return (await self._ask(said)).accepted

    async def steps(self) -> tuple[StepRecord, ...] | None:
        answer = await self._ask(StepsRequested(next(self._numbers)))
        return answer.steps if answer.accepted else None

    async def _ask(self, message: ChildRequest) -> Reply:
        waiting = self._waiting[message.number] = concurrent.futures.Future()
        self._channel.send(message)
        answer = await asyncio.wrap_future(waiting)
        if answer.error is not None:
            raise StoreUnavailable(answer.error)
        return answer

    async def run_on_thread(self, call: Callable[[], Any]) -> Any:
        self._on_threads += 1
        thread = self._loops.threads.run(call)
        thread.add_done_callback(self._off_thread)
        # Shielded: whoever waits may be cancelled, and the thread is at work all the same.
        return await asyncio.shield(thread)

    def _off_thread(self, thread: asyncio.Future[Any]) -> None:
        self._on_threads -= 1
        retrieve_exception(thread)
