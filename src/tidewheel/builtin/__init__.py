"""Built-in tasks for common side effects: ``app.include(tidewheel.builtin, roots=["data"])``.

A task is registered only if its requirements are configured, so that no job can request an effect that was
not allowed. Each task is a model for tasks of your own; ``write_file`` and ``remove_file`` are their building
blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from tidewheel.builtin import aws, claude, downloads, files
from tidewheel.builtin.aws_client import Credentials
from tidewheel.builtin.files import remove_file, write_file
from tidewheel.builtin.roots import RootOptions, Roots
from tidewheel.builtin.task_group import BuiltinTask, TaskGroup
from tidewheel.core.names import shorten, suggest
from tidewheel.errors import ConfigurationError
from tidewheel.tasks.options import TaskOptions

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.tasks.task import Task

__all__ = ["Credentials", "IncludeOptions", "Roots", "register", "remove_file", "write_file"]


# Every module of tasks is here once, and once among the bases of ``IncludeOptions``.
TASK_GROUPS: Final[tuple[TaskGroup, ...]] = (files.TASKS, downloads.TASKS, aws.TASKS, claude.TASKS)


class BuiltInOptions(TaskOptions, total=False):
    """What may be said about one of the tasks: all that ``@app.task`` takes but its name."""

    topic: str
    aliases: Iterable[str]


class ChoiceOptions(TypedDict, total=False):
    """Which of the tasks, and what is said about each."""

    only: Collection[str]
    options: Mapping[str, BuiltInOptions]


class IncludeOptions(
    RootOptions,
    ChoiceOptions,
    files.FileOptions,
    downloads.DownloadOptions,
    aws.AwsOptions,
    claude.ClaudeOptions,
    total=False,
):
    """All that may be said with ``app.include(tidewheel.builtin, …)``."""


def register(app: Tidewheel, **given: Unpack[IncludeOptions]) -> Mapping[str, Task[..., Any]]:
    """Register the built-in tasks that are configured; they by their names.

    ``only`` narrows them by name, ``options`` gives some of them options of a task, by name.
    """
    known = IncludeOptions.__annotations__
    for name in given:
        if name not in known:
            raise ConfigurationError(
                f"{shorten(name)} is no option of tidewheel.builtin{suggest(name, known)}; "
                f"there are {', '.join(sorted(known))}"
            )
    roots = Roots(given.get("roots", ()))
    offered: dict[str, BuiltinTask] = {
        task.name: task for part in TASK_GROUPS for task in part.build(given, roots)
    }
    own = _options_by_task(given.get("options", {}))
    only = _names(given.get("only"))
    for name in (*(only or ()), *own):
        _refuse_absent(name, offered)
    chosen = offered if only is None else {name: offered[name] for name in only}
    if not chosen:
        needs = "; ".join(f"{', '.join(part.names)}: {part.needs}" for part in TASK_GROUPS)
        raise ConfigurationError(f"none of the tasks of tidewheel.builtin is configured ({needs})")
    return {name: _registered(app, task, own.get(name, {})) for name, task in chosen.items()}


def _names(only: Any) -> tuple[Any, ...] | None:
    if only is None or isinstance(only, str):
        return only if only is None else (only,)
    if not isinstance(only, Iterable) or not (names := tuple(only)):
        raise ConfigurationError(f"only is {shorten(only)}; give names of tasks, or leave it out for all")
    return names


def _options_by_task(options: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(options, Mapping) or not all(isinstance(own, Mapping) for own in options.values()):
        raise ConfigurationError(
            f"options is {shorten(options)}; give options by task, such as "
            '{"create_file": {"max_attempts": 10}}'
        )
    for name, own in options.items():
        if "name" in own:
            raise ConfigurationError(f"options gives {shorten(name)} another name; give it aliases instead")
    return options


def _registered(app: Tidewheel, task: BuiltinTask, own: Mapping[str, Any]) -> Task[..., Any]:
    options: dict[str, Any] = {**task.options, **own}
    registered: Task[..., Any] = app.task(name=task.name, **options)(task.fn)
    return registered


def _refuse_absent(name: Any, offered: Collection[str]) -> None:
    if isinstance(name, str) and name in offered:
        return
    for part in TASK_GROUPS:
        if name in part.names:
            raise ConfigurationError(f"{name} is asked for but not configured; it needs {part.needs}")
    names = [name for part in TASK_GROUPS for name in part.names]
    meant = suggest(name, names) if isinstance(name, str) else ""
    raise ConfigurationError(
        f"{shorten(name)} is no task of tidewheel.builtin{meant}; there are {', '.join(names)}"
    )
