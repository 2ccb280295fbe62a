"""How values compare in a rule: the same for what is known at once and for what a job has.

* Missing, null and the empty text are one.
* Texts compare with texts, numbers with numbers, true and false with themselves; anything else is false.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from windlass.clock import MICROSECONDS, to_microseconds
from windlass.conditions import Comparison

COMPOSITE: Final = object()
"""An object or a list: equals nothing, and is not missing."""
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
    return value if value is None or isinstance(value, _PLAIN) else COMPOSITE


def compare(left: Any, comparison: Comparison, right: Any) -> bool:
    """Two plain values."""
    if left is None and (right is None or isinstance(right, str)):
        left = ""
    if right is None and isinstance(left, str):
        right = ""
    if isinstance(left, str) and isinstance(right, str):
        return right in left if comparison is Comparison.CONTAINS else ordered(left, comparison, right)
    if isinstance(left, bool) or isinstance(right, bool):
        return comparison is Comparison.EQUAL and left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return comparison is not Comparison.CONTAINS and ordered(left, comparison, right)
    return False


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
