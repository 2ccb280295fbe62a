"""A task: a registered function, its defaults, and the typed way to enqueue it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from tidewheel.client.enqueue import enqueue_job, enqueue_jobs
from tidewheel.client.external_transaction import AsyncConnection, AsyncUsingTask, UsingTask, bind_task
from tidewheel.client.job_handle import Job
from tidewheel.client.sync.blocking_jobs import BlockingBoundTask, BlockingTask
from tidewheel.core import payload
from tidewheel.core.model import BodyFormat, NewJob
from tidewheel.core.names import MAX_NAME_LENGTH, check_task_name, check_topic, is_topic
from tidewheel.core.payload import ObjectBody
from tidewheel.core.retry import Retry
from tidewheel.core.security_context import current_context
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.errors import ConfigurationError, InvalidInput, InvalidPayload
from tidewheel.tasks.annotations import plain_function
from tidewheel.tasks.batches import Batch, BatchSignature, check_batch
from tidewheel.tasks.callbacks import Callbacks
from tidewheel.tasks.options import (
    ByFields,
    EnqueueOptions,
    JobTemplate,
    check_task_options,
    make_template,
)
from tidewheel.tasks.signature import InProcessSignature, Signature
from tidewheel.tasks.task_location import importing_module

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.tasks.batches import BatchContext
    from tidewheel.tasks.context import Context

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Task(Generic[P, R]):
    """A function that jobs run. Calling it calls the plain function; ``enqueue`` makes it a job."""

    def __init__(
        self,
        app: Tidewheel,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        topic: str | None = None,
        aliases: Iterable[str] = (),
        batch: int | Batch | None = None,
        options: Mapping[str, Any],
    ) -> None:
        self.app = app
        self.fn = fn
        self.__wrapped__ = fn
        self.__doc__ = inspect.getdoc(fn)
        self.name = _name_of(fn, name)
        self.location = _location_of(fn)
        try:
            self.aliases = tuple(check_task_name(alias) for alias in _alias_list(aliases))
            self.topic = _topic_of(self.name, topic)
            self.batch = check_batch(batch)
            checked = check_task_options(options, app.settings)
            if self.batch is not None:
                _refuse_for_batches(checked)
        except InvalidInput as error:
            raise ConfigurationError(f"task {self.name!r} ({self.location}): {error}") from None
        self.defaults: Mapping[str, Any] = MappingProxyType(dict(checked))
        self.durable = checked["durable"]
        self.isolation = checked.get("isolation")
        self.callbacks = Callbacks.from_options(self.defaults)
        self.memory_limit: int | None = self.defaults.get("memory_limit")
        self.limits: TopicLimits | None = self.defaults.get("limits")  # of its whole topic
        self.registered_by = importing_module() if self.isolation is not None else None
        self.signature = self._make_signature()
        try:
            self._template = self._make_template({})
        except InvalidInput as error:
            raise ConfigurationError(f"task {self.name!r} ({self.location}): {error}") from None

    def __repr__(self) -> str:
        return f"<Task {self.name} on {self.topic}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, context included where it takes one. No job is made."""
        return self.fn(*args, **kwargs)

    # -- enqueueing -------------------------------------------------------------------------------------

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Make a job of this call. The arguments are checked against the signature first."""
        return await enqueue_job(self.app, self.job_for_call(self._template, args, kwargs))

    async def enqueue_many(self, payloads: Iterable[Any]) -> list[Job[R]]:
        """One job for each payload, written together, handles in the same order.

        A payload is a mapping of the function's parameters, or the object (or bytes) it takes. All of them
        are checked before the first is written.
        """
        return await enqueue_jobs(self.app, self.jobs_for_payloads(self._template, payloads))

    def options(self, **options: Unpack[EnqueueOptions]) -> BoundTask[P, R]:
        """The task with options for the jobs to come: ``send.options(delay=60).enqueue(...)``."""
        return BoundTask(self, options)

    @overload
    def using(self, connection: AsyncConnection) -> AsyncUsingTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def using(self, connection: object) -> UsingTask[P, R]: ...
    def using(self, connection: object) -> UsingTask[P, R] | AsyncUsingTask[P, R]:
        """The task on a connection of yours: its jobs are part of the transaction that is open there.

        What follows is a plain call on a connection whose calls block, and awaited on an async one.
        """
        return bind_task(self, self._template, connection)

    @property
    def sync(self) -> BlockingTask[P, R]:
        """The same task with blocking calls."""
        return BlockingTask(self, self.app.portal)

    # -- for the worker ---------------------------------------------------------------------------------

    @property
    def retry(self) -> Retry | None:
        """The task's own retry policy."""
        return self.defaults.get("retry")

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return self.signature.is_async

    def decode(self, body: bytes, body_format: BodyFormat) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The function's arguments, the context aside; ``InvalidPayload`` when the body does not fit."""
        return self.signature.decode(body, body_format)

    def invoke(self, context: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function: its result, or the coroutine of an async one."""
        return self.signature.invoke(context, args, kwargs)

    def encode_result(self, value: Any, limit: int) -> bytes | None:
        """What the function returned, as stored; nothing for None."""
        if value is None:
            return None
        if not self.durable:
            return ObjectBody.wrap(value)
        return payload.encode(value, limit=limit, what="result", limit_name="max_result_bytes")

    def decode_result(self, body: bytes | None) -> Any:
        """A stored result as the function's return type."""
        return self.signature.decode_result(body)

    def json_schema(self, prefix: str = "#/$defs/") -> dict[str, Any]:
        """JSON Schema of the payload."""
        return self.signature.json_schema(prefix)

    def result_schema(self) -> dict[str, Any] | None:
        """JSON Schema of what the function is annotated to return; None where that is nothing or unknown."""
        return self.signature.result_schema()

    # -- for the app ------------------------------------------------------------------------------------

    def template(self, options: Mapping[str, Any]) -> JobTemplate:
        """Checked options for jobs of this task."""
        return self._make_template(options) if options else self._template

    def job_for_call(self, template: JobTemplate, args: Any, kwargs: Any) -> NewJob:
        """A typed call as a job to write."""
        body = self.signature.encode_call(args, kwargs, self.app.settings.max_payload_bytes)
        if (context := current_context()) is not None:
            template = template.under_context(context, uuids=self.app.settings.tenant_uuids)
        return template.job(body, self.signature.format)

    def jobs_for_payloads(self, template: JobTemplate, payloads: Iterable[Any]) -> list[NewJob]:
        """Payloads as jobs to write, all of them checked."""
        limit = self.app.settings.max_payload_bytes
        if (context := current_context()) is not None:
            template = template.under_context(context, uuids=self.app.settings.tenant_uuids)
        return encode_each(
            payloads,
            lambda item: template.job(self.signature.encode_payload(item, limit), self.signature.format),
        )

    def _make_signature(self) -> Signature | InProcessSignature:
        if self.batch is not None:
            return BatchSignature(self.fn, self.name)
        return Signature(self.fn, self.name) if self.durable else InProcessSignature(self.fn, self.name)

    def _make_template(self, options: Mapping[str, Any]) -> JobTemplate:
        topic = options.get("topic")
        if isinstance(topic, str) and topic != self.topic:
            self._refuse_foreign_topic(topic)
        key = options.get("key") or self.defaults.get("key")
        if isinstance(key, ByFields):
            self._refuse_unknown_fields("key", key)
        limit_key = options.get("limit_key") or self.defaults.get("limit_key")
        if isinstance(limit_key, ByFields):
            self._refuse_unknown_fields("limit_key", limit_key)
        return make_template(
            self.app.settings, task=self.name, topic=self.topic, defaults=self.defaults, given=options
        )

    def _refuse_foreign_topic(self, topic: str) -> None:
        # Workers take from a topic the jobs of the tasks that live there; this job would wait for ever.
        residents = self.app.registry.tasks_on_topic(topic)
        if residents and self not in residents:
            names = ", ".join(task.name for task in residents)
            raise InvalidInput(
                f"topic is {topic!r}, which is home to {names}; workers would not look for {self.name!r} "
                f"there. Register the task with topic={topic!r}, or route it to a topic of its own"
            )

    def _refuse_unknown_fields(self, what: str, key: ByFields) -> None:
        # A name that no payload has would give all jobs the same key, and only the first would be let in.
        open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in self.signature.parameters)
        if open_ended or not self.durable:  # which is refused for another reason
            return
        known = self.json_schema().get("properties", {})
        for name in key.names:
            if name not in known:
                raise InvalidInput(
                    f"{what} is by_fields({', '.join(key.names)}), but task {self.name!r} takes no "
                    f"{name!r}; it takes {', '.join(known) or 'none'}"
                )


