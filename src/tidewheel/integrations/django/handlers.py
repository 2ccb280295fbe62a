"""Running a task of Django's interface: what Tidewheel calls for its jobs."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, Final
from uuid import UUID

from asgiref.sync import sync_to_async
from django.utils import timezone

from tidewheel.core.model import JobError, JobRecord
from tidewheel.integrations.django import compat
from tidewheel.integrations.django.task_results import (
    configure_task,
    in_project_zone,
    make_task_error,
    make_task_result,
)
from tidewheel.tasks.context import Context

MAX_RUNNING_RESULTS: Final = 10_000
"""Most results kept for the signal at their end: those of jobs that were cancelled or lost stay behind."""


class JobHandlers:
    """The handlers of one backend, and the results of the jobs they run.

    ``look`` reads a job: what earlier attempts left is not in the hands of the worker.
    """

    def __init__(self, sender: type[Any], alias: str, look: Callable[[UUID], JobRecord | None]) -> None:
        self._sender = sender
        self._alias = alias
        self._look = look
        self._running: dict[UUID, Any] = {}

    def handler_of(self, task: Any) -> Callable[..., Any]:
        """What calls the task's function, on the event loop or on a thread, as the function is."""
        if iscoroutinefunction(task.func):

            async def run_async(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
                result = await sync_to_async(self._begin)(task, ctx, args, kwargs)
                returned = await task.func(*_call_arguments(task, result, args), **kwargs)
                return compat.normalize_json(returned)

            return run_async

        def run(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
            result = self._begin(task, ctx, args, kwargs)
            return compat.normalize_json(task.func(*_call_arguments(task, result, args), **kwargs))

        return run

    def completed(self, ctx: Context, value: Any) -> None:
        """The store has it: a job ended well."""
        result = self._running.pop(ctx.job.id, None)
        if result is not None:
            object.__setattr__(result, "_return_value", value)
            self._finish(result, compat.TaskResultStatus.SUCCESSFUL)

    def errored(self, ctx: Context, error: JobError) -> None:
        """The store has it: an attempt errored. Where there is another one, it begins with a new result."""
        if error.retryable and not ctx.last_attempt:
            self._running.pop(ctx.job.id, None)

    def failed(self, ctx: Context, error: JobError) -> None:
        """The store has it: a job failed for good."""
        result = self._running.pop(ctx.job.id, None)
        if result is not None:
            result.errors.append(make_task_error(error))
            self._finish(result, compat.TaskResultStatus.FAILED)

    def _begin(self, task: Any, ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
        result = self._started(task, ctx, args, kwargs)
        while len(self._running) >= MAX_RUNNING_RESULTS:
            self._running.pop(next(iter(self._running)), None)
        self._running[ctx.job.id] = result
        # Robust: whoever listens decides nothing about the job.
        compat.signals().task_started.send_robust(self._sender, task_result=result)
        return result

    def _started(self, task: Any, ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
        now = timezone.now()
        record = self._look(ctx.job.id) if ctx.attempt > 1 else None
        before = None if record is None else make_task_result(record, task, self._alias)
        workers = [] if before is None else before.worker_ids[: ctx.attempt - 1]
        return compat.TaskResult(
            task=configure_task(task, priority=ctx.job.priority, topic=ctx.job.topic),
            id=str(ctx.job.id),
            status=compat.TaskResultStatus.RUNNING,
            enqueued_at=in_project_zone(ctx.job.created_at),
            started_at=(before and before.started_at) or now,
            finished_at=None,
            last_attempted_at=now,
            args=args,
            kwargs=kwargs,
            backend=self._alias,
            errors=[] if before is None else before.errors,
            # An attempt that nobody has a record of was somebody's all the same: it counts.
            worker_ids=[*workers, *[ctx.worker] * (ctx.attempt - len(workers))],
        )

    def _finish(self, result: Any, status: Any) -> None:
        object.__setattr__(result, "status", status)
        object.__setattr__(result, "finished_at", timezone.now())
        compat.signals().task_finished.send(self._sender, task_result=result)


def _call_arguments(task: Any, result: Any, args: list[Any]) -> list[Any]:
    return [compat.TaskContext(task_result=result), *args] if task.takes_context else args
