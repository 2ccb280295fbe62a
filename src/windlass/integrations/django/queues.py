"""The tasks of a Django project: each may be sent to any queue, and connections are closed around it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from windlass.calls import CallSignature
from windlass.model import Lane
from windlass.registry import Registry
from windlass.signature import Handler, Signature
from windlass.task import Task


class QueueRegistry(Registry):
    """Tasks of Django's interface live on every queue: ``task.using(queue_name=…)`` moves one job only."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: set[str] = set()  # those of TASKS, whether or not a task is at home there
        self.movable: set[str] = set()  # names of the tasks of Django's interface

    def add(self, task: Task[..., Any]) -> None:
        super().add(task)
        task.signature = (
            _Durable(task.fn, task.name)
            if isinstance(task.signature, Signature)
            else _Call(task.fn, task.name)
        )

    def on_topic(self, topic: str) -> tuple[Task[..., Any], ...]:
        here = super().on_topic(topic)
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


class _Surrounded(Handler):
    """As around a request of Django's: connections that are too old, or broken, are not used again."""

    def invoke(self, context: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.is_async:
            return self._awaited(context, args, kwargs)
        close_old_connections()
        try:
            return super().invoke(context, args, kwargs)
        finally:
            close_old_connections()

    async def _awaited(self, context: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # On the thread that has the connections of Django's own asynchronous calls.
        close = sync_to_async(close_old_connections)
        await close()
        try:
            return await super().invoke(context, args, kwargs)
        finally:
            await close()


class _Durable(_Surrounded, Signature):
    pass


class _Call(_Surrounded, CallSignature):
    pass
