"""The tasks this server knows, with the schemas of their payloads."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from tidewheel.server.request import Request
from tidewheel.server.route import API_ROOT, NoQuery, Permission, Response, Route
from tidewheel.tasks.task import Task
from tidewheel.tasks.task_schemas import task_types_document


class BatchShape(Struct, frozen=True):
    """Up to how many jobs one call of its handler takes, and how many seconds it waits for more."""

    size: int
    wait: float


class TaskShape(Struct, frozen=True, kw_only=True):
    """A task, what its jobs get when nothing else is said, and what its payload looks like.

    ``result_schema`` is that of what it is annotated to return; null where that is nothing or not known.
    """

    name: str
    topic: str
    aliases: tuple[str, ...]
    description: str | None
    durable: bool
    max_attempts: int | None
    timeout: float | None
    priority: int
    isolation: str | None
    batch: BatchShape | None
    payload_schema: dict[str, Any] | None
    result_schema: dict[str, Any] | None


class TaskList(Struct, frozen=True):
    """The tasks by name; what a process of the app's has registered is what there is."""

    items: tuple[TaskShape, ...]
    total: int


async def list_tasks(request: Request[NoQuery, None]) -> Response:
    tasks = sorted(request.app.registry, key=lambda task: task.name)
    return Response(TaskList(tuple(_shape(task) for task in tasks), len(tasks)))


async def get_task_types(request: Request[NoQuery, None]) -> Response:
    return Response(task_types_document(request.app.registry))


def _shape(task: Task[..., Any]) -> TaskShape:
    return TaskShape(
        name=task.name,
        topic=task.topic,
        aliases=task.aliases,
        description=task.__doc__,
        durable=task.durable,
        max_attempts=task.defaults["max_attempts"],
        timeout=task.defaults["timeout"],
        priority=task.defaults["priority"],
        isolation=task.isolation,
        batch=None if task.batch is None else BatchShape(task.batch.size, task.batch.wait),
        payload_schema=task.json_schema() if task.durable else None,
        result_schema=task.result_schema() if task.durable else None,
    )


ROUTES: Final = (
    Route(
        method="GET",
        path=f"{API_ROOT}/tasks",
        name="list_tasks",
        summary="The tasks of the app, with the schemas of their payloads",
        permission=Permission.READ,
        handler=list_tasks,
        responses={200: TaskList},
        tag="tasks",
    ),
    Route(
        method="GET",
        path=f"{API_ROOT}/tasks/openapi.json",
        name="task_types",
        summary="What every task takes and gives back, as an OpenAPI document to make types of",
        permission=Permission.READ,
        handler=get_task_types,
        responses={200: None},
        tag="tasks",
    ),
)
