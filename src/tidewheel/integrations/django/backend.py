"""The backend for ``TASKS``, and the task class that its decorator creates.

Jobs are written with Django's own connection, as part of its transaction. The task class is that of Django's
interface, plus options of Tidewheel such as ``retry`` and ``key``.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any, Final, Literal
from uuid import UUID

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from tidewheel.client.drivers import wrap_connection
from tidewheel.core.conditions import matches
from tidewheel.core.model import JobRecord
from tidewheel.core.names import is_topic
from tidewheel.core.retry import Retry
from tidewheel.core.security_context import current_context, row_filter
from tidewheel.errors import ConfigurationError, InvalidInput, InvalidPayload, JobNotFound
from tidewheel.integrations.django import compat
from tidewheel.integrations.django.database_urls import database_url
from tidewheel.integrations.django.handlers import JobHandlers
from tidewheel.integrations.django.project import ProjectApp, app_for
from tidewheel.integrations.django.task_results import make_task_result
from tidewheel.tasks.options import ByFields, ByPayload
from tidewheel.tasks.task import Task

NOT_GIVEN: Final[Any] = ...
"""An option that was not given: ``None`` means something, no limit."""

TASK_OPTIONS: Final = ("max_attempts", "timeout", "retry", "expires", "key", "until", "on_duplicate")
"""Options of Tidewheel that may be given to ``@task`` and to ``using``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TidewheelTask(compat.Task):  # type: ignore[misc]
    """A task of Django's interface that runs with Tidewheel."""

    max_attempts: int | None = NOT_GIVEN
    timeout: float | timedelta | None = NOT_GIVEN
    retry: Retry = NOT_GIVEN
    expires: float | timedelta | None = NOT_GIVEN
    key: str | ByPayload | ByFields | None = NOT_GIVEN
    until: Literal["pruned", "finished"] = NOT_GIVEN
    on_duplicate: Literal["keep", "replace"] = NOT_GIVEN

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> TidewheelTask:
        """The task with other defaults, for the jobs to come."""
        given = {"priority": priority, "queue_name": queue_name, "run_after": run_after, "backend": backend}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return replace(self, **changes, **options)


def task_options(task: Any) -> dict[str, Any]:
    """What a task says for Tidewheel."""
    return {
        name: value for name in TASK_OPTIONS if (value := getattr(task, name, NOT_GIVEN)) is not NOT_GIVEN
    }


_TASK_LEVEL_OPTIONS: Final = ("max_attempts", "timeout", "retry", "expires")
"""Options of a declared task that its Tidewheel task has as well; keys belong to calls."""

_registering = threading.Lock()


