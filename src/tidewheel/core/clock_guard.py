"""Keep a clock that was set wrong from deleting things.

Retention, expiry and the audit log compare stored times with the clock of the store. A clock that jumps half
a year ahead for a few seconds would delete all history. So wall time is compared with monotonic time. After a
forward step, work that deletes or cancels continues by the time it would be without the step, until a second
look ``CONFIRM_SECONDS`` later finds the clock still ahead by the same amount. Then the step counts as real.

The history is that of one process: a process that starts while the clock is wrong has nothing to compare.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from tidewheel.core.clock import MICROSECONDS, Clock, seconds_to_microseconds, to_datetime, uptime
from tidewheel.core.text_format import format_duration

CONFIRM_SECONDS: Final = 3600.0
"""How long a clock has to stay ahead before destructive work believes it."""
TOLERANCE_SECONDS: Final = 60.0
"""Smaller steps are corrections as every machine makes them."""
MAX_DRIFT: Final = 0.001
"""Share of the elapsed time by which a clock may run ahead; NTP slews by half of that at most."""
ANCHOR_SECONDS: Final = 10.0
"""How often a look becomes the one that others are compared with; in between a look costs a comparison."""

_log = logging.getLogger("tidewheel.clock")


@dataclass(frozen=True, slots=True)
class ClockReading:
    """What both clocks showed at one moment."""

    wall: int  # microseconds since 1970
    elapsed: float  # monotonic seconds

    def latest_without_step(self, elapsed: float) -> int:
        """Return the latest time that a clock can show by then without a step."""
        passed = elapsed - self.elapsed
        return self.wall + seconds_to_microseconds(passed * (1 + MAX_DRIFT) + TOLERANCE_SECONDS)

    def follows(self, earlier: ClockReading) -> bool:
        """Return whether no step in either direction lies between the two."""
        passed = self.elapsed - earlier.elapsed
        expected = earlier.wall + seconds_to_microseconds(passed)
        return abs(self.wall - expected) <= seconds_to_microseconds(passed * MAX_DRIFT + TOLERANCE_SECONDS)


@dataclass(frozen=True, slots=True)
class ClockHistory:
    """The last look that was believed, and the first one after a step that is not confirmed yet."""

    trusted: ClockReading
    unconfirmed: ClockReading | None = None


def update_history(history: ClockHistory | None, look: ClockReading) -> ClockHistory:
    """Return what is believed after this look. A clock that is set back deletes nothing: it is believed."""
    if history is None or look.wall <= history.trusted.latest_without_step(look.elapsed):
        return ClockHistory(look)
    stepped = history.unconfirmed
    if stepped is None or not look.follows(stepped):
        return ClockHistory(history.trusted, look)
    if look.elapsed - stepped.elapsed >= CONFIRM_SECONDS:
        return ClockHistory(look)
    return history


class ClockGuard:
    """The history of one store's clock. Used by one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._history: ClockHistory | None = None

    def confirmed_time(self, wall: int) -> int:
        """Note what the store's clock shows; return the time by which to delete and to cancel."""
        self.record(wall)
        latest = self.latest
        return wall if latest is None else min(wall, latest)

    def record(self, wall: int) -> None:
        """Note what the store's clock shows."""
        look = ClockReading(wall, uptime(self._clock))
        history = self._history
        if history is not None and history.unconfirmed is None and self._is_recent(history.trusted, look):
            return
        self._history = update_history(history, look)
        self._report(history, self._history)

    @property
    def latest(self) -> int | None:
        """The latest time that is believed now; None before the first look."""
        if self._history is None:
            return None
        return self._history.trusted.latest_without_step(uptime(self._clock))

    @property
    def step_seconds(self) -> float:
        """By how much the clock is ahead in a step that is not confirmed; 0.0 without one."""
        history = self._history
        if history is None or history.unconfirmed is None:
            return 0.0
        return _seconds_ahead(history.trusted, history.unconfirmed)

    @staticmethod
    def _is_recent(believed: ClockReading, look: ClockReading) -> bool:
        fits = believed.wall <= look.wall <= believed.latest_without_step(look.elapsed)
        return fits and look.elapsed - believed.elapsed < ANCHOR_SECONDS

    @staticmethod
    def _report(before: ClockHistory | None, after: ClockHistory) -> None:
        if before is None:
            return
        if after.unconfirmed is not None and after.unconfirmed is not before.unconfirmed:
            _log.warning(
                "the store's clock stepped ahead by %s, to %s: pruning, retention and expiry go by the time "
                "before the step until it has lasted for %s. Set the clock right; if it is right, do nothing",
                format_duration(_seconds_ahead(before.trusted, after.unconfirmed)),
                to_datetime(after.unconfirmed.wall).isoformat(timespec="seconds"),
                format_duration(CONFIRM_SECONDS),
            )
        elif before.unconfirmed is not None and after.unconfirmed is None:
            confirmed = after.trusted.follows(before.unconfirmed)
            _log.warning(
                "the store's clock %s: pruning, retention and expiry go by it again",
                "stayed ahead, so the step counts as real" if confirmed else "is back where it should be",
            )


def _seconds_ahead(believed: ClockReading, stepped: ClockReading) -> float:
    return (stepped.wall - believed.wall) / MICROSECONDS - (stepped.elapsed - believed.elapsed)
