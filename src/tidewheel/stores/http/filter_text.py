"""Conditions as texts of the filter language: over HTTP a filter is what a person could have typed.

Each text means exactly its condition, but for what the language has no words for: that is refused.
"""

from __future__ import annotations

import math
import re
from typing import Final

from tidewheel.core.clock import to_datetime
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
from tidewheel.core.model import FOREVER
from tidewheel.errors import NotOverHttp

_NEVER: Final = "(state:pending state:failed)"
"""What no job is."""
_TIMES: Final = {
    Field.CREATED_AT: "created",
    Field.RUN_AT: "run_at",
    Field.STARTED_AT: "started",
    Field.FINISHED_AT: "finished",
}
_name = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_number = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)


def condition_to_text(condition: Condition) -> str:
    """The text that means this condition. Brackets around whatever has parts: that is always right."""
    match condition:
        case Not(Compare(Field.ERROR_SUMMARY, Comparison.EQUAL, None | "")):
            return "error:*"
        case Not(part):
            return f"-{condition_to_text(part)}"
        case AllOf(parts):
            return f"({' '.join(map(condition_to_text, parts))})" if parts else f"-{_NEVER}"
        case AnyOf(parts):
            return _any_of(parts)
        case Compare(field, comparison, value):
            return _column(field, comparison, value)
        case InState(state):
            return f"state:{state}"
        case ComparePayload():
            return _payload(condition)
        case ContainsText(text, in_payload):
            return f"{'text' if in_payload else 'any_error'}:{_quoted(text)}"
        case LastErrorContains(text):
            return f"error:{_quoted(text)}"
        case HasFingerprint(fingerprint):
            return f"fingerprint:{fingerprint}"


def _any_of(parts: tuple[Condition, ...]) -> str:
    if not parts:
        return _NEVER
    match parts:
        case (ComparePayload(path, Comparison.EQUAL, int() | float() as number), text) if not isinstance(
            number, bool
        ) and text == ComparePayload(path, Comparison.EQUAL, _digits(number)):
            return f"payload{_steps(path)}:{_digits(number)}"  # as it was typed: a number, or its digits
    return f"({' OR '.join(map(condition_to_text, parts))})"


def _column(field: Field, comparison: Comparison, value: str | int | None) -> str:
    if field is Field.ERROR_SUMMARY:
        if comparison is Comparison.EQUAL and not value:
            return "-error:*"
        raise _not_expressible(f"comparisons with {field}")
    operator = ":" if comparison is Comparison.EQUAL else str(comparison)
    if field.is_text:
        return f"{field}{operator}{_quoted(str(value or ''))}"
    if value is None:
        # The language knows none for what is missing; it is neither smaller nor larger than anything.
        return f"{_TIMES.get(field, field)}:none" if comparison is Comparison.EQUAL else _NEVER
    if comparison is Comparison.CONTAINS:
        return _NEVER
    if field in _TIMES:
        return _time(_TIMES[field], operator, int(value))
    return f"{field}{operator}{value}"


def _time(name: str, operator: str, moment: int) -> str:
    if not 0 <= moment <= FOREVER:
        raise _not_expressible("times before 1970 or after the year 9999")
    return f"{name}{operator}{to_datetime(moment).isoformat().replace('+00:00', 'Z')}"


def _payload(condition: ComparePayload) -> str:
    path, comparison, value = condition.path, condition.comparison, condition.value
    field = f"payload{_steps(path)}"
    operator = ":" if comparison is Comparison.EQUAL else str(comparison)
    if isinstance(value, str):
        return f"{field}{operator}{_quoted(value)}"
    if comparison is Comparison.EQUAL and (value is None or isinstance(value, bool)):
        return f"{field}:{'null' if value is None else str(value).lower()}"
    if value is None or isinstance(value, bool) or comparison is Comparison.CONTAINS:
        return _NEVER  # there is no order between them, and they contain nothing
    digits = _digits(value)
    if not math.isfinite(value) or _number.fullmatch(digits) is None:
        raise _not_expressible(f"the number {digits}")
    if comparison is Comparison.EQUAL:
        # Typed without quotes it also means the text of these digits, which is not asked for here.
        return f"({field}:{digits} -{field}:{_quoted(digits)})"
    return f"{field}{operator}{digits}"


def _digits(value: float) -> str:
    return repr(value)


def _steps(path: tuple[str | int, ...]) -> str:
    return "".join(map(_step, path))


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _name.fullmatch(step) else f"[{_quoted(step)}]"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _not_expressible(what: str) -> NotOverHttp:
    return NotOverHttp(
        f"the filter language has no words for {what}, and over HTTP filters are texts; ask for something "
        "wider and choose among what comes"
    )