class TidewheelBackend(compat.BaseTaskBackend):  # type: ignore[misc]
    """Durable tasks in the project's own database."""

    task_class = TidewheelTask
    is_tidewheel_backend = True  # subclasses included; ``project`` asks for it without importing this module
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def app(self) -> ProjectApp:
        """The Tidewheel app behind it, the same one in all threads."""
        return app_for(self.alias)

    def validate_task(self, task: Any) -> None:
        """Whether it can be run; one that is seen for the first time is known to workers from then on."""
        super().validate_task(task)
        if not is_topic(task.queue_name):
            raise compat.InvalidTask(
                f"queue_name is {task.queue_name!r}; Tidewheel takes 1 to 200 characters of A-Z a-z 0-9 _ -"
            )
        try:
            known = self._registered(task)
            known.template(self._options(task))
        except (ConfigurationError, InvalidInput) as error:
            raise compat.InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Write the job: in ``atomic()`` as part of its transaction, otherwise at once."""
        self.validate_task(task)
        args, kwargs = compat.normalize_json(list(args)), compat.normalize_json(dict(kwargs))
        _check_call(task, args, kwargs)
        app = self.app
        bound = self._registered(task).options(**self._options(task))
        if app.database is None:
            job = bound.sync.enqueue(args=args, kwargs=kwargs)
        else:
            job = bound.using(app.connection).enqueue(args=args, kwargs=kwargs)
        result = make_task_result(job.record, task, self.alias)
        if not job.duplicate or job.replaced:  # else nothing was: its key is taken
            compat.signals().task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result of a job, as seen by Django's own connection: those of its transaction included."""
        record = self._record(result_id)
        task = None if record is None else self._declared(record.task)
        if record is None or task is None:
            raise compat.TaskResultDoesNotExist(result_id)
        return make_task_result(record, task, self.alias)

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """What is wrong with the settings, without looking at the database."""
        yield from super().check(**kwargs)
        yield from self._setting_problems()

    # -- tasks ------------------------------------------------------------------------------------------

    def _registered(self, task: Any) -> Task[..., Any]:
        """The Tidewheel task of the same function; its name is the function's path."""
        registry = self.app.registry
        known = registry.find(task.module_path)
        if known is not None:
            return known
        with _registering:
            known = registry.find(task.module_path)
            return known if known is not None else self._register(task)

    def _register(self, task: Any) -> Task[..., Any]:
        app = self.app
        if app.handlers is None:
            app.handlers = JobHandlers(type(self), self.alias, self._record)
        handlers = app.handlers
        declared = _as_declared(task)
        options = {
            name: value for name, value in task_options(declared).items() if name in _TASK_LEVEL_OPTIONS
        }
        if app.retry is not None:
            options.setdefault("retry", app.retry)
        decorate = app.task(
            name=task.module_path,
            topic=self._queue_of(declared),
            priority=declared.priority,
            on_success=handlers.completed,
            on_failure=handlers.failed,
            fallback=handlers.errored,
            **options,
        )
        made: Task[..., Any] = decorate(handlers.handler_of(declared))
        made.__doc__ = inspect.getdoc(task.func)
        app.queues.movable.add(made.name)
        app.queues.queues.update(filter(is_topic, self.queues))
        app.declared[made.name] = self._as_backend_task(declared)
        return made

    def adopt_modules(self, modules: Iterable[ModuleType]) -> None:
        """Have all tasks of these modules: ``using(backend=…)`` may send any of them here."""
        for module in modules:
            for value in tuple(vars(module).values()):
                if isinstance(value, compat.Task) and value.backend != self.alias:
                    self._as_backend_task(value)

    def _as_backend_task(self, task: Any) -> Any:
        """The task as one of this backend, which knows it from then on."""
        if task.backend == self.alias and task.run_after is None:
            return task
        return replace(task, backend=self.alias, queue_name=self._queue_of(task), run_after=None)

    def _queue_of(self, task: Any) -> str:
        """Its queue, or the first one here where this backend does not have that."""
        return str(task.queue_name if not self.queues or task.queue_name in self.queues else min(self.queues))

    def _declared(self, name: str) -> Any:
        """The task of Django's interface with this name, where there is one."""
        app = self.app
        if name not in app.declared:
            app.discover()  # whoever asks need not have imported it
        return app.declared.get(name)

    def _options(self, task: Any) -> dict[str, Any]:
        options = {**task_options(task), "priority": task.priority, "topic": task.queue_name}
        if task.run_after is not None:
            aware = timezone.is_aware(task.run_after)
            options["run_at"] = task.run_after if aware else timezone.make_aware(task.run_after)
        return options

    # -- reading ----------------------------------------------------------------------------------------

    def _record(self, result_id: str | UUID) -> JobRecord | None:
        app = self.app
        try:
            job_id = UUID(str(result_id))
        except ValueError:
            return None
        if app.database is None:
            try:
                return app.sync.get(job_id).record
            except JobNotFound:
                return None
        context = current_context()
        tenant = None if context is None else context.tenant
        connection: Any = wrap_connection(app.connection)  # one whose calls block, as all of Django's are
        found: JobRecord | None = connection.run_steps(app.external_transaction.get(job_id, tenant))
        only = row_filter()
        if found is not None and only is not None and not matches(only, found, app.clock.now()):
            return None  # for whoever acts so it is not there
        return found

    # -- checks -----------------------------------------------------------------------------------------

    def _setting_problems(self) -> Iterator[checks.CheckMessage]:
        where = f"TASKS[{self.alias!r}]"
        for queue in sorted(self.queues):
            if not is_topic(queue):
                yield checks.Error(
                    f"{where}['QUEUES'] has {queue!r}, which is no topic of Tidewheel.",
                    hint="Use 1 to 200 characters of A-Z a-z 0-9 _ -.",
                    id="tidewheel.E001",
                )
        if not self.queues:
            yield checks.Warning(
                f"{where}['QUEUES'] is empty, so tasks may be sent to any queue, and workers take only those "
                "that tasks are declared with.",
                hint="List the queues, or start workers for the others with --topics.",
                id="tidewheel.W002",
            )
        try:
            app = self.app
            if app.database is not None:
                database_url(app.plain_connection, None)
        except ImproperlyConfigured as error:
            yield checks.Error(f"{where}: {error}", id="tidewheel.E002")
        if not apps.is_installed("tidewheel.integrations.django"):
            yield checks.Warning(
                "tidewheel.integrations.django is not in INSTALLED_APPS, so manage.py has no command "
                "tidewheel_worker, and migrate does not make the tables of Tidewheel.",
                id="tidewheel.W001",
            )


def _as_declared(task: Any) -> Any:
    """The task as its module has it: what is seen first may be one of ``using(backend=…, timeout=…)``."""
    known = getattr(sys.modules.get(task.func.__module__), task.func.__name__, None)
    return known if isinstance(known, compat.Task) and known.func is task.func else task


def _check_call(task: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Arguments that the function cannot take are refused where they are given, and nothing is written."""
    given = [None, *args] if task.takes_context else args
    try:
        inspect.signature(task.func).bind(*given, **kwargs)
    except TypeError as error:
        raise InvalidPayload(f"the arguments do not fit task {task.module_path!r}: {error}") from None
