"""What one module of built-in tasks hands to those who register them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidewheel.builtin.roots import Roots
from tidewheel.tasks.options import TaskOptions


@dataclass(frozen=True, slots=True)
class BuiltinTask:
    """One task to be: its function, mostly a method of an object that holds its configuration."""

    name: str
    fn: Callable[..., Any]
    options: TaskOptions = field(default_factory=TaskOptions)


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """One module's tasks.

    ``build`` gets the keywords of ``app.include(tidewheel.builtin, …)`` and the roots, and answers its tasks:
    none where what they need was not configured. Wrong values are a ``ConfigurationError`` there and then.
    """

    names: tuple[str, ...]
    build: Callable[[Mapping[str, Any], Roots], Iterable[BuiltinTask]]
    needs: str  # what has to be configured for it, in words
