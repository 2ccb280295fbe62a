"""What was found out about a caller, for as long as it is the same one.

A key in use is the same ``Caller`` object for a second (see ``lookups``), and asks thousands of times: what a
rule says of it, and the context it acts in, need not be worked out each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from tidewheel.access.caller import Caller

T = TypeVar("T")

MOST_REMEMBERED: Final = 1000
"""Then all are forgotten: those in use are back at once."""


class Remembered(Generic[T]):
    """Answers of ``find``, by caller."""

    def __init__(self, find: Callable[[Caller], T]) -> None:
        self._find = find
        self._known: dict[int, tuple[Caller, T]] = {}

    def of(self, caller: Caller) -> T:
        """The answer about this caller."""
        known = self._known.get(id(caller))
        if known is not None:  # it holds the caller, so no other one can have its id
            return known[1]
        answer = self._find(caller)
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[id(caller)] = (caller, answer)
        return answer
