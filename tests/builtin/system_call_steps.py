"""The system calls of file tasks, one by one: something can be done before each of them, or instead of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tidewheel.builtin import directories, files

CALLS = frozenset(
    {"open", "mkdir", "stat", "lstat", "fstat", "read", "write", "fchmod", "fsync", "close", "link", "rename"}
    | {"replace", "unlink"}
)

Step = Callable[[int, str, tuple[Any, ...]], None]


class SteppedSystem:
    """Stands where the file tasks have ``os``; what is no system call is as it was."""

    def __init__(self, step: Step) -> None:
        self.made: list[tuple[str, tuple[Any, ...]]] = []
        self._step = step

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in CALLS:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self.made.append((name, args))
            self._step(len(self.made), name, args)
            return found(*args, **kwargs)

        return call

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.made]


def step_through(monkeypatch: pytest.MonkeyPatch, step: Step) -> SteppedSystem:
    """From now on ``step`` is called before each system call, with its number from 1, name and arguments."""
    system = SteppedSystem(step)
    put_in_place(system, monkeypatch.setattr)
    return system


def put_in_place(system: SteppedSystem, put: Callable[[Any, str, Any], object] = setattr) -> None:
    """The same where there is no test, in a process that is about to be killed."""
    put(directories, "os", system)
    put(files, "os", system)
