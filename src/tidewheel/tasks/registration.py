"""Register what an app consists of: tasks, middleware and carried context variables.

``app.include`` registers the tasks of another module with their configuration, all of them or none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from tidewheel.errors import ConfigurationError
from tidewheel.settings import Settings
from tidewheel.tasks.batches import Batch
from tidewheel.tasks.options import EnqueueOptions, TaskOptions
from tidewheel.tasks.registry import Registry
from tidewheel.tasks.task import BatchTaskDecorator, Task, TaskDecorator
from tidewheel.tasks.task_schemas import payload_schemas

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.client.local_queue import LocalQueue
    from tidewheel.core.cron import Timing
    from tidewheel.tasks.context import Context

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class TaskSource(Protocol[P, R_co]):
    """What can be included: a module, or anything else, with a function ``register(app, …)``."""

    @property
    def register(self) -> Callable[Concatenate[Tidewheel, P], R_co]:
        """Register tasks with ``app``, as the rest of its arguments tell."""


def include_tasks(app: Tidewheel, source: Any, args: Any, configuration: Any) -> Any:
    """Have ``source`` register its tasks, all of them or none; what it answers."""
    register = getattr(source, "register", None)
    if not callable(register):
        name = getattr(source, "__name__", repr(source))
        raise ConfigurationError(
            f"{name} has no function register(app, …), so there is nothing to include; "
            "write one that calls app.task(…) for each of its tasks"
        )
    with app.registry.all_or_nothing():
        return register(app, *args, **configuration)


R = TypeVar("R")
T = TypeVar("T")
M = TypeVar("M")


class TaskRegistration:
    """The part of an app that registers."""

    registry: Registry
    settings: Settings
    lane: LocalQueue

    def schedule(
        self,
        name: str,
        task_or_topic: str | Task[..., Any],
        when: Timing,
        payload: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> None:
        """Declare a schedule; the app does it."""
        raise NotImplementedError

    @overload
    def task(self, fn: Callable[Concatenate[Context, P], Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Awaitable[R]], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        fn: None = None,
        /,
        *,
        batch: int | Batch,
        name: str | None = None,
        topic: str | None = None,
        aliases: Iterable[str] = (),
        **options: Unpack[TaskOptions],
    ) -> BatchTaskDecorator: ...
    @overload
    def task(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        topic: str | None = None,
        aliases: Iterable[str] = (),
        **options: Unpack[TaskOptions],
    ) -> TaskDecorator: ...
    def task(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        topic: str | None = None,
        aliases: Iterable[str] = (),
        batch: int | Batch | None = None,
        **options: Any,
    ) -> Any:
        """Register a function as a task. Works bare (``@app.task``) and with options (``@app.task(...)``).

        ``batch``: it takes a list, and is called once for up to so many jobs.
        """

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            task: Task[..., Any] = Task(
                cast("Tidewheel", self),
                function,
                name=name,
                topic=topic,
                aliases=aliases,
                batch=batch,
                options=options,
            )
            self.registry.add(task)
            if (when := task.defaults.get("schedule")) is not None:
                self.schedule(task.name, task, when)
            if not task.durable:
                self.lane.preload()
            return task

        return register if fn is None else register(fn)

    def include(self, source: TaskSource[P, R], /, *args: P.args, **configuration: P.kwargs) -> R:
        """Register tasks from elsewhere, all or none: ``app.include(tidewheel.builtin, roots=["data"])``."""
        return cast("R", include_tasks(cast("Tidewheel", self), source, args, configuration))

    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of every payload: a union of the durable tasks, told apart by ``task``."""
        return payload_schemas(self.registry)

    # -- around enqueue and run -------------------------------------------------------------------------

    def middleware(self, middleware: M, /) -> M:
        """Register middleware, as a call or as a decorator; the first registered is the outermost.

        A plain function ``(job: JobDraft)`` sees every job before it is written. An async function
        ``(ctx, call_next)`` is around every run. An object, or a class that is made without arguments, may
        have both, as its methods ``enqueue`` and ``run``; see ``Middleware``. Workers take what is registered
        when they start.
        """
        self.registry.middleware.add(middleware)
        self.registry.middleware.app = cast("Tidewheel", self)
        return middleware

    @overload
    def carry(self, *variables: ContextVar[str] | ContextVar[str | None]) -> None: ...
    @overload
    def carry(
        self, variable: ContextVar[T], /, *, dump: Callable[[T], str], load: Callable[[str], T]
    ) -> None: ...
    def carry(
        self,
        *variables: ContextVar[Any],
        dump: Callable[[Any], str] | None = None,
        load: Callable[[str], Any] | None = None,
    ) -> None:
        """Have context variables travel with jobs: their values at enqueue are set where the handler runs.

        Values are texts, or made into texts by ``dump`` and back by ``load``; None is not carried. All of a
        job's together are at most 4,096 bytes.
        """
        self.registry.middleware.carry(variables, dump, load)
        self.registry.middleware.app = cast("Tidewheel", self)
