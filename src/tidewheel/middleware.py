"""What happens around every enqueue and every run of an app: middleware, and context variables carried along.

Before a job is written each middleware sees it, in the order they were registered. Around a run they are
nested, the first outermost. An app that has none pays a truth test.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from tidewheel import headers as texts
from tidewheel.draft import JobDraft
from tidewheel.errors import ConfigurationError, InvalidInput, WrongState
from tidewheel.model import NewJob

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.batch import BatchContext
    from tidewheel.context import Context

T = TypeVar("T")

MAX_MIDDLEWARE: Final = 100
MAX_CARRIED: Final = 50
RESERVED: Final = frozenset({"traceparent", "tracestate", "baggage", texts.SCHEDULE, texts.FIRE_TIME})
"""Headers that belong to a trace, or say which schedule made the job."""

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
"""The rest of a run, down to the handler: answers what that returns, raises what that raises."""
EnqueueMiddleware: TypeAlias = Callable[[JobDraft], None]
RunMiddleware: TypeAlias = "Callable[[Context | BatchContext, CallNext], Awaitable[Any]]"


class Middleware:
    """Around enqueue and run: subclass it and override either or both."""

    def enqueue(self, job: JobDraft) -> None:
        """A job is about to be written: look, ``job.change(…)``, or raise to refuse it.

        A plain function, because some ways in are plain calls (``task.using`` on a connection that blocks).
        """

    async def run(self, ctx: Context | BatchContext, call_next: CallNext) -> Any:  # noqa: ARG002
        """A job is about to run: what this returns is its result, what it raises is its error."""
        return await call_next()


class _Carried:
    """One context variable and its name in the headers."""

    def __init__(
        self,
        variable: ContextVar[Any],
        name: str,
        dump: Callable[[Any], str] | None,
        load: Callable[[str], Any] | None,
    ) -> None:
        self.variable = variable
        self.name = name
        self._dump = dump
        self._load = load

    def text(self) -> str | None:
        """Its value here and now; None where it has none."""
        value = self.variable.get(None)
        if value is None:
            return None
        text = value if self._dump is None else self._dump(value)
        if not isinstance(text, str):
            # Not its value: that may be a secret, and whoever enqueues over HTTP reads this.
            raise InvalidInput(
                f"context variable {self.name!r} has a value of type {type(text).__name__}; what is carried "
                "along is text. Give app.carry() dump= and load= for it"
            )
        return text

    def set(self, text: str) -> None:
        self.variable.set(text if self._load is None else self._load(text))


class Around:
    """All of it, for one app."""

    def __init__(self) -> None:
        self._enqueues: list[EnqueueMiddleware] = []
        self._runs: list[RunMiddleware] = []
        self._carried: dict[str, _Carried] = {}
        self.app: Tidewheel | None = None  # for jobs that a worker makes by itself
        self.enqueues = False  # whether anything is to be done when jobs come in
        self.active = False  # whether anything is to be done when they run

    # -- registering ------------------------------------------------------------------------------------

    def add(self, middleware: Any) -> None:
        """Take in a function or an object; see ``Tidewheel.middleware``."""
        if inspect.isclass(middleware):
            middleware = middleware()
        if len(self._enqueues) + len(self._runs) >= MAX_MIDDLEWARE:
            raise ConfigurationError(f"{MAX_MIDDLEWARE} middlewares are the limit; this would be one more")
        if inspect.isroutine(middleware) or not (
            hasattr(middleware, "enqueue") or hasattr(middleware, "run")
        ):
            if not callable(middleware):
                raise ConfigurationError(
                    f"{middleware!r} is no middleware; give a function, or an object with enqueue(job) "
                    "or async run(ctx, call_next)"
                )
            enqueue, run = (None, middleware) if _is_async(middleware) else (middleware, None)
        else:
            enqueue, run = getattr(middleware, "enqueue", None), getattr(middleware, "run", None)
            if getattr(enqueue, "__func__", None) is Middleware.enqueue:
                enqueue = None
            if getattr(run, "__func__", None) is Middleware.run:
                run = None
        # Both are checked before either is taken: half a middleware is worse than none.
        if enqueue is not None:
            _check_enqueue(enqueue)
        if run is not None:
            _check_run(run, middleware)
        if enqueue is not None:
            self._enqueues.append(enqueue)
            self.enqueues = True
        if run is not None:
            self._runs.append(run)
            self.active = True

    def carry(
        self,
        variables: Sequence[ContextVar[Any]],
        dump: Callable[[Any], str] | None,
        load: Callable[[str], Any] | None,
    ) -> None:
        """Have these travel with jobs; see ``Tidewheel.carry``."""
        if (dump is None) != (load is None) or (dump is not None and len(variables) != 1):
            raise ConfigurationError("dump and load belong together, and to one variable: carry it by itself")
        carried = dict(self._carried)
        for variable in variables:
            if not isinstance(variable, ContextVar):
                raise ConfigurationError(
                    f"{variable!r} is no contextvars.ContextVar, and nothing else is carried"
                )
            name = variable.name
            if name in RESERVED or not name or len(name) > 100:
                raise ConfigurationError(
                    f"a context variable named {name!r} cannot be carried: a name has 1 to 100 characters, "
                    f"and {', '.join(sorted(RESERVED))} belong to traces and schedules"
                )
            before = carried.get(name)
            if before is not None and before.variable is not variable:
                raise ConfigurationError(f"two context variables are named {name!r}; give one another name")
            if before is None and len(carried) >= MAX_CARRIED:
                raise ConfigurationError(f"{MAX_CARRIED} carried context variables are the limit")
            carried[name] = _Carried(variable, name, dump, load)
        self._carried = carried  # all of them, or none
        self.enqueues = self.enqueues or bool(self._carried)
        self.active = self.active or bool(self._carried)

    # -- jobs come in -----------------------------------------------------------------------------------

    def prepare(self, app: Tidewheel, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """The jobs as they are to be written; raises what a middleware raises, and then nothing is written.

        Called only where ``enqueues`` is true.
        """
        if self._carried:
            jobs = self._with_variables(jobs)
        if not self._enqueues:
            return jobs
        prepared: list[NewJob] = []
        for job in jobs:
            draft = JobDraft(app, job)
            for enqueue in self._enqueues:
                enqueue(draft)
            prepared.append(draft.job)
        return prepared

    def _with_variables(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        here: dict[str, str] = {}
        for carried in self._carried.values():
            text = carried.text()
            if text is not None:
                here[carried.name] = text
        if not here:
            return jobs
        alone = texts.write(here)
        # What a job has already is its own: a copy of a job keeps what that was enqueued with.
        return [
            replace(
                job,
                headers=alone if job.headers is None else texts.write({**here, **texts.read(job.headers)}),
            )
            for job in jobs
        ]

    # -- they run ---------------------------------------------------------------------------------------

    @property
    def wraps_runs(self) -> bool:
        """Whether there is middleware around runs, not only variables."""
        return bool(self._runs)

    def restore(self, *headers: str | None) -> None:
        """Set the carried variables here, to what all of these jobs carry alike."""
        if not self._carried or not headers or headers[0] is None:
            return
        first, *others = map(texts.read, headers)
        for name, text in first.items():
            carried = self._carried.get(name)
            if carried is not None and all(other.get(name) == text for other in others):
                carried.set(text)

    async def run(self, context: Context | BatchContext, handler: CallNext) -> Any:
        """Call the handler inside all middleware."""
        step = handler
        for run in reversed(self._runs):
            step = _once(run, context, step)
        return await step()


def prepare(app: Tidewheel, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """What every way in does to checked jobs before they are written."""
    around = app.registry.around
    return around.prepare(app, jobs) if around.enqueues else jobs


def prepare_here(around: Around, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The same in a worker, which holds what is registered and no app."""
    return around.prepare(around.app, jobs) if around.enqueues and around.app is not None else jobs


