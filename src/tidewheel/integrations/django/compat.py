"""The interface of tasks that this project has: Django's own, or that of its backport ``django-tasks``.

Both have the same names but for two exceptions. A project that lists the backport among its apps means it,
also where Django has its own.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


def _package() -> str:
    # By the name of the package, or of its AppConfig.
    listed = any(f"{app}.".startswith("django_tasks.") for app in settings.INSTALLED_APPS)
    if find_spec("django.tasks") is not None and not listed:
        return "django.tasks"
    if find_spec("django_tasks") is not None:
        return "django_tasks"
    raise ImproperlyConfigured(
        "TidewheelBackend needs django.tasks, which Django has since 6.0; for an older Django install its "
        "backport, django-tasks, and add django_tasks to INSTALLED_APPS"
    )


PACKAGE: Final = _package()

_base: Any = import_module(f"{PACKAGE}.base")
_backends: Any = import_module(f"{PACKAGE}.backends.base")
_exceptions: Any = import_module(f"{PACKAGE}.exceptions")
_json: Any = import_module("django.utils.json" if PACKAGE == "django.tasks" else "django_tasks.utils")

BaseTaskBackend: Any = _backends.BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
TASK_MIN_PRIORITY: int = _base.TASK_MIN_PRIORITY
TASK_MAX_PRIORITY: int = _base.TASK_MAX_PRIORITY
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
normalize_json: Any = _json.normalize_json


def signals() -> Any:
    """Its signals. Imported late: their module asks for the backends."""
    return import_module(f"{PACKAGE}.signals")


def backends() -> Any:
    """The backends of ``TASKS``, by alias."""
    return import_module(PACKAGE).task_backends