class BoundTask(Generic[P, R]):
    """A task with options for the jobs to come. Made by :meth:`Task.options`, which checks them at once."""

    def __init__(self, task: Task[P, R], options: EnqueueOptions) -> None:
        self._task = task
        self._options = options
        self._template = task.template(options)

    def __repr__(self) -> str:
        return f"<BoundTask {self._task.name} with {', '.join(self._options) or 'no options'}>"

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Make a job of this call. The arguments are checked against the signature first."""
        return await enqueue_job(self._task.app, self._task.job_for_call(self._template, args, kwargs))

    async def enqueue_many(self, payloads: Iterable[Any]) -> list[Job[R]]:
        """One job for each payload, written together, handles in order. See ``Task.enqueue_many``."""
        return await enqueue_jobs(self._task.app, self._task.jobs_for_payloads(self._template, payloads))

    def options(self, **options: Unpack[EnqueueOptions]) -> BoundTask[P, R]:
        """More options, laid over these."""
        merged = EnqueueOptions(**self._options)
        # The two ways to say when exclude each other; the later word replaces the earlier one.
        if options.get("run_at") is not None:
            merged.pop("delay", None)
        if options.get("delay") is not None:
            merged.pop("run_at", None)
        merged.update(options)
        return BoundTask(self._task, merged)

    @overload
    def using(self, connection: AsyncConnection) -> AsyncUsingTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def using(self, connection: object) -> UsingTask[P, R]: ...
    def using(self, connection: object) -> UsingTask[P, R] | AsyncUsingTask[P, R]:
        """These options on a connection of yours. See ``Task.using``."""
        return bind_task(self._task, self._template, connection)

    @property
    def sync(self) -> BlockingBoundTask[P, R]:
        """The same with blocking calls."""
        return BlockingBoundTask(self, self._task.app.portal)


class TaskDecorator(Protocol):
    """What ``@app.task(...)`` with options is: it keeps the payload's types and drops the context."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class BatchTaskDecorator(Protocol):
    """What ``@app.task(batch=…)`` is: the task's payload is one item of the list that its function takes."""

    @overload
    def __call__(self, fn: Callable[[BatchContext, list[T]], Awaitable[None]], /) -> Task[[T], None]: ...
    @overload
    def __call__(
        self, fn: Callable[[BatchContext, list[T]], Awaitable[Sequence[R | BaseException]]], /
    ) -> Task[[T], R]: ...
    @overload
    def __call__(self, fn: Callable[[BatchContext, list[T]], None], /) -> Task[[T], None]: ...
    @overload
    def __call__(
        self, fn: Callable[[BatchContext, list[T]], Sequence[R | BaseException]], /
    ) -> Task[[T], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Awaitable[None]], /) -> Task[[T], None]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[T]], Awaitable[Sequence[R | BaseException]]], /
    ) -> Task[[T], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], None], /) -> Task[[T], None]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], Sequence[R | BaseException]], /) -> Task[[T], R]: ...