def _once(run: RunMiddleware, context: Context | BatchContext, inner: CallNext) -> CallNext:
    called = False

    async def call_next() -> Any:
        nonlocal called
        if called:
            raise WrongState("call_next was called twice; a job runs once, and is retried by its own policy")
        called = True
        return await inner()

    async def step() -> Any:
        return await run(context, call_next)

    return step


def _is_async(middleware: Any) -> bool:
    """Of a function (a ``functools.partial`` of one included), or an object that is called like one."""
    return inspect.iscoroutinefunction(middleware) or inspect.iscoroutinefunction(type(middleware).__call__)


def _check_enqueue(enqueue: EnqueueMiddleware) -> None:
    if inspect.iscoroutinefunction(enqueue):
        raise ConfigurationError(
            f"{enqueue!r} is called where jobs come in, and must be a plain function: some ways in are "
            "plain calls"
        )
    _check_arity(enqueue, 1, "job")


def _check_run(run: RunMiddleware, middleware: Any) -> None:
    if not _is_async(run):
        raise ConfigurationError(f"run of middleware {middleware!r} must be an async function")
    _check_arity(run, 2, "ctx, call_next")


def _check_arity(function: Callable[..., Any], number: int, words: str) -> None:
    try:
        inspect.signature(function).bind(*range(number))
    except TypeError as error:
        raise ConfigurationError(
            f"middleware {getattr(function, '__qualname__', function)!r} is called with ({words}): {error}"
        ) from None
