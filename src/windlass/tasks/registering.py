"""How the built-in tasks come into an app."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from windlass.errors import ConfigurationError
from windlass.names import shorten, suggest
from windlass.options import TaskOptions
from windlass.tasks.part import BuiltIn, Part
from windlass.tasks.roots import RootOptions, Roots

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.task import Task

PARTS: Final[tuple[Part, ...]] = ()  # files.PART, downloading.PART, aws.PART, claude.PART


class ChoiceOptions(TypedDict, total=False):
    """What may be said about any of the tasks."""

    only: Collection[str]
    options: Mapping[str, TaskOptions]


class IncludeOptions(RootOptions, ChoiceOptions, total=False):  # and the keywords of each part
    """All that may be said with ``app.include(windlass.tasks, …)``."""


def register(app: Windlass, **given: Unpack[IncludeOptions]) -> Mapping[str, Task[..., Any]]:
    """Register the built-in tasks that are configured; they by their names.

    ``only`` narrows them by name, ``options`` gives some of them options of a task, by name.
    """
    known = {name for part in PARTS for name in part.keywords.__annotations__}
    known |= IncludeOptions.__annotations__.keys()
    for name in given:
        if name not in known:
            hint = suggest(name, known)
            raise ConfigurationError(
                f"{name!r} is no option of windlass.tasks{hint}; there are {_listed(known)}"
            )
    roots = Roots(given.get("roots", ()))
    offered: dict[str, BuiltIn] = {task.name: task for part in PARTS for task in part.build(given, roots)}
    only = given.get("only")
    own = given.get("options", {})
    for name in (*(only or ()), *own):
        _refuse_absent(name, offered)
    chosen = offered if only is None else {name: offered[name] for name in only}
    if not chosen:
        needs = "; ".join(f"{', '.join(part.names)}: {part.needs}" for part in PARTS)
        raise ConfigurationError(f"none of the tasks of windlass.tasks is configured ({needs})")
    return {
        name: app.task(name=name, **{**task.options, **own.get(name, {})})(task.fn)
        for name, task in chosen.items()
    }


def _refuse_absent(name: str, offered: Collection[str]) -> None:
    if name in offered:
        return
    for part in PARTS:
        if name in part.names:
            raise ConfigurationError(f"{name} is asked for but not configured; it needs {part.needs}")
    names = [name for part in PARTS for name in part.names]
    raise ConfigurationError(
        f"{shorten(name)} is no task of windlass.tasks{suggest(name, names)}; there are {', '.join(names)}"
    )


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