def encode_each(payloads: Iterable[Any], make: Callable[[Any], NewJob]) -> list[NewJob]:
    """A job for each payload; an error says which one it is about."""
    if isinstance(payloads, str | bytes | Mapping):
        raise InvalidPayload(
            f"payloads is a {type(payloads).__name__}; give a list of payloads, one for each job"
        )
    jobs: list[NewJob] = []
    for item in payloads:
        try:
            jobs.append(make(item))
        except InvalidInput as error:
            raise type(error)(f"payload {len(jobs)} of enqueue_many (from 0): {error}") from None
    return jobs


def _name_of(fn: Callable[..., Any], name: str | None) -> str:
    if not callable(fn):
        raise ConfigurationError(f"{fn!r} is no function; a task is made from one")
    chosen = name if name is not None else getattr(fn, "__name__", "")
    if name is None and (not chosen or chosen == "<lambda>"):
        raise ConfigurationError(f"the task at {_location_of(fn)} has no name of its own; give it name=")
    try:
        return check_task_name(chosen)
    except InvalidInput as error:
        raise ConfigurationError(str(error)) from None


def _topic_of(name: str, topic: str | None) -> str:
    if topic is not None:
        return check_topic(topic)
    if not is_topic(name):
        raise InvalidInput(
            f"the name {name!r} is no legal topic (1 to {MAX_NAME_LENGTH} of A-Z a-z 0-9 _ -); give topic="
        )
    return name


def _refuse_for_batches(options: Mapping[str, Any]) -> None:
    if not options["durable"]:
        raise InvalidInput(
            "batch together with durable=False; objects are handed over one call at a time. Leave one of "
            "them out"
        )
    if options.get("isolation") is not None:
        raise InvalidInput(
            'batch together with isolation="process"; a process of its own takes one job at a time. Leave '
            "one of them out"
        )


def _alias_list(aliases: Iterable[str]) -> tuple[str, ...]:
    return (aliases,) if isinstance(aliases, str) else tuple(aliases)


def _location_of(fn: Callable[..., Any]) -> str:
    """Where a function is written, as module, name and line."""
    target = plain_function(fn)
    code = getattr(target, "__code__", None)
    line = f" (line {code.co_firstlineno})" if code is not None else ""
    return f"{getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', repr(target))}{line}"
