"""Which tests claim, told by their code: packing what is claimed makes no difference to the others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

VERB = "claim"


@functools.cache
def claims(test: Callable[..., Any]) -> bool:
    """Whether the verb is named in the test, or in any function of ours that the test names or is given."""
    met: set[FunctionType] = set()
    waiting = [test, *_given(test)]
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function in met or not _ours(function):
            continue
        met.add(function)
        names = set(_names(function.__code__))
        if VERB in names:
            return True
        waiting += [function.__globals__[name] for name in names if name in function.__globals__]
    return False


def _given(test: Callable[..., Any]) -> Iterator[Any]:
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            for values in mark.args[1]:
                yield from values if isinstance(values, tuple | list) else (values,)


def _ours(function: FunctionType) -> bool:
    return function.__module__.startswith(("tidewheel.testing.", "tests."))


def _names(code: CodeType) -> Iterator[str]:
    """Of the function and of all it defines."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
