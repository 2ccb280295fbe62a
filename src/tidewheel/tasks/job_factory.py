"""From a task or a name, a payload and options to a new job, everything checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tidewheel.core import headers as job_headers
from tidewheel.core.model import NewJob
from tidewheel.core.names import check_topic, shorten, suggest
from tidewheel.core.payload import encode_untyped_payload
from tidewheel.core.security_context import current_context
from tidewheel.errors import HandlerNotFound, InvalidInput, InvalidPayload, LimitExceeded
from tidewheel.stores.bounds import MAX_ENQUEUE_BATCH
from tidewheel.tasks.options import EnqueueOptions, make_template
from tidewheel.tasks.task import Task

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.settings import Settings
    from tidewheel.tasks.registry import Registry


def job_maker(
    app: Tidewheel, target: str | Task[..., Any], options: EnqueueOptions
) -> Callable[[Any], NewJob]:
    """How a payload becomes a job of this task or topic; the options are checked."""
    task = target if isinstance(target, Task) else find_task(app.registry, app.settings, target)
    return task_job_maker(app.settings, task, target if task is None else "", options)


def task_job_maker(
    settings: Settings, task: Task[..., Any] | None, topic: Any, options: Mapping[str, Any]
) -> Callable[[Any], NewJob]:
    """The same for a task that was looked up, or for a topic."""
    limit = settings.max_payload_bytes
    if task is not None:
        template = task.template(options)
    else:
        template = make_template(settings, task="", topic=check_topic(topic), defaults={}, given=options)
    if (context := current_context()) is not None:
        template = template.under_context(context, uuids=settings.tenant_uuids)
    if task is not None:
        signature = task.signature
        body_format = signature.format

        def make(item: Any) -> NewJob:
            return template.job(signature.encode_payload(item, limit), body_format)

    else:

        def make(item: Any) -> NewJob:
            return template.job(*encode_untyped_payload(item, limit))

    return make


def make_job_group(
    app: Tidewheel,
    wanted: Iterable[tuple[str | Task[..., Any], Any, EnqueueOptions]],
    headers: Mapping[int, Mapping[str, str]],
) -> list[NewJob]:
    """Jobs that are written in one transaction; some with texts that travel along, by their places."""
    jobs: list[NewJob] = []
    for target, item, options in wanted:
        try:
            job = job_maker(app, target, options)(item)
            if len(jobs) in headers:
                job = replace(job, headers=job_headers.write_headers(headers[len(jobs)]))
            jobs.append(job)
        except InvalidInput as error:
            raise with_job_index(error, len(jobs)) from None
    if len(jobs) > MAX_ENQUEUE_BATCH:
        raise LimitExceeded(f"{len(jobs):,} jobs together; the limit is {MAX_ENQUEUE_BATCH:,}")
    if any(type(job.payload) is not bytes for job in jobs):
        raise InvalidInput(
            "a job of a task that is not durable cannot be written together with others; "
            "enqueue it on its own"
        )
    return jobs


def with_job_index(error: InvalidInput, place: int) -> InvalidInput:
    """Return the same refusal with the place of the job it is about, among several made together."""
    placed = type(error)(f"job {place} (counted from 0): {error}")
    placed.job = place
    if isinstance(error, InvalidPayload) and isinstance(placed, InvalidPayload):
        placed.places = error.places
    return placed


def find_task(registry: Registry, settings: Settings, name: Any) -> Task[..., Any] | None:
    """The task that jobs for this name are of; None where they are for whoever takes them from a topic."""
    if not isinstance(name, str):
        raise InvalidInput(
            f"the task or topic is {shorten(name)} ({type(name).__name__}); give a task or a name"
        )
    task = registry.resolve(name, "")
    if task is None and settings.strict_tasks:
        known = ", ".join(registry.tasks) or "none"
        raise HandlerNotFound(
            f"there is no task {shorten(name)}{suggest(name, registry.tasks)}; "
            f"the tasks are {known} (strict_tasks refuses others)"
        )
    return task
