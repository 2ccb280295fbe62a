"""Syntax tree of a filter, and functions that write filters.

Nodes keep values and their positions; they do not know what the fields mean. ``field_term``, ``lane_filter``
and ``quote_value`` are for filters made by programs: they quote a value so that it is read as plain text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias


class Operator(StrEnum):
    IS = ":"
    EQUAL = "="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    CONTAINS = "~"


_PLAIN: Final = re.compile(r'[^\s"(),]+')
_BARE: Final = re.compile(r'[^\s"(),:=!<>~-][^\s"(),:=!<>~]*')
_KEYWORDS: Final = frozenset({"AND", "OR", "NOT"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """A value, and where it stands. In quotes it is a text, whatever it looks like."""

    text: str
    quoted: bool
    position: int
    length: int

    def __str__(self) -> str:
        plain = not self.quoted and _PLAIN.fullmatch(self.text)
        return self.text if plain else quote_string(self.text)


@dataclass(frozen=True, slots=True)
class Term:
    """A field, an operator and one of these values."""

    field: str
    path: tuple[str | int, ...]  # into the payload
    operator: Operator
    values: tuple[WrittenValue, ...]
    position: int
    length: int  # of the field

    def __str__(self) -> str:
        steps = "".join(_format_step(step) for step in self.path)
        return f"{self.field}{steps}{self.operator}{','.join(map(str, self.values))}"


@dataclass(frozen=True, slots=True)
class SearchWord:
    """A text that is looked for everywhere."""

    value: WrittenValue

    def __str__(self) -> str:
        text = self.value.text
        bare = not self.value.quoted and _BARE.fullmatch(text) and text not in _KEYWORDS
        return text if bare else quote_string(text)


@dataclass(frozen=True, slots=True)
class NotNode:
    part: Node

    def __str__(self) -> str:
        return f"-({self.part})" if isinstance(self.part, AndNode | OrNode) else f"-{self.part}"


@dataclass(frozen=True, slots=True)
class AndNode:
    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " ".join(
            f"({part})" if isinstance(part, AndNode | OrNode) else str(part) for part in self.parts
        )


@dataclass(frozen=True, slots=True)
class OrNode:
    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({part})" if isinstance(part, OrNode) else str(part) for part in self.parts)


Node: TypeAlias = Term | SearchWord | NotNode | AndNode | OrNode


def quote_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _format_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _NAME.fullmatch(step) else f"[{quote_string(step)}]"


_unquoted = re.compile(r"[\w.-]+")


def field_term(field: str, value: str) -> str:
    """``field:value``, quoted where it has to be."""
    return f"{field}:{quote_value(value)}"


def lane_filter(topic: str, task: str | None, *states: str) -> str:
    """The jobs of a lane, or of a topic, that are in one of these states."""
    terms = [f"state:{','.join(states)}"] if states else []
    terms.append(field_term("topic", topic))
    if task is not None:
        terms.append(field_term("task", task))
    return " ".join(terms)


def quote_value(text: str) -> str:
    if _unquoted.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
