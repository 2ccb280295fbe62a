"""From ``module:attribute`` to the user's app."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from tidewheel.app import Tidewheel
from tidewheel.cli.error_output import EXIT_FAILED, EXIT_USAGE, AppLoadError, wants_traceback
from tidewheel.core.names import suggest


def load_app(reference: str) -> Tidewheel:
    """The app ``reference`` names. The working directory is importable, as it is for ``python -m``."""
    module_name, _, attribute = reference.partition(":")
    if module_name.endswith(".py") or "/" in module_name or os.sep in module_name:
        dotted = ".".join(Path(module_name).with_suffix("").parts).strip(".")
        raise AppLoadError(
            f"{module_name!r} is a file; give the module: {dotted}:{attribute or 'app'}", exit_code=EXIT_USAGE
        )
    if not module_name or not all(part.isidentifier() for part in module_name.split(".")):
        raise AppLoadError(
            f"{reference!r} names no app; write it as module:attribute, for example myproject.jobs:app",
            exit_code=EXIT_USAGE,
        )
    module = _import(module_name)
    return _only_app(module) if not attribute else _app_named(module, attribute)


def _import(name: str) -> ModuleType:
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()  # a file written since the interpreter last looked must be found
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppLoadError(
                f"there is no module {error.name!r}, neither in {directory} nor installed",
                exit_code=EXIT_USAGE,
            ) from None
        raise _import_failure(name, error) from error
    except (Exception, SystemExit) as error:  # whatever the user's module does, the report is ours
        raise _import_failure(name, error) from error


def _import_failure(name: str, error: BaseException) -> AppLoadError:
    shown = wants_traceback(click.get_current_context(silent=True))
    hint = "" if shown else " (--traceback shows where)"
    text = " ".join(str(error).split())
    return AppLoadError(
        f"importing {name!r} failed: {type(error).__name__}{': ' if text else ''}{text}{hint}",
        exit_code=EXIT_FAILED,
        cause=error if shown else None,
    )


def _app_named(module: ModuleType, attribute: str) -> Tidewheel:
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            apps = _find_apps(module)
            hint = suggest(attribute, apps) or _listed(apps)
            raise AppLoadError(
                f"module {module.__name__!r} has no attribute {attribute!r}{hint}", exit_code=EXIT_USAGE
            ) from None
    if not isinstance(found, Tidewheel):
        raise AppLoadError(
            f"{module.__name__}:{attribute} is a {type(found).__name__}, not a Tidewheel app"
            f"{_listed(_find_apps(module))}",
            exit_code=EXIT_USAGE,
        )
    return found


def _only_app(module: ModuleType) -> Tidewheel:
    """The app of a module that was named without an attribute: ``app``, or the only one there is."""
    apps = _find_apps(module)
    if "app" in apps:
        return apps["app"]
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    what = "several apps" if apps else "no app"
    raise AppLoadError(f"module {module.__name__!r} has {what}{_listed(apps)}", exit_code=EXIT_USAGE)


def _find_apps(module: ModuleType) -> dict[str, Tidewheel]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Tidewheel)}


def _listed(apps: dict[str, Tidewheel]) -> str:
    if not apps:
        return "; it has no Tidewheel app: make one with app = Tidewheel(...)"
    return f"; its apps: {', '.join(apps)}"
