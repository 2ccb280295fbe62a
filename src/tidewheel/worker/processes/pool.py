"""A worker's processes: one handler at a time in each, one job after another, kept warm for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidewheel.core.clock import Clock
from tidewheel.core.model import Completed, JobError, Outcome, Released, Report
from tidewheel.errors import ConfigurationError
from tidewheel.settings import Settings
from tidewheel.tasks import context
from tidewheel.tasks.task_location import TaskLocation, find_task_location
from tidewheel.worker import outcomes
from tidewheel.worker.active_jobs import ActiveJob, StopReason
from tidewheel.worker.processes import memory_limit
from tidewheel.worker.processes.handler_process import EXIT_GRACE_SECONDS, HandlerProcess, ProcessDied
from tidewheel.worker.processes.messages import (
    OUT_OF_MEMORY_EXIT_CODE,
    ChildRequest,
    Ended,
    Reply,
    RunJob,
    ShuttingDown,
    StepsRequested,
    UnreadableMessage,
)

if TYPE_CHECKING:
    from tidewheel.tasks.task import Task

IDLE_SECONDS: Final = 60.0
"""How long a process is kept that has nothing to do."""
MAX_JOBS_PER_PROCESS: Final = 1000
"""Jobs after which a process is replaced: what handlers leak must end somewhere."""
MAX_START_TRIES: Final = 3
"""Processes to try when one after the other is gone before it has the job."""
NO_PROCESS_DELAY_SECONDS: Final = 5.0
"""Seconds until a job is offered again for which the machine had no process (or no file descriptors) left."""
IMPORT_TIMEOUT_SECONDS: Final = 300.0
"""How long a process may take to import a task; the job's own timeout begins afterwards."""

_log = logging.getLogger("tidewheel.worker")

T = TypeVar("T")
MakeRun = Callable[[ActiveJob], context.RunControl]


class NotStarted(Exception):
    """There is no process for this job."""

    def __init__(
        self, why: str, traceback: str | None = None, *, again: bool = False, no_room: bool = False
    ) -> None:
        super().__init__(why)
        self.retryable = again
        self.no_process_left = no_room  # for anybody's process, so this job is not to blame
        self.error = JobError("process_start_failed", why, traceback=traceback)


