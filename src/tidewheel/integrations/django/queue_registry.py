"""The tasks of a Django project: each may be sent to any queue, and connections are closed around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, reset_queries

from tidewheel.core.model import Lane
from tidewheel.tasks.batches import BatchSignature
from tidewheel.tasks.callbacks import Callback, Callbacks
from tidewheel.tasks.context import Context
from tidewheel.tasks.registry import Registry
from tidewheel.tasks.signature import HandlerParameters, InProcessSignature, Signature
from tidewheel.tasks.task import Task


class QueueRegistry(Registry):
    """Tasks of Django's interface live on every queue: ``task.using(queue_name=…)`` moves one job only."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: set[str] = set()  # those of TASKS, whether or not a task is at home there
        self.movable: set[str] = set()  # names of the tasks of Django's interface

    def add(self, task: Task[..., Any]) -> None:
        super().add(task)
        kind: type[_Batch | _Durable | _Call]
        match task.signature:
            case BatchSignature():
                kind = _Batch
            case Signature():
                kind = _Durable
            case _:
                kind = _Call
        task.signature = kind(task.fn, task.name)
        if (called := task.callbacks) is not None:
            task.callbacks = Callbacks(
                *(
                    given and _Callback(given)
                    for given in (called.on_success, called.on_failure, called.fallback)
                )
            )

    def tasks_on_topic(self, topic: str) -> tuple[Task[..., Any], ...]:
        here = super().tasks_on_topic(topic)
        return (*here, *(self.tasks[name] for name in self.movable if self.tasks[name] not in here))

    def lanes(self, topics: Iterable[str] | None = None, exclude: Collection[str] = ()) -> tuple[Lane, ...]:
        wanted = None if topics is None else tuple(topics)
        own = super().lanes(wanted, exclude)
        homes = {self.tasks[name].topic for name in self.movable}
        queues = (self.queues | homes) if wanted is None else set(wanted)
        moved = [
            Lane(topic, name) for topic in sorted(queues - set(exclude)) for name in sorted(self.movable)
        ]
        return tuple(dict.fromkeys((*own, *moved)))


def clean_up_connections() -> None:
    """As around a request of Django's: connections that are too old, or broken, are not used again."""
    reset_queries()  # what DEBUG keeps of each statement
    close_old_connections()


async def _with_clean_connections(call: Callable[[], Awaitable[Any]]) -> Any:
    # On the thread that has the connections of Django's own asynchronous calls.
    tidy_there = sync_to_async(clean_up_connections)
    await tidy_there()
    try:
        return await call()
    finally:
        await tidy_there()


def _call_with_clean_connections(call: Callable[[], Any], *, is_async: bool) -> Any:
    """Call it, and tidy up before and after; a coroutine of that for an async one."""
    if is_async:
        return _with_clean_connections(call)
    clean_up_connections()
    try:
        return call()
    finally:
        clean_up_connections()


class _ConnectionCleanup(HandlerParameters):
    def invoke(self, context: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _call_with_clean_connections(
            lambda: super(_ConnectionCleanup, self).invoke(context, args, kwargs), is_async=self.is_async
        )


class _Durable(_ConnectionCleanup, Signature):
    pass


class _Batch(_ConnectionCleanup, BatchSignature):
    pass


class _Call(_ConnectionCleanup, InProcessSignature):
    pass


class _Callback(Callback):
    def __init__(self, given: Callback) -> None:
        super().__init__(given.option, given.fn)

    def __call__(self, context: Context, value: object) -> Any:
        return _call_with_clean_connections(
            lambda: super(_Callback, self).__call__(context, value), is_async=self.is_async
        )
