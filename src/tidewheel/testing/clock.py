"""Time that stands still until it is told to move."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from tidewheel.core.clock import seconds_to_microseconds, to_microseconds
from tidewheel.errors import InvalidInput

_START = to_microseconds(datetime(2026, 1, 1, tzinfo=UTC))


class FrozenClock:
    """A ``Clock`` for tests. Both times move by ``advance``, one by ``step``. Safe between threads."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = _START if start is None else to_microseconds(start)
        self._start = self._now
        self._lock = threading.Lock()

    def now(self) -> int:
        """Microseconds since 1970."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return (self._now - self._start) / 1e6

    def step(self, seconds: float) -> None:
        """Set the clock forward or back, as a person or a time server does: ``monotonic`` stays as it is."""
        with self._lock:
            self._now += seconds_to_microseconds(seconds)
            self._start += seconds_to_microseconds(seconds)

    def advance(self, seconds: float) -> None:
        """Let this much time pass at once."""
        if not seconds >= 0:  # also refuses NaN
            raise InvalidInput(f"cannot advance by {seconds} s; time only moves forward, give 0 or more")
        with self._lock:
            self._now += seconds_to_microseconds(seconds)
