"""Conditions as SQL: what both databases say alike.

Every value is a parameter; only fixed text is put together.
There is true and false: nothing here may come out as NULL, which NOT would leave as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, assert_never

from tidewheel.core.conditions import (
    AllOf,
    AnyOf,
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    ContainsText,
    Field,
    HasFingerprint,
    InState,
    LastErrorContains,
    Not,
)
from tidewheel.core.model import DerivedState, State

_LARGEST: Final = 2**63 - 1
_MAX_FLAT_OPERANDS: Final = 50
_ORDERED: Final = {
    Comparison.EQUAL: "=",
    Comparison.LESS: "<",
    Comparison.AT_MOST: "<=",
    Comparison.GREATER: ">",
    Comparison.AT_LEAST: ">=",
}
_NOT_NULL_FIELDS: Final = frozenset({Field.TOPIC, Field.TASK, Field.TENANT})


class ConditionDialect(ABC):
    """How one database says what databases say differently. The table of jobs is called ``j``."""

    collation = ""
    """what makes texts compare by code point"""

    @abstractmethod
    def text(self, value: str) -> str:
        """A text as a parameter."""

    @abstractmethod
    def number(self, value: int) -> str:
        """A number of up to 64 bits as a parameter."""

    @abstractmethod
    def contains(self, column: str, value: str) -> str:
        """Whether a text holds another one, given as a parameter."""

    @abstractmethod
    def state(self, state: State | DerivedState) -> str:
        """Whether a job is in a state, derived ones included."""

    @abstractmethod
    def any_error_contains(self, text: str, *, in_payload: bool) -> str:
        """Whether errors, or errors or the payload, hold a text."""

    @abstractmethod
    def last_error_contains(self, text: str) -> str:
        """Whether the last error holds a text."""

    def column(self, field: Field) -> str:
        return f"j.{field}"


def condition_to_sql(condition: Condition, dialect: ConditionDialect) -> str:
    """An expression, in brackets where it needs some.

    Values inside payloads and fingerprints are for Python to compare.
    """
    match condition:
        case Compare(field, comparison, value):
            if field.is_text:
                return _compare_text(field, comparison, str(value or ""), dialect)
            return _compare_number(field, comparison, None if value is None else int(value), dialect)
        case InState(state):
            return f"({dialect.state(state)})"
        case ContainsText(text, in_payload):
            return f"({dialect.any_error_contains(text, in_payload=in_payload)})"
        case LastErrorContains(text):
            return f"({dialect.last_error_contains(text)})"
        case Not(part):
            return f"(NOT {condition_to_sql(part, dialect)})"
        case AllOf(parts):
            return (
                _balanced_join([condition_to_sql(part, dialect) for part in parts], " AND ")
                if parts
                else "true"
            )
        case AnyOf(parts):
            return (
                _balanced_join([condition_to_sql(part, dialect) for part in parts], " OR ")
                if parts
                else "false"
            )
        case ComparePayload() | HasFingerprint():
            raise ValueError(f"no database decides this: {condition}")
    assert_never(condition)


def _balanced_join(parts: list[str], word: str) -> str:
    """In halves of halves: SQLite takes ``a OR b OR c …`` for a tree as deep as it is long, up to 1,000."""
    if len(parts) > _MAX_FLAT_OPERANDS:
        middle = len(parts) // 2
        parts = [_balanced_join(parts[:middle], word), _balanced_join(parts[middle:], word)]
    return f"({word.join(parts)})"


def _compare_text(field: Field, comparison: Comparison, value: str, dialect: ConditionDialect) -> str:
    column = dialect.column(field)
    if field not in _NOT_NULL_FIELDS:
        column = f"coalesce({column}, '')"
    if comparison is Comparison.CONTAINS:
        return f"({dialect.contains(column, dialect.text(value))})"
    collation = "" if comparison is Comparison.EQUAL else dialect.collation
    return f"({column}{collation} {_ORDERED[comparison]} {dialect.text(value)})"


def _compare_number(
    field: Field, comparison: Comparison, value: int | None, dialect: ConditionDialect
) -> str:
    column = dialect.column(field)
    if comparison is Comparison.CONTAINS:
        return "false"
    if value is None:
        return f"({column} IS NULL)" if comparison is Comparison.EQUAL else "false"
    if abs(value) > _LARGEST:  # every number there is lies on one side of it
        below = value < 0
        wanted = (Comparison.GREATER, Comparison.AT_LEAST) if below else (Comparison.LESS, Comparison.AT_MOST)
        return f"({column} IS NOT NULL)" if comparison in wanted else "false"
    return f"coalesce({column} {_ORDERED[comparison]} {dialect.number(value)}, false)"
