"""Other names for the fields of a payload."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name under which a payload may give a parameter: ``user_id: Annotated[str, Alias("userId")]``.

    It is stored under the parameter's own name. An older name of a parameter makes a good alias, too: jobs
    that wait since before the change still fit.
    """

    name: str


def aliases_in(hint: Any) -> tuple[str, ...]:
    """The other names that a parameter's annotation gives it."""
    if typing.get_origin(hint) is not typing.Annotated:
        # ``x: Annotated[…] = None`` was read as a union with None.
        return tuple(name for part in typing.get_args(hint) for name in aliases_in(part))
    return tuple(part.name for part in hint.__metadata__ if isinstance(part, Alias))
