"""Comparisons of times: with an age (``2h``), a time to come (``+2h``), a day or a moment.

A duration is a distance from now, and is compared as such: ``finished>2h`` is more than 2 hours ago, as
``age>2h`` is, and ``due>+2h`` more than 2 hours from now. Days and moments are compared as dates.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from typing import Final, NamedTuple

from tidewheel.core.clock import (
    MICROSECONDS,
    seconds_to_microseconds,
    to_datetime,
    to_microseconds,
)
from tidewheel.core.conditions import AllOf, Compare, Comparison, Condition, Field
from tidewheel.core.names import shorten
from tidewheel.core.text_format import format_duration
from tidewheel.errors import InvalidInput

UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?", re.IGNORECASE | re.ASCII)

_LONGEST: Final = 10_000 * 366 * 86_400.0
_DAY: Final = 86_400 * MICROSECONDS
_DAYS: Final = {"today": 0, "yesterday": -1, "tomorrow": 1}
_REVERSED: Final = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.AT_MOST: Comparison.AT_LEAST,
    Comparison.GREATER: Comparison.LESS,
    Comparison.AT_LEAST: Comparison.AT_MOST,
}
"""A greater age is an earlier time."""
_DISTANCES: Final = {
    Comparison.LESS: "less than",
    Comparison.AT_MOST: "at most",
    Comparison.GREATER: "more than",
    Comparison.AT_LEAST: "at least",
}
_RELATIONS: Final = {
    Comparison.LESS: "before",
    Comparison.AT_MOST: "at or before",
    Comparison.GREATER: "after",
    Comparison.AT_LEAST: "at or after",
}
_VERBS: Final = {
    Field.CREATED_AT: "created",
    Field.RUN_AT: "due",
    Field.STARTED_AT: "started",
    Field.FINISHED_AT: "finished",
}
_LATER: Final = (Comparison.GREATER, Comparison.AT_LEAST)


class TimeCondition(NamedTuple):
    """A comparison of a time, and the same in words, for a preview."""

    condition: Condition
    words: str


def compare_time(column: Field, comparison: Comparison, text: str, now: int) -> TimeCondition:
    """Return the meaning of a time field compared with a duration, a day or a moment."""
    verb = _VERBS[column]
    if _is_duration(text):
        return _compare_distance(column, comparison, text, now)
    start, end = _read_moment(text, now)
    if comparison is Comparison.EQUAL:
        within = AllOf((Compare(column, Comparison.AT_LEAST, start), Compare(column, Comparison.LESS, end)))
        until = (
            f"from {_format_time(start)} until {_format_time(end)}"
            if end > start + 1
            else f"at {_format_time(start)}"
        )
        return TimeCondition(within, f"{verb} {until}")
    # Of a day: after all of it, or up to its end.
    to_the_end = comparison in (Comparison.GREATER, Comparison.AT_MOST)
    condition = Compare(column, comparison, end - 1 if to_the_end else start)
    if to_the_end and end > start + 1:
        relation = "at or after" if comparison is Comparison.GREATER else "before"
        return TimeCondition(condition, f"{verb} {relation} {_format_time(end)}")
    return TimeCondition(condition, f"{verb} {_RELATIONS[comparison]} {_format_time(start)}")


def compare_age(column: Field, comparison: Comparison, text: str, now: int) -> TimeCondition:
    """Return the meaning of an age compared with a duration."""
    read_duration(text)
    return _compare_distance(column, comparison, text, now)


def _is_duration(text: str) -> bool:
    return DURATION.fullmatch(text.lstrip("+-")) is not None and text[-1].isalpha()


def _compare_distance(column: Field, comparison: Comparison, text: str, now: int) -> TimeCondition:
    """Compare the distance between a time and now."""
    if text.startswith("-"):
        raise InvalidInput(
            f"{shorten(text)} has a minus; a duration is an age already: write {text.lstrip('-')}, "
            "where > is longer ago and < more recent"
        )
    verb = _VERBS[column]
    length = read_duration(text.removeprefix("+"))
    if comparison is Comparison.EQUAL:
        raise InvalidInput(
            f"{shorten(text)} is one single microsecond; compare with > or <, "
            f"for example {verb}>{text} or {verb}<{text}"
        )
    ahead = text.startswith("+")
    moment = now + length if ahead else now - length
    compared = comparison if ahead else _REVERSED[comparison]
    distance = f"{_DISTANCES[comparison]} {format_duration(length / MICROSECONDS)}"
    # Less than an hour ago includes what lies ahead, as only a due time can.
    still_ahead = ", or not yet" if column is Field.RUN_AT and compared in _LATER and not ahead else ""
    words = f"{verb} {_RELATIONS[compared]} {_format_time(moment)}"
    return TimeCondition(
        Compare(column, compared, moment),
        f"{words} ({distance} {'from now' if ahead else 'ago'}{still_ahead})",
    )


def _format_time(moment: int) -> str:
    """Return ``2026-11-18 14:03:05 UTC``."""
    try:
        return f"{to_datetime(moment):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError):
        return "all time" if moment < 0 else "the end of time"


def read_duration(text: str) -> int:
    """Microseconds."""
    match = DURATION.fullmatch(text)
    if match is None or not match[2]:
        raise InvalidInput(f"{shorten(text)} is no duration; write it like 500ms, 90s, 5m, 2h, 1d or 2w")
    seconds = float(match[1]) * UNITS[match[2].lower()]
    if seconds > _LONGEST:
        raise InvalidInput(f"{shorten(text)} is too long; the limit is 10,000 years")
    return seconds_to_microseconds(seconds)


def _read_moment(text: str, now: int) -> tuple[int, int]:
    """Return a time and the first one after it: a day has a length, a moment a microsecond."""
    if (days := _DAYS.get(text.lower())) is not None:
        start = now // _DAY * _DAY + days * _DAY
        return start, start + _DAY
    if text.lower() == "now":
        return now, now + 1
    try:
        day = to_microseconds(datetime.combine(date.fromisoformat(text), time(), UTC))
    except ValueError:
        pass
    else:
        return day, day + _DAY
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{shorten(text)} is no time; write it like 2h (ago), +2h (from now), today, 2030-01-31 or "
            "2030-01-31T09:00Z"
        ) from None
    if parsed.utcoffset() is None:
        raise InvalidInput(
            f"{shorten(text)} has no time zone, so it is a different moment on every machine; "
            "add Z or an offset like +02:00"
        )
    moment = to_microseconds(parsed)
    return moment, moment + 1
