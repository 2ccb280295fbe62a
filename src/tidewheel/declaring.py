"""What an app is made of before it does anything: its tasks, its middleware, what travels along."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

from tidewheel.batch import Batch
from tidewheel.including import TaskSource, include
from tidewheel.options import TaskOptions
from tidewheel.registry import Registry
from tidewheel.schedules.declaring import declare
from tidewheel.schemas import payload_schemas
from tidewheel.settings import Settings
from tidewheel.task import BatchTaskDecorator, Task, TaskDecorator

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.context import Context
    from tidewheel.lane import Lane

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
M = TypeVar("M")


class Declaring:
    """The part of an app that registers."""

    registry: Registry
    settings: Settings
    lane: Lane

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
                declare(self.registry, self.settings, task.name, task, when, None, {})
            if not task.durable:
                self.lane.prepare()
            return task

        return register if fn is None else register(fn)

    def include(self, source: TaskSource[P, R], /, *args: P.args, **configuration: P.kwargs) -> R:
        """Take in tasks written elsewhere, all or none: ``app.include(tidewheel.tasks, roots=["data"])``."""
        return cast("R", include(cast("Tidewheel", self), source, args, configuration))

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
        self.registry.around.add(middleware)
        self.registry.around.app = cast("Tidewheel", self)
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
        self.registry.around.carry(variables, dump, load)
        self.registry.around.app = cast("Tidewheel", self)
