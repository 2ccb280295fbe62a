"""What an annotation may say about one field of a payload, beside its type."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name under which a payload may give a parameter: ``user_id: Annotated[str, Alias("userId")]``.

    It is stored under the parameter's own name. An older name of a parameter makes a good alias, too: jobs
    that wait since before the change still fit.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Check:
    """A rule that a type cannot tell: raises ``ValueError`` with what is wrong, without the value itself."""

    check: Callable[[Any], object]


def aliases_in(hint: Any) -> tuple[str, ...]:
    """The other names that a parameter's annotation gives it."""
    return tuple(part.name for part in _said_in(hint) if isinstance(part, Alias))


def checks_in(hint: Any) -> tuple[Callable[[Any], object], ...]:
    """The rules that a parameter's annotation has for it."""
    return tuple(part.check for part in _said_in(hint) if isinstance(part, Check))


def _said_in(hint: Any) -> Iterator[Any]:
    if typing.get_origin(hint) is typing.Annotated:
        yield from hint.__metadata__
    else:  # ``x: Annotated[…] = None`` was read as a union with None
        for part in typing.get_args(hint):
            yield from _said_in(part) if typing.get_origin(part) is typing.Annotated else ()
