"""Check single values that callers give: times, durations, integers, sizes, choices, job ids.

Every error names the value, the limit and a remedy.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar
from uuid import UUID

from tidewheel.core.clock import MAX_SECONDS, to_microseconds
from tidewheel.core.names import shorten
from tidewheel.errors import InvalidInput

MIN_MEMORY: Final = 16 * 2**20


MAX_MEMORY: Final = 2**40
"""What a handler may be given to use, in bytes."""


_memory = re.compile(r"(\d{1,15}(?:\.\d{1,15})?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)


_FIRST_MOMENT: Final = datetime(1970, 1, 1, tzinfo=UTC)


_LAST_MOMENT: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def check_time(name: str, value: Any) -> int:
    """An aware datetime as microseconds."""
    if not isinstance(value, datetime):
        raise InvalidInput(
            f"{name} is {shorten(value)} ({type(value).__name__}); give a datetime with a time zone, "
            "for example datetime.now(UTC) + timedelta(minutes=5)"
        )
    if value.utcoffset() is None:
        raise InvalidInput(
            f"{name} is {value.isoformat()} without a time zone, which is a different moment on every "
            "machine; add tzinfo, for example tzinfo=UTC"
        )
    if not _FIRST_MOMENT <= value <= _LAST_MOMENT:
        raise InvalidInput(
            f"{name} is {value.isoformat()}; moments from 1970 to the end of 9999 are possible"
        )
    return to_microseconds(value)


def check_seconds(name: str, value: Any, minimum: float) -> float:
    """A duration as seconds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if type(seconds) not in {int, float}:
        raise InvalidInput(
            f"{name} is {shorten(value)} ({type(value).__name__}); give seconds as a number, or a timedelta"
        )
    if not minimum <= seconds <= MAX_SECONDS:  # also refuses NaN
        raise InvalidInput(
            f"{name} is {shorten(seconds)} seconds; {minimum:g} to {MAX_SECONDS:,.0f} (100 years) are "
            "possible"
        )
    return float(seconds)


def check_integer(name: str, value: Any, minimum: int, maximum: int) -> int:
    """A whole number in a range; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{name} is {shorten(value)} ({type(value).__name__}); it must be a whole number")
    if not minimum <= value <= maximum:
        raise InvalidInput(f"{name} is {shorten(value)}; {minimum:,} to {maximum:,} are possible")
    return int(value)


def check_memory(name: str, value: Any) -> int:
    """Bytes, from a number or from text such as ``256MB``; K, M, G and T count by 1024."""
    amount = value
    if isinstance(value, str) and (words := _memory.fullmatch(value.strip())):
        amount = int(float(words[1]) * 1024 ** " KMGT".index(words[2].upper() or " "))
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise InvalidInput(
            f"{name} is {shorten(value)}; give bytes as a whole number, or text such as '256MB' or '1.5GB'"
        )
    if not MIN_MEMORY <= amount <= MAX_MEMORY:
        raise InvalidInput(f"{name} is {shorten(value)}; 16 MB to 1 TB are possible")
    return amount


_Choice = TypeVar("_Choice", bound=StrEnum)


def check_choice(name: str, value: Any, choices: type[_Choice]) -> _Choice:
    """One of a few words."""
    try:
        return choices(value)
    except ValueError:
        raise InvalidInput(f"{name} is {shorten(value)}; it must be one of {', '.join(choices)}") from None


def check_job_id(value: Any) -> UUID:
    """A job's id, given as such or as text."""
    if isinstance(value, UUID):
        return value
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            pass
    raise InvalidInput(f"job id is {shorten(value)}; it must be a UUID, for example job.id")
