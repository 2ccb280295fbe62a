"""Rule expressions as values, and the comparison of two plain values.

``rule_parser`` makes expressions from text, ``rules`` evaluates them. ``compare_values`` returns true, false
or None (unknown). Missing, null and the empty text are equal. Texts compare with texts, numbers with numbers,
booleans only for equality. ``list ~ value`` is true if an element equals the value. All else is unknown:
mixed kinds, objects, other operators on lists, NaN. An unknown comparison holds in neither polarity, so that
``!(amount > 1000)`` does not pass the text ``"5000"``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from operator import eq, ge, gt, le, lt
from typing import Any, Final, TypeAlias, assert_never

from tidewheel.core.clock import MICROSECONDS, to_microseconds
from tidewheel.core.conditions import Comparison, Field, Value

JSON_OBJECT: Final = object()
"""A JSON object: compares with nothing, and is not missing."""
_PLAIN: Final = (str, int, float)
_ORDERS: Final = {
    Comparison.EQUAL: eq,
    Comparison.LESS: lt,
    Comparison.AT_MOST: le,
    Comparison.GREATER: gt,
    Comparison.AT_LEAST: ge,
}
MAX_INT64: Final = 2**63 - 1
MAX_TIMESTAMP_SECONDS: Final = 253_402_300_800.0
"""The end of the year 9999."""


def value_at(value: Any, path: tuple[str, ...]) -> Any:
    """What plain JSON has at a path; None where there is nothing."""
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isascii() and part.isdigit() and len(part) < 7:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value if value is None or isinstance(value, (*_PLAIN, list, tuple)) else JSON_OBJECT


def compare_values(left: Any, comparison: Comparison, right: Any) -> bool | None:
    """Compare two values of plain JSON; None is unknown."""
    if left is None and (right is None or isinstance(right, str)):
        left = ""
    if right is None and isinstance(left, str):
        right = ""
    if isinstance(left, str) and isinstance(right, str):
        return (
            right in left if comparison is Comparison.CONTAINS else compare_ordered(left, comparison, right)
        )
    if isinstance(left, list | tuple) and comparison is Comparison.CONTAINS:
        return _contains(left, right)
    if isinstance(left, bool) or isinstance(right, bool):
        both = isinstance(left, bool) and isinstance(right, bool)
        return left is right if both and comparison is Comparison.EQUAL else None
    if is_number(left) and is_number(right) and comparison is not Comparison.CONTAINS:
        return compare_ordered(left, comparison, right)
    return None


def is_missing(value: Any) -> bool:
    """Return whether a value is null or the empty text. Known for every kind, unlike equality with one."""
    return value is None or (isinstance(value, str) and not value)


def is_number(value: Any) -> bool:
    """Return whether a value has a place among the numbers; NaN has none."""
    # Not math.isnan: it fails for integers beyond floats.
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # noqa: PLR0124


def _contains(items: Sequence[Any], value: Any) -> bool | None:
    """Return whether an element equals the value; unknown if none does and one is of another kind."""
    found = [compare_values(item, Comparison.EQUAL, value) for item in items]
    return True if True in found else None if None in found else False


def compare_ordered(left: Any, comparison: Comparison, right: Any) -> bool:
    """Two of a kind that has an order."""
    return bool(_ORDERS[comparison](left, right))


def is_storable(text: str) -> bool:
    """Whether a database could have it; otherwise no job does."""
    return "\x00" not in text and (
        text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
    )


def parse_time(value: Any) -> int | None:
    """A time in microseconds: an ISO 8601 text (UTC unless it says otherwise), or seconds since 1970."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            parsed = datetime.fromisoformat(value)
            return to_microseconds(parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC))
        except (ValueError, OverflowError):
            return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not abs(value) <= MAX_TIMESTAMP_SECONDS
    ):
        return None
    return int(value * MICROSECONDS)


def integer_bound(comparison: Comparison, value: float) -> int | bool:
    """A bound for whole numbers of 64 bits that means the same; True or False where all or none are in it."""
    if value != value:  # noqa: PLR0124 - not a number; math.isnan fails for integers beyond floats
        return False
    if not -MAX_INT64 <= value <= MAX_INT64:
        if comparison in (Comparison.LESS, Comparison.AT_MOST):
            return value > 0
        return comparison in (Comparison.GREATER, Comparison.AT_LEAST) and value < 0
    if comparison is Comparison.EQUAL and value != int(value):
        return False
    up = comparison in (Comparison.LESS, Comparison.AT_LEAST)
    bound = math.ceil(value) if up else math.floor(value)
    return max(-MAX_INT64, min(MAX_INT64, bound))


class Operator(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    GREATER = ">"
    AT_LEAST = ">="
    LESS = "<"
    AT_MOST = "<="
    CONTAINS = "~"
    NOT_CONTAINS = "!~"

    @property
    def negative(self) -> bool:
        return self in (Operator.NOT_EQUAL, Operator.NOT_CONTAINS)

    @property
    def comparison(self) -> Comparison:
        """The same without its not."""
        return Comparison(self.removeprefix("!"))


FLIPPED_OPERATORS: Final = {
    Operator.EQUAL: Operator.EQUAL,
    Operator.NOT_EQUAL: Operator.NOT_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.AT_LEAST: Operator.AT_MOST,
    Operator.LESS: Operator.GREATER,
    Operator.AT_MOST: Operator.AT_LEAST,
}
"""The operator when both sides change places."""

TEXT_FIELDS: Final = {
    "topic": Field.TOPIC,
    "tenant": Field.TENANT,
    "task": Field.TASK,
    "user_id": Field.USER_ID,
    "service_id": Field.SERVICE_ID,
    "correlation_id": Field.CORRELATION_ID,
    "key": Field.KEY,
}
NUMBER_FIELDS: Final = {"priority": Field.PRIORITY, "attempt": Field.ATTEMPT}
RULE_FIELDS: Final = (*TEXT_FIELDS, *NUMBER_FIELDS, "created", "state")
"""What a rule can say about a job."""


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value


@dataclass(frozen=True, slots=True)
class RequestValue:
    """Something of ``@request``: ``("auth", "id")``."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobValue:
    field: str


Operand: TypeAlias = Literal | RequestValue | JobValue


@dataclass(frozen=True, slots=True)
class ComparisonExpression:
    """Two operands; if one is of the job, it is the left one."""

    left: Operand
    comparison: Comparison
    right: Literal | RequestValue
    negative: bool = False


@dataclass(frozen=True, slots=True)
class ConstantExpression:
    value: bool


@dataclass(frozen=True, slots=True)
class AndExpression:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class OrExpression:
    parts: tuple[Expression, ...]


Expression: TypeAlias = ComparisonExpression | ConstantExpression | AndExpression | OrExpression


def negate_expression(expression: Expression) -> Expression:
    """The opposite, said of each comparison by itself.

    Not of the whole: a comparison with something the caller lacks does not hold, whichever way it is put, and
    around it a ``!`` would make that true.
    """
    match expression:
        case ComparisonExpression():
            return replace(expression, negative=not expression.negative)
        case ConstantExpression(holds):
            return ConstantExpression(not holds)
        case AndExpression(parts):
            return OrExpression(tuple(negate_expression(part) for part in parts))
        case OrExpression(parts):
            return AndExpression(tuple(negate_expression(part) for part in parts))
    assert_never(expression)
