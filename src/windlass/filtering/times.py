"""Durations and moments as people write them: ``90s``, ``2h``, ``today``, ``2030-01-31T09:00Z``."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from typing import Final

from windlass.clock import MICROSECONDS, seconds_to_microseconds, to_microseconds
from windlass.errors import InvalidInput
from windlass.names import shorten

UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?", re.IGNORECASE | re.ASCII)

_LONGEST: Final = 10_000 * 366 * 86_400.0
_DAY: Final = 86_400 * MICROSECONDS
_DAYS: Final = {"today": 0, "yesterday": -1, "tomorrow": 1}


def read_duration(text: str) -> int:
    """Microseconds."""
    match = DURATION.fullmatch(text)
    if match is None or not match[2]:
        raise InvalidInput(f"{shorten(text)} is no duration; write it like 500ms, 90s, 5m, 2h, 1d or 2w")
    seconds = float(match[1]) * UNITS[match[2].lower()]
    if seconds > _LONGEST:
        raise InvalidInput(f"{shorten(text)} is too long; the limit is 10,000 years")
    return seconds_to_microseconds(seconds)


def read_moment(text: str, now: int) -> tuple[int, int]:
    """A time, and the first one that is not it any more: a day has a length, a moment a microsecond."""
    if (days := _DAYS.get(text.lower())) is not None:
        start = now // _DAY * _DAY + days * _DAY
        return start, start + _DAY
    if text.lower() == "now":
        return now, now + 1
    if DURATION.fullmatch(text.lstrip("+-")) and text[-1].isalpha():
        length = read_duration(text.lstrip("+-"))
        moment = now + length if text.startswith("+") else now - length
        return moment, moment + 1
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
            f"{shorten(text)} is no time; write it like 2h (ago), today, 2030-01-31 or 2030-01-31T09:00Z"
        ) from None
    if parsed.utcoffset() is None:
        raise InvalidInput(
            f"{shorten(text)} has no time zone, so it is a different moment on every machine; "
            "add Z or an offset like +02:00"
        )
    moment = to_microseconds(parsed)
    return moment, moment + 1
