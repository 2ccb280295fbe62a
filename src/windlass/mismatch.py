"""Saying what is wrong with a payload: the task, the field, the value, what was expected."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import msgspec

from windlass.errors import InvalidPayload
from windlass.names import shorten, suggest

_path = re.compile(r" - at `(?P<path>[^`]*)`$")
_step = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
_missing = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_unknown = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


def describe(
    task: str, error: Exception, body: bytes, fields: Collection[str], inside: str = ""
) -> InvalidPayload:
    """The refusal of a body that msgspec or a pydantic model did not take; ``inside`` names a part of it."""
    listed = getattr(error, "errors", None)
    if callable(listed):
        return _describe_model(task, listed(), inside)
    return _describe_msgspec(task, str(error), body, fields, inside)


def _describe_msgspec(
    task: str, message: str, body: bytes, fields: Collection[str], inside: str
) -> InvalidPayload:
    found = _path.search(message)
    path = found["path"] if found else "$"
    if inside:
        path = f"$.{inside}{path.removeprefix('$')}"
    problem = (message[: found.start()] if found else message).replace("`", "")
    place = path.removeprefix("$").removeprefix(".")
    if missing := _missing.match(message):
        where = f"{place}.{missing['name']}" if place else missing["name"]
        return _refusal(task, f"{where} is missing{_takes(fields, place)}")
    if unknown := _unknown.match(message):
        where = f"{place}.{unknown['name']}" if place else unknown["name"]
        hint = suggest(unknown["name"], fields) if not place else ""
        return _refusal(task, f"{where} is not a field of it{hint}{_takes(fields, place)}")
    value = _value_at(body, path)
    # Some messages quote the value themselves.
    shown = f" ({shorten(value)})" if value is not msgspec.UNSET and repr(value) not in problem else ""
    if isinstance(value, float) and problem.startswith("Expected int"):
        shown = f" ({value!r}); a number with a decimal point is no integer here, even when it is whole"
    problem = f"{place or 'the payload'}: {problem[:1].lower()}{problem[1:]}"
    hidden = problem if value is msgspec.UNSET else problem.replace(repr(value), "…")
    return _refusal(task, problem + shown, hidden)


def _describe_model(task: str, problems: list[dict[str, Any]], inside: str) -> InvalidPayload:
    first = problems[0]
    steps = [*([inside] if inside else []), *(str(step) for step in first.get("loc", ()))]
    place = ".".join(steps) or "the payload"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    value = f" ({shorten(first['input'])})" if "input" in first else ""
    problem = f"{place}: {first.get('msg', 'is not valid')}"
    return _refusal(task, f"{problem}{value}{more}", f"{problem}{more}")


def _refusal(task: str, problem: str, without_value: str | None = None) -> InvalidPayload:
    before = f"payload does not fit task {task!r}: "
    error = InvalidPayload(before + problem)
    error.kept = before + (problem if without_value is None else without_value)
    return error


def _takes(fields: Collection[str], place: str) -> str:
    if place:
        return ""
    return f"; the task takes {', '.join(fields)}" if fields else "; the task takes no fields"


def _value_at(body: bytes, path: str) -> Any:
    """The value msgspec's path points at, or UNSET where the path does not say exactly."""
    try:
        value = msgspec.json.decode(body)
        position = 1
        while position < len(path):
            step = _step.match(path, position)
            if step is None or step.group() == "[...]":
                return msgspec.UNSET
            value = value[step["key"]] if step["key"] is not None else value[int(step["index"])]
            position = step.end()
    except (msgspec.DecodeError, LookupError, TypeError, RecursionError):
        return msgspec.UNSET
    return value
