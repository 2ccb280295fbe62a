"""Where a process of its own finds a task: what to import, and what is then found there.

A task with ``isolation="process"`` runs in a fresh interpreter. Functions are not sent there, they are
imported, so what is looked for here is a module whose import registers the task, and a name in it that leads
to the task: the task itself, or its app.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tidewheel.errors import ConfigurationError
from tidewheel.tasks.annotations import plain_function

if TYPE_CHECKING:
    from types import ModuleType

    from tidewheel.core.model import Lane
    from tidewheel.tasks.registry import Registry
    from tidewheel.tasks.task import Task

MAIN: Final = "__main__"
SPAWNED_MAIN: Final = "__mp_main__"
"""What a program's main module is called where it is imported: the word multiprocessing uses."""

_OWN_PACKAGE = __name__.partition(".")[0]

cannot_open_reason: str | None = None
"""Why no app may be opened in this process now; set while a main module is imported a second time."""


class MainModule(Struct, frozen=True):
    """A program's main module, to be imported by another process."""

    path: str
    package: str


class TaskLocation(Struct, frozen=True):
    """What leads to a task in a fresh interpreter: import the modules, look at the last one."""

    task: str
    modules: tuple[str, ...]
    attribute: str  # of the task, or of its app
    main: MainModule | None = None


def importing_module() -> str | None:
    """The module that is being executed now and whose import therefore registers what is registered now."""
    frame = inspect.currentframe()
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == "<module>" and name.partition(".")[0] != _OWN_PACKAGE:
            return name
        frame = frame.f_back
    return None


def find_task_locations(registry: Registry, lanes: Iterable[Lane]) -> dict[Task[..., Any], TaskLocation]:
    """Where the tasks are that run in processes of their own, of those that a worker on these lanes runs."""
    tasks = {registry.resolve(lane.topic, lane.task or "") for lane in lanes}
    return {
        task: find_task_location(task) for task in tasks if task is not None and task.isolation is not None
    }


def find_task_location(task: Task[..., Any]) -> TaskLocation:
    """Where another process finds this task; ``ConfigurationError`` when it cannot."""
    function = plain_function(task.fn)
    importers = list(dict.fromkeys(filter(None, (task.registered_by, function.__module__))))
    for name in importers:
        if attribute := _attribute(name, task):
            return _task_location(task, (name,), attribute)
    if "<locals>" in function.__qualname__:
        raise _not_importable_error(task, "it is defined inside a function")
    for name in importers:
        if attribute := _attribute(name, task.app):
            return _task_location(task, (name,), attribute)
    for name in list(sys.modules):  # the app lives elsewhere, and its name is not known where it is used
        if attribute := _attribute(name, task.app):
            return _task_location(task, (*importers, name), attribute)
    raise _not_importable_error(task, "no module holds it or its app under a name")


def _task_location(task: Task[..., Any], modules: tuple[str, ...], attribute: str) -> TaskLocation:
    mains = {MAIN, SPAWNED_MAIN} & set(modules)
    main = _main_module(task) if mains else None
    return TaskLocation(
        task.name, tuple(SPAWNED_MAIN if name in mains else name for name in modules), attribute, main
    )


def _main_module(task: Task[..., Any]) -> MainModule:
    module = sys.modules[MAIN]
    path = getattr(module, "__file__", None)
    if path is None:
        raise _not_importable_error(
            task, "it is defined in an interactive session, or in code without a file"
        )
    return MainModule(path, getattr(module, "__package__", None) or "")


def _attribute(module_name: str, wanted: object) -> str | None:
    """The name under which a module holds an object."""
    module = sys.modules.get(module_name)
    return next((name for name, value in _variables(module) if value is wanted), None)


def _variables(module: ModuleType | None) -> Iterator[tuple[str, object]]:
    # Some put other things than modules into sys.modules; those have no variables of interest.
    found = getattr(module, "__dict__", None)
    return iter(list(found.items())) if isinstance(found, dict) else iter(())


def _not_importable_error(task: Task[..., Any], why: str) -> ConfigurationError:
    return ConfigurationError(
        f'task {task.name!r} ({task.location}) has isolation="process", but another process cannot import '
        f"it: {why}. Define it at the top level of a module, with the app at the top level too"
    )
