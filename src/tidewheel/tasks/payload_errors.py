"""Saying what is wrong with a payload: the task, the field, the value, what was expected."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from tidewheel.core.names import MAX_NAME_LENGTH, clip, shorten, suggest
from tidewheel.core.payload import pointer_to
from tidewheel.errors import InvalidPayload

# Payloads have at most 64 levels; a field name can imitate a longer path.
_path = re.compile(r" - at `(?P<path>[^`]{0,20000})`$")
_step = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
_missing = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_unknown = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")

MAX_PLACES: Final = 50
"""Most places of one refusal; a model may find something wrong with each item of a long list."""


def describe_mismatch(
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
        at = pointer_to([*_steps(path), missing["name"]])
        return _payload_error(
            task, f"{where} is missing{_accepts(fields, place)}", places=[(at, "is missing")]
        )
    if unknown := _unknown.match(message):
        where = clip(f"{place}.{unknown['name']}" if place else unknown["name"], MAX_NAME_LENGTH)
        hint = suggest(unknown["name"], fields) if not place else ""
        at = pointer_to([*_steps(path), unknown["name"]])
        return _payload_error(
            task,
            f"{where} is not a field of it{hint}{_accepts(fields, place)}",
            places=[(at, f"is not a field of it{hint}")],
        )
    value = _value_at(body, path)
    # Some messages quote the value themselves.
    shown = f" ({shorten(value)})" if value is not msgspec.UNSET and repr(value) not in problem else ""
    if isinstance(value, float) and problem.startswith("Expected int"):
        shown = f" ({value!r}); a number with a decimal point is no integer here, even when it is whole"
    problem = f"{problem[:1].lower()}{problem[1:]}"
    hidden = problem if value is msgspec.UNSET else problem.replace(repr(value), "…")
    before = f"{place or 'the payload'}: "
    places = [(pointer_to(_steps(path)), hidden)]
    return _payload_error(task, f"{before}{problem}{shown}", before + hidden, places=places)


def _describe_model(task: str, problems: list[dict[str, Any]], inside: str) -> InvalidPayload:
    before = [inside] if inside else []
    first = problems[0]
    steps = [*before, *(str(step) for step in first.get("loc", ()))]
    place = ".".join(steps) or "the payload"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    value = f" ({shorten(first['input'])})" if "input" in first else ""
    problem = f"{place}: {first.get('msg', 'is not valid')}"
    places = [
        (pointer_to([*before, *map(str, each.get("loc", ()))]), str(each.get("msg", "is not valid")))
        for each in problems[:MAX_PLACES]
    ]
    return _payload_error(task, f"{problem}{value}{more}", f"{problem}{more}", places=places)


def _payload_error(
    task: str, problem: str, without_value: str | None = None, *, places: Iterable[tuple[str, str]]
) -> InvalidPayload:
    before = f"payload does not fit task {task!r}: "
    error = InvalidPayload(before + problem)
    error.message_without_value = before + (problem if without_value is None else without_value)
    error.places = tuple(places)
    return error


def _steps(path: str) -> list[str]:
    """The names and numbers of msgspec's path, up to where it does not say exactly."""
    found = []
    position = 1
    while (step := _step.match(path, position)) is not None and step.group() != "[...]":
        found.append(step["key"] if step["key"] is not None else step["index"])
        position = step.end()
    return found


def _accepts(fields: Collection[str], place: str) -> str:
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
