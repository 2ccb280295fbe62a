"""Run middleware around every enqueue and every run of an app, and carry context variables with jobs.

Enqueue middleware gets each job as a :class:`JobDraft` before it is written, and can change or refuse it. It
runs in the order of registration. Run middleware is nested, the first registered outermost. An app without
middleware and carried variables pays one truth test.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, Unpack
from uuid import UUID

from msgspec.structs import replace

from tidewheel.core import headers as job_headers
from tidewheel.core import payload as job_payload
from tidewheel.core.clock import to_datetime
from tidewheel.core.model import BodyFormat, NewJob
from tidewheel.core.names import shorten, suggest
from tidewheel.errors import ConfigurationError, HandlerNotFound, InvalidInput, WrongState
from tidewheel.tasks.options import BY_PAYLOAD, ByFields, EnqueueOptions, change_options, key_of

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.tasks.batches import BatchContext
    from tidewheel.tasks.context import Context
    from tidewheel.tasks.task import Task


class _Unset(Enum):
    UNSET = "same"


_UNSET: Final = _Unset.UNSET


class JobDraft:
    """What is about to be enqueued: read it, ``change`` it, or raise to refuse it. Nothing is written yet."""

    __slots__ = ("_app", "_job")

    def __init__(self, app: Tidewheel, job: NewJob) -> None:
        self._app = app
        self._job = job

    def __repr__(self) -> str:
        return f"<JobDraft {self.id} {self.task or self.topic}>"

    @property
    def app(self) -> Tidewheel:
        return self._app

    @property
    def job(self) -> NewJob:
        """As it will be written."""
        return self._job

    @property
    def id(self) -> UUID:
        """The id it gets, unless its key is taken."""
        return self._job.id

    @property
    def task(self) -> str:
        """The task's name; empty for a job that is for whoever takes jobs of its topic."""
        return self._job.task

    @property
    def topic(self) -> str:
        return self._job.topic

    @property
    def tenant(self) -> str:
        return self._job.tenant

    @property
    def payload(self) -> Any:
        """JSON as plain Python, read anew each time, or bytes; None for a task that is not durable."""
        if not self.durable:
            return None
        if self._job.format is BodyFormat.BYTES:
            return self._job.payload
        return job_payload.decode(self._job.payload)

    @property
    def durable(self) -> bool:
        """Whether it goes into the store; else its objects stay in this process, and are not shown."""
        return type(self._job.payload) is bytes

    @property
    def headers(self) -> dict[str, str]:
        """The texts that travel with it; a copy."""
        return job_headers.read_headers(self._job.headers)

    @property
    def priority(self) -> int:
        return self._job.priority

    @property
    def key(self) -> str | None:
        return self._job.key

    @property
    def delay(self) -> float:
        """Seconds until it is due, where no moment is given."""
        return self._job.delay

    @property
    def run_at(self) -> datetime | None:
        return None if self._job.run_at is None else to_datetime(self._job.run_at)

    @property
    def max_attempts(self) -> int | None:
        return self._job.max_attempts

    @property
    def timeout(self) -> float | None:
        return self._job.timeout

    @property
    def correlation_id(self) -> str | None:
        return self._job.correlation_id

    @property
    def user_id(self) -> str | None:
        return self._job.user_id

    @property
    def service_id(self) -> str | None:
        return self._job.service_id

    def change(
        self,
        *,
        task: str | _Unset = _UNSET,
        payload: Any = _UNSET,
        headers: Mapping[str, str] | _Unset = _UNSET,
        **options: Unpack[EnqueueOptions],
    ) -> None:
        """Make it another job: everything is checked as if it had been enqueued so. All or nothing.

        ``task`` moves it to the topic of that task, unless ``topic`` is given, and needs a payload that fits.
        ``headers`` are added to those it has. Options are those of ``enqueue``. A key that was made of the
        payload follows it.
        """
        job = self._job
        now = self._task() if task is _UNSET else self._resolve_task(task)
        if task is not _UNSET and now is not None:
            job = replace(job, task=now.name, topic=now.topic)
            payload = self.payload if payload is _UNSET else payload
        if payload is not _UNSET:
            job = self._with_payload(job, now, payload)
        if options:
            if options.get("topic") is not None and now is not None:
                now.template({"topic": options["topic"]})  # refuses the home of others
            job = change_options(job, options, self._app.settings)
        if headers is not _UNSET:
            job = replace(
                job, headers=job_headers.write_headers({**job_headers.read_headers(job.headers), **headers})
            )
        self._job = job

    def _task(self) -> Task[..., Any] | None:
        return self._app.registry.resolve(self._job.topic, self._job.task)

    def _resolve_task(self, name: Any) -> Task[..., Any]:
        known = self._app.registry.tasks
        task = self._app.registry.find(name) if isinstance(name, str) else None
        if task is None:
            raise HandlerNotFound(
                f"there is no task {shorten(name)}{suggest(str(name), known)}; "
                f"the tasks are {', '.join(known) or 'none'}"
            )
        if not task.durable or not self.durable:
            raise InvalidInput(
                f"a job of {self.task or self.topic!r} cannot become one of {name!r}: of the two at least "
                "one is not durable"
            )
        return task

    def _with_payload(self, job: NewJob, task: Task[..., Any] | None, value: Any) -> NewJob:
        if not self.durable:
            raise InvalidInput(
                f"the arguments of {self.task!r} are objects of this process, which middleware cannot "
                "change: the task is not durable"
            )
        limit = self._app.settings.max_payload_bytes
        if task is None or not job.task:
            body, body_format = job_payload.encode_untyped_payload(value, limit)
        else:
            body, body_format = task.signature.encode_payload(value, limit), task.signature.format
        return replace(
            job, payload=body, format=body_format, key=self._recompute_key(task, body, body_format)
        )

    def _recompute_key(self, task: Task[..., Any] | None, body: bytes, body_format: BodyFormat) -> str | None:
        """Two jobs with the key of the payload before would be the same job, whatever theirs is now."""
        job = self._job
        if job.key is not None:
            of_task = None if task is None else task.defaults.get("key")
            for kind in (of_task, BY_PAYLOAD):
                if (kind is BY_PAYLOAD or isinstance(kind, ByFields)) and job.key == key_of(
                    kind, job.payload, job.format
                ):
                    return key_of(kind, body, body_format)
        return job.key


