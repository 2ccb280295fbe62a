"""From a condition to the fields of a filter, which indexes serve. No I/O.

What no field can say stays a condition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tidewheel.core.conditions import (
    ALWAYS,
    NEVER,
    AllOf,
    Compare,
    Comparison,
    Condition,
    Field,
    InState,
    all_of,
)
from tidewheel.core.model import JobFilter, State

_EQUALS: Final = {
    Field.TOPIC: "topic",
    Field.TASK: "task",
    Field.TENANT: "tenant",
    Field.KEY: "key",
    Field.CORRELATION_ID: "correlation_id",
}
"""What has a field of its own in a filter."""
_LAST: Final = 2**63 - 1


def push_down(where: JobFilter, condition: Condition) -> JobFilter:
    """The jobs of ``where`` that meet the condition as well.

    ``topic = 'mail'`` and its like become fields when everything else is asked beside them, not instead.
    A filter that can match nothing has the condition ``NEVER``; stores do not look at a single job for it.
    """
    left: list[Condition] = [] if where.condition is None else [where.condition]
    for part in condition.parts if isinstance(condition, AllOf) else (condition,):
        fields = _field_values(where, part)
        if fields is None:
            left.append(part)
        elif _contradicts(where, fields):
            return replace(where, condition=NEVER)
        else:
            where = replace(where, **fields)
    rest = all_of(*left)
    return replace(where, condition=None if rest == ALWAYS else rest)


def _field_values(where: JobFilter, part: Condition) -> dict[str, Any] | None:
    """The fields of a filter that say the same; None when there are none."""
    match part:
        case InState(state):
            # Two states may both be true of a job (a retrying one is pending), so one of them is asked apart.
            both_stored = isinstance(state, State) and isinstance(where.state, State)
            return {"state": state} if where.state in (None, state) or both_stored else None
        case Compare(Field.CREATED_AT, comparison, int(moment)):
            return _creation_bounds(where, comparison, moment)
        case Compare(field, Comparison.EQUAL, str(value)) if field in _EQUALS and (
            value or field is Field.TASK  # no other field can ask for what is missing
        ):
            return {_EQUALS[field]: value}
        case _:
            return None


def _contradicts(where: JobFilter, fields: dict[str, Any]) -> bool:
    return any(
        name not in ("created_after", "created_before") and getattr(where, name) not in (None, value)
        for name, value in fields.items()
    )


def _creation_bounds(where: JobFilter, comparison: Comparison, moment: int) -> dict[str, Any] | None:
    if not 0 <= moment < _LAST:
        return None
    after = where.created_after or 0
    before = _LAST if where.created_before is None else where.created_before  # exclusive
    match comparison:
        case Comparison.AT_LEAST:
            return {"created_after": max(after, moment)}
        case Comparison.GREATER:
            return {"created_after": max(after, moment + 1)}
        case Comparison.LESS:
            return {"created_before": min(before, moment)}
        case Comparison.AT_MOST:
            return {"created_before": min(before, moment + 1)}
        case Comparison.EQUAL:
            return {"created_after": max(after, moment), "created_before": min(before, moment + 1)}
        case _:
            return None
