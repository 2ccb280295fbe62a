"""Where time comes from.

Stored times are whole microseconds since 1970 in UTC: exact, comparable on every store, and cheap to keep.
A store asks its own clock (the database server's, where there is one), so a worker whose clock is off
changes nothing. Durations inside one process use ``monotonic``, which no clock step can bend.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

HOUR: Final = 3600.0


MICROSECONDS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Wall time for what is stored, monotonic time for what is measured."""

    def now(self) -> int:
        """Microseconds since 1970."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start that never run backwards."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000

    # The function itself: it is asked twice for every job.
    monotonic = staticmethod(time.monotonic)


def uptime(clock: Clock) -> float:
    """Monotonic seconds that include the time a machine slept, where the system tells (Linux)."""
    if sys.platform == "linux" and isinstance(clock, SystemClock):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return clock.monotonic()


def to_datetime(microseconds: int) -> datetime:
    """Exact: floats would lose the last microsecond for dates after 2100."""
    return _EPOCH + timedelta(microseconds=microseconds)


def to_microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def seconds_to_microseconds(seconds: float) -> int:
    return round(seconds * MICROSECONDS)


DAY: Final = 86_400.0


MAX_SECONDS: Final = 36_525 * DAY
"""The longest duration anything may be given: a hundred years."""
