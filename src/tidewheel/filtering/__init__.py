"""The filter language: ``state:failed topic:mail payload.user_id:42 error:"timed out" age>1h``.

One text for every door. It becomes a condition; :mod:`tidewheel.narrowing` finds in it what indexes serve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidewheel.conditions import ALWAYS, Condition
from tidewheel.errors import InvalidInput
from tidewheel.filtering.meaning import FIELDS, FilterField, Meaning
from tidewheel.filtering.nodes import Node
from tidewheel.filtering.reading import MAX_DEPTH, MAX_LENGTH, MAX_TERMS, Reader
from tidewheel.names import shorten

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "MAX_TERMS", "FilterField", "ParsedFilter", "describe_fields", "parse"]


@dataclass(frozen=True, slots=True)
class ParsedFilter:
    """A filter that was read. ``str()`` writes it the way everybody would."""

    node: Node | None
    condition: Condition
    times: tuple[tuple[str, str], ...] = ()
    """each comparison of a time as it was written, and in words with the moment it means"""

    def __str__(self) -> str:
        return "" if self.node is None else str(self.node)


def parse(query: Any, *, now: int, uuids: bool = False) -> ParsedFilter:
    """What a filter asks of jobs; ``InvalidFilter`` says at which character it cannot be read.

    ``now``: microseconds, what relative times count from. ``uuids``: the setting ``tenant_uuids``.
    """
    if not isinstance(query, str):
        raise InvalidInput(
            f"where is {shorten(query)} ({type(query).__name__}); give a text like state:failed"
        )
    node = Reader(query).read()
    meaning = Meaning(query, now, uuids=uuids)
    condition = ALWAYS if node is None else meaning.of(node)
    return ParsedFilter(node, condition, tuple(meaning.times))


def describe_fields() -> tuple[FilterField, ...]:
    """Every field there is, for help and completion."""
    return FIELDS
