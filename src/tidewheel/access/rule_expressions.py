"""Rule expressions as values, and the comparison of two plain values.

``rule_parser`` makes expressions from text, ``rules`` evaluates them. ``compare`` returns true, false or None
(unknown). Missing, null and the empty text are equal. Texts compare with texts, numbers with numbers,
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

COMPOSITE: Final = object()
"""A JSON object: compares with nothing, and is not missing."""
_PLAIN: Final = (str, int, float)
_ORDERS: Final = {
    Comparison.EQUAL: eq,
    Comparison.LESS: lt,
    Comparison.AT_MOST: le,
    Comparison.GREATER: gt,
    Comparison.AT_LEAST: ge,
}
LARGEST: Final = 2**63 - 1
LATEST_SECONDS: Final = 253_402_300_800.0
"""The end of the year 9999."""


def at(value: Any, path: tuple[str, ...]) -> Any:
    """What plain JSON has at a path; None where there is nothing."""
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isascii() and part.isdigit() and len(part) < 7:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value if value is None or isinstance(value, (*_PLAIN, list, tuple)) else COMPOSITE


def compare(left: Any, comparison: Comparison, right: Any) -> bool | None:
    """Compare two values of plain JSON; None is unknown."""
    if left is None and (right is None or isinstance(right, str)):
        left = ""
    if right is None and isinstance(left, str):
        right = ""
    if isinstance(left, str) and isinstance(right, str):
        return right in left if comparison is Comparison.CONTAINS else ordered(left, comparison, right)
    if isinstance(left, list | tuple) and comparison is Comparison.CONTAINS:
        return _holds(left, right)
    if isinstance(left, bool) or isinstance(right, bool):
        both = isinstance(left, bool) and isinstance(right, bool)
        return left is right if both and comparison is Comparison.EQUAL else None
    if is_number(left) and is_number(right) and comparison is not Comparison.CONTAINS:
        return ordered(left, comparison, right)
    return None


def is_missing(value: Any) -> bool:
    """Return whether a value is null or the empty text. Known for every kind, unlike equality with one."""
    return value is None or (isinstance(value, str) and not value)


def is_number(value: Any) -> bool:
    """Return whether a value has a place among the numbers; NaN has none."""
    # Not math.isnan: it fails for integers beyond floats.
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # noqa: PLR0124


def _holds(items: Sequence[Any], value: Any) -> bool | None:
    """Return whether an element equals the value; unknown if none does and one is of another kind."""
    found = [compare(item, Comparison.EQUAL, value) for item in items]
    return True if True in found else None if None in found else False


def ordered(left: Any, comparison: Comparison, right: Any) -> bool:
    """Two of a kind that has an order."""
    return bool(_ORDERS[comparison](left, right))


def storable(text: str) -> bool:
    """Whether a database could have it; otherwise no job does."""
    return "\x00" not in text and (
        text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
    )


def moment(value: Any) -> int | None:
    """A time in microseconds: an ISO 8601 text (UTC unless it says otherwise), or seconds since 1970."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            parsed = datetime.fromisoformat(value)
            return to_microseconds(parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC))
        except (ValueError, OverflowError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LATEST_SECONDS:
        return None
    return int(value * MICROSECONDS)


def whole(comparison: Comparison, value: float) -> int | bool:
    """A bound for whole numbers of 64 bits that means the same; True or False where all or none are in it."""
    if value != value:  # noqa: PLR0124 - not a number; math.isnan fails for integers beyond floats
        return False
    if not -LARGEST <= value <= LARGEST:
        if comparison in (Comparison.LESS, Comparison.AT_MOST):
            return value > 0
        return comparison in (Comparison.GREATER, Comparison.AT_LEAST) and value < 0
    if comparison is Comparison.EQUAL and value != int(value):
        return False
    up = comparison in (Comparison.LESS, Comparison.AT_LEAST)
    bound = math.ceil(value) if up else math.floor(value)
    return max(-LARGEST, min(LARGEST, bound))


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


FLIPPED: Final = {
    Operator.EQUAL: Operator.EQUAL,
    Operator.NOT_EQUAL: Operator.NOT_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.AT_LEAST: Operator.AT_MOST,
    Operator.LESS: Operator.GREATER,
    Operator.AT_MOST: Operator.AT_LEAST,
}
"""The operator when both sides change places."""

TEXTS: Final = {
    "topic": Field.TOPIC,
    "tenant": Field.TENANT,
    "task": Field.TASK,
    "user_id": Field.USER_ID,
    "service_id": Field.SERVICE_ID,
    "correlation_id": Field.CORRELATION_ID,
    "key": Field.KEY,
}
NUMBERS: Final = {"priority": Field.PRIORITY, "attempt": Field.ATTEMPT}
FIELDS: Final = (*TEXTS, *NUMBERS, "created", "state")
"""What a rule can say about a job."""


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value


@dataclass(frozen=True, slots=True)
class OfRequest:
    """Something of ``@request``: ``("auth", "id")``."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OfJob:
    field: str


Operand: TypeAlias = Literal | OfRequest | OfJob


@dataclass(frozen=True, slots=True)
class Compares:
    """Two operands; if one is of the job, it is the left one."""

    left: Operand
    comparison: Comparison
    right: Literal | OfRequest
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Always:
    holds: bool


@dataclass(frozen=True, slots=True)
class Both:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Expression, ...]


Expression: TypeAlias = Compares | Always | Both | Either


def negated(expression: Expression) -> Expression:
    """The opposite, said of each comparison by itself.

    Not of the whole: a comparison with something the caller lacks does not hold, whichever way it is put, and
    around it a ``!`` would make that true.
    """
    match expression:
        case Compares():
            return replace(expression, negative=not expression.negative)
        case Always(holds):
            return Always(not holds)
        case Both(parts):
            return Either(tuple(negated(part) for part in parts))
        case Either(parts):
            return Both(tuple(negated(part) for part in parts))
    assert_never(expression)