T = TypeVar("T")

MAX_MIDDLEWARE: Final = 100
MAX_CARRIED: Final = 50
RESERVED: Final = frozenset(
    {"traceparent", "tracestate", "baggage", job_headers.SCHEDULE_HEADER, job_headers.FIRE_TIME_HEADER}
)
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


class _CarriedVariable:
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


class MiddlewareStack:
    """All of it, for one app."""

    def __init__(self) -> None:
        self._enqueues: list[EnqueueMiddleware] = []
        self._runs: list[RunMiddleware] = []
        self._carried: dict[str, _CarriedVariable] = {}
        self.app: Tidewheel | None = None  # for jobs that a worker makes by itself
        self.has_enqueue_hooks = False  # whether anything is to be done when jobs come in
        self.has_run_hooks = False  # whether anything is to be done when they run

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
            self.has_enqueue_hooks = True
        if run is not None:
            self._runs.append(run)
            self.has_run_hooks = True

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
            carried[name] = _CarriedVariable(variable, name, dump, load)
        self._carried = carried  # all of them, or none
        self.has_enqueue_hooks = self.has_enqueue_hooks or bool(self._carried)
        self.has_run_hooks = self.has_run_hooks or bool(self._carried)

    # -- jobs come in -----------------------------------------------------------------------------------

    def prepare(self, app: Tidewheel, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """The jobs as they are to be written; raises what a middleware raises, and then nothing is written.

        Called only where ``has_enqueue_hooks`` is true.
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
        alone = job_headers.write_headers(here)
        # What a job has already is its own: a copy of a job keeps what that was enqueued with.
        return [
            replace(
                job,
                headers=alone
                if job.headers is None
                else job_headers.write_headers({**here, **job_headers.read_headers(job.headers)}),
            )
            for job in jobs
        ]

    # -- they run ---------------------------------------------------------------------------------------

    @property
    def wraps_runs(self) -> bool:
        """Whether there is middleware around runs, not only variables."""
        return bool(self._runs)

    def restore_variables(self, *headers: str | None) -> None:
        """Set the carried variables here, to what all of these jobs carry alike."""
        if not self._carried or not headers or headers[0] is None:
            return
        first, *others = map(job_headers.read_headers, headers)
        for name, text in first.items():
            carried = self._carried.get(name)
            if carried is not None and all(other.get(name) == text for other in others):
                carried.set(text)

    async def run(self, context: Context | BatchContext, handler: CallNext) -> Any:
        """Call the handler inside all middleware."""
        step = handler
        for run in reversed(self._runs):
            step = _call_next_once(run, context, step)
        return await step()


def prepare_jobs_in_worker(middleware: MiddlewareStack, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Prepare checked jobs in a worker, which has the registered middleware and no app."""
    return (
        middleware.prepare(middleware.app, jobs)
        if middleware.has_enqueue_hooks and middleware.app is not None
        else jobs
    )


def _call_next_once(run: RunMiddleware, context: Context | BatchContext, inner: CallNext) -> CallNext:
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