class ProcessPool:
    """Runs the attempts of tasks with ``isolation="process"``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Settings,
        clock: Clock,
        places: Mapping[Task[..., Any], TaskLocation],
        run_of: MakeRun,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._clock = clock
        self._places = dict(places)
        self._run_of = run_of
        self._all: set[HandlerProcess] = set()
        self._idle: dict[HandlerProcess, asyncio.TimerHandle] = {}  # in the order they came
        self._unlimited: set[str] = set()  # tasks whose memory limit this platform cannot keep
        self._shutting_down = False

    async def execute(self, active: ActiveJob) -> Outcome | None:
        """Run the handler under this lease; see ``Workplace.attempt``."""
        tries = 0
        while True:
            tries += 1
            try:
                return await self._attempt(active)
            except NotStarted as error:
                if error.retryable and tries < MAX_START_TRIES:
                    continue
                if self._shutting_down:
                    return Released()  # service managers signal whole groups, newborn processes included
                if error.no_process_left:
                    _log.error(
                        "job %s (%s) is given back for %g s: %s",
                        active.job.lease.job_id,
                        active.task.name,
                        NO_PROCESS_DELAY_SECONDS,
                        error,
                    )
                    return Released(NO_PROCESS_DELAY_SECONDS)
                return outcomes.after_failure(active.job, active.task.retry, error.error, error)

    async def _attempt(self, active: ActiveJob) -> Outcome | None:
        job, policy = active.job, active.task.retry
        active.started = None  # importing is not running: neither the timeout nor the statistics count it
        try:
            process, place = await self._process_for(active.task)
        except asyncio.CancelledError:
            return outcomes.after_stop(job, policy, active.stop_reason or StopReason.SHUTDOWN)
        active.started = self._clock.monotonic()
        timer = None if job.timeout is None else self._loop.call_later(job.timeout, active.expire)
        try:
            ended = await self._run(process, active, place)
            outcome = ended.read()
        except ProcessDied as died:
            if active.stop_reason is not None:
                return outcomes.after_stop(job, policy, active.stop_reason)
            if not process.started:
                # Not this job's doing: something an earlier one left behind, or somebody's kill.
                raise NotStarted(str(died), again=True) from died
            return self._after_death(active, died)
        except UnreadableMessage as error:
            process.kill()
            return outcomes.after_failure(job, policy, JobError("process_died", str(error)), error)
        finally:
            if timer is not None:
                timer.cancel()
        self._release(process, ended)
        if isinstance(outcome, Completed) and active.stop_reason not in (StopReason.LOST, StopReason.TIMEOUT):
            return outcome  # a handler that finished although it was asked to stop has finished
        return outcome if active.stop_reason is None else outcomes.after_stop(job, policy, active.stop_reason)

    def announce_shutdown(self) -> None:
        """Let handlers know that the worker has been told to stop."""
        if not self._shutting_down:
            self._shutting_down = True
            for process in self._all:
                process.send(ShuttingDown())

    async def close(self) -> None:
        """End them all: the idle ones in peace."""
        self._shutting_down = True
        try:
            for process in self._all:
                if process in self._idle:
                    self._idle.pop(process).cancel()
                    process.request_exit()
                elif not process.exiting:
                    process.kill()
            if self._all:
                await asyncio.wait([process.exited for process in self._all], timeout=EXIT_GRACE_SECONDS)
        finally:
            for process in self._all:
                process.kill()
        if self._all:
            _, left = await asyncio.wait(
                [process.exited for process in self._all], timeout=EXIT_GRACE_SECONDS
            )
            if left:
                _log.error("%d processes of handlers do not end although they were killed", len(left))

    # -- one job ------------------------------------------------------------------------------------------

    async def _run(self, process: HandlerProcess, active: ActiveJob, place: TaskLocation) -> Ended:
        run = self._run_of(active)
        message = RunJob(
            active.task.app.telemetry.inject_context(active.job),
            place,
            self._settings.max_result_bytes,
            active.task.memory_limit,
            self._shutting_down,
            run.worker,
        )

        async def answer(said: ChildRequest) -> Reply:
            if isinstance(said, StepsRequested):
                steps = await run.steps()
                return Reply(said.number, steps is not None, steps=steps or ())
            report = Report(active.job.lease, said.progress, said.checkpoint, said.step)
            return Reply(said.number, await run.report(report))

        ended = await self._wait(process.run(message, answer), process, active)
        if process.stop_requested:
            # It obeyed, but may have threads that did not.
            process.kill()
            await self._wait(process.exited, process, active)
        return ended

    async def _wait(self, end: asyncio.Future[T], process: HandlerProcess, active: ActiveJob) -> T:
        """For an end that comes by itself. Being cancelled means that the handler is to be stopped first."""
        while True:
            try:
                return await asyncio.shield(end)
            except asyncio.CancelledError:
                # Without a reason it is the event loop that ends.
                active.stop_reason = active.stop_reason or StopReason.SHUTDOWN
                process.stop(active.stop_reason)

    def _after_death(self, active: ActiveJob, died: ProcessDied) -> Outcome:
        job, limit = active.job, active.task.memory_limit
        code, message = "process_died", str(died)
        cause: Exception = ChildProcessError(message)
        if limit is not None:
            if died.code == OUT_OF_MEMORY_EXIT_CODE:
                code = "memory_limit"
                message = f"the handler needed more memory than its limit of {limit:,} bytes (memory_limit)"
                cause = MemoryError(message)
            else:
                message += f" (its memory limit is {limit:,} bytes)"
        _log.warning("job %s (%s, attempt %d): %s", job.lease.job_id, active.task.name, job.attempt, message)
        error = JobError(code, message, traceback=died.crash or None)
        return outcomes.after_failure(job, active.task.retry, error, cause)

    # -- processes ----------------------------------------------------------------------------------------

    async def _process_for(self, task: Task[..., Any]) -> tuple[HandlerProcess, TaskLocation]:
        """A process in which the task has been imported; ``NotStarted`` when there is none to be had."""
        try:
            place = self._places.get(task) or self._places.setdefault(task, find_task_location(task))
            process = self._take_idle(place) or await self._start()
        except (ConfigurationError, OSError) as error:
            no_room = isinstance(error, OSError)
            raise NotStarted(f"no process could be started: {error}", no_room=no_room) from error
        if place in process.loaded:
            return process, place
        if (
            task.memory_limit is not None
            and not memory_limit.IS_ENFORCED
            and task.name not in self._unlimited
        ):
            self._unlimited.add(task.name)
            _log.warning("the memory_limit of task %s is not enforced on this platform", task.name)
        try:
            async with asyncio.timeout(IMPORT_TIMEOUT_SECONDS):
                loaded = await process.load(place, task.app.url)
        except TimeoutError:
            process.kill()
            raise NotStarted(f"importing the task took longer than {IMPORT_TIMEOUT_SECONDS:g} s") from None
        except asyncio.CancelledError:
            process.kill()
            raise
        except ProcessDied as died:
            raise NotStarted(f"while the task was imported, {died}", died.crash or None) from died
        if loaded.error is not None:
            process.request_exit()
            raise NotStarted(loaded.error.message, loaded.error.traceback)
        return process, place

    async def _start(self) -> HandlerProcess:
        process = await HandlerProcess.start(self._loop)
        self._all.add(process)
        process.exited.add_done_callback(lambda _: self._forget(process))
        return process

    def _take_idle(self, place: TaskLocation) -> HandlerProcess | None:
        """The one that worked last, if possible one that knows the task; unused ones are to end."""
        idle = [process for process in reversed(self._idle) if process.alive]
        chosen = next((process for process in idle if place in process.loaded), idle[0] if idle else None)
        if chosen is not None:
            self._idle.pop(chosen).cancel()
        return chosen

    def _release(self, process: HandlerProcess, ended: Ended) -> None:
        if process.stop_requested:
            return  # and gone
        if (
            ended.needs_restart
            or process.jobs >= MAX_JOBS_PER_PROCESS
            or self._shutting_down
            or not process.alive
        ):
            process.request_exit()
        else:
            self._idle[process] = self._loop.call_later(IDLE_SECONDS, self._retire, process)

    def _retire(self, process: HandlerProcess) -> None:
        self._idle.pop(process)
        process.request_exit()

    def _forget(self, process: HandlerProcess) -> None:
        self._all.discard(process)
        timer = self._idle.pop(process, None)
        if timer is not None:
            timer.cancel()
