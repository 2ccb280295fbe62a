"""In the process: becoming like the worker, and finding tasks by import."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from tidewheel import isolation
from tidewheel.app import Tidewheel
from tidewheel.errors import ConfigurationError
from tidewheel.isolation import MAIN, MAIN_AGAIN, Main, Place
from tidewheel.task import Task

_GUARD = (
    'the main module does its work while it is imported by the process of a task with isolation="process". '
    'Put what the program does under: if __name__ == "__main__":'
)


def find_task(place: Place, store_url: str) -> Task[..., Any]:
    """The task, after importing what registers it."""
    importlib.invalidate_caches()  # a module may have been written since this process started
    if place.main is not None:
        import_main(place.main)
    for name in place.modules:
        importlib.import_module(name)
    found = getattr(sys.modules[place.modules[-1]], place.attribute, None)
    task = found.registry.tasks.get(place.task) if isinstance(found, Tidewheel) else found
    if not isinstance(task, Task) or task.name != place.task:
        raise ConfigurationError(
            f"importing {place.modules[-1]} did not register task {place.task!r} as it did in the worker; "
            "register it at the top level of that module, not in code that runs later"
        )
    _keep_out(task.app, store_url)
    return task


def import_main(main: Main) -> None:
    """The program's main module under another name, so that what it guards by its name does not run."""
    if MAIN_AGAIN in sys.modules:
        return
    module = ModuleType(MAIN_AGAIN)
    module.__file__ = main.path
    module.__package__ = main.package
    if main.package:
        importlib.import_module(main.package)  # for relative imports
    before = sys.modules[MAIN]
    sys.modules[MAIN_AGAIN] = sys.modules[MAIN] = module
    isolation.unopenable = _GUARD
    try:
        loader = SourceFileLoader(MAIN_AGAIN, main.path)
        # Not exec_module: that would leave byte code of a script beside it.
        exec(loader.source_to_code(loader.get_data(main.path), main.path), module.__dict__)  # noqa: S102
    except BaseException:
        sys.modules[MAIN] = before
        del sys.modules[MAIN_AGAIN]
        raise
    finally:
        isolation.unopenable = None


def _keep_out(app: Tidewheel, store_url: str) -> None:
    """A handler that enqueues must reach the worker's store or none: never, say, the real one from a test."""
    if store_url.startswith("memory:"):
        app.unopenable = (
            "this app's store is in the memory of the worker, which the process of a task with "
            'isolation="process" cannot reach; use a database, or run the worker with isolate=False'
        )
    elif store_url != app.url:
        app.unopenable = (
            "this app's worker runs on another store than the app has in the process of a task with "
            'isolation="process"; give both the same URL, or run the worker with isolate=False'
        )
    else:
        app.unopenable = None
