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
from tidewheel.core.text_format import duration

CONFIRM_SECONDS: Final = 3600.0
"""How long a clock has to stay ahead before destructive work believes it."""
TOLERANCE_SECONDS: Final = 60.0
"""Smaller steps are corrections as every machine makes them."""
DRIFT: Final = 0.001
"""Share of the elapsed time by which a clock may run ahead; NTP slews by half of that at most."""
ANCHOR_SECONDS: Final = 10.0
"""How often a look becomes the one that others are compared with; in between a look costs a comparison."""

_log = logging.getLogger("tidewheel.clock")


@dataclass(frozen=True, slots=True)
class Look:
    """What both clocks showed at one moment."""

    wall: int  # microseconds since 1970
    elapsed: float  # monotonic seconds

    def latest(self, elapsed: float) -> int:
        """Return the latest time that a clock can show by then without a step."""
        passed = elapsed - self.elapsed
        return self.wall + seconds_to_microseconds(passed * (1 + DRIFT) + TOLERANCE_SECONDS)

    def continues(self, earlier: Look) -> bool:
        """Return whether no step in either direction lies between the two."""
        passed = self.elapsed - earlier.elapsed
        expected = earlier.wall + seconds_to_microseconds(passed)
        return abs(self.wall - expected) <= seconds_to_microseconds(passed * DRIFT + TOLERANCE_SECONDS)


@dataclass(frozen=True, slots=True)
class History:
    """The last look that was believed, and the first one after a step that is not confirmed yet."""

    believed: Look
    stepped: Look | None = None


def decide(history: History | None, look: Look) -> History:
    """Return what is believed after this look. A clock that is set back deletes nothing: it is believed."""
    if history is None or look.wall <= history.believed.latest(look.elapsed):
        return History(look)
    stepped = history.stepped
    if stepped is None or not look.continues(stepped):
        return History(history.believed, look)
    if look.elapsed - stepped.elapsed >= CONFIRM_SECONDS:
        return History(look)
    return history


class ClockGuard:
    """The history of one store's clock. Used by one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._history: History | None = None

    def judge(self, wall: int) -> int:
        """Note what the store's clock shows; return the time by which to delete and to cancel."""
        self.saw(wall)
        latest = self.latest
        return wall if latest is None else min(wall, latest)

    def saw(self, wall: int) -> None:
        """Note what the store's clock shows."""
        look = Look(wall, uptime(self._clock))
        history = self._history
        if history is not None and history.stepped is None and self._is_recent(history.believed, look):
            return
        self._history = decide(history, look)
        self._report(history, self._history)

    @property
    def latest(self) -> int | None:
        """The latest time that is believed now; None before the first look."""
        if self._history is None:
            return None
        return self._history.believed.latest(uptime(self._clock))

    @property
    def step_seconds(self) -> float:
        """By how much the clock is ahead in a step that is not confirmed; 0.0 without one."""
        history = self._history
        if history is None or history.stepped is None:
            return 0.0
        return _ahead(history.believed, history.stepped)

    @staticmethod
    def _is_recent(believed: Look, look: Look) -> bool:
        fits = believed.wall <= look.wall <= believed.latest(look.elapsed)
        return fits and look.elapsed - believed.elapsed < ANCHOR_SECONDS

    @staticmethod
    def _report(before: History | None, after: History) -> None:
        if before is None:
            return
        if after.stepped is not None and after.stepped is not before.stepped:
            _log.warning(
                "the store's clock stepped ahead by %s, to %s: pruning, retention and expiry go by the time "
                "before the step until it has lasted for %s. Set the clock right; if it is right, do nothing",
                duration(_ahead(before.believed, after.stepped)),
                to_datetime(after.stepped.wall).isoformat(timespec="seconds"),
                duration(CONFIRM_SECONDS),
            )
        elif before.stepped is not None and after.stepped is None:
            confirmed = after.believed.continues(before.stepped)
            _log.warning(
                "the store's clock %s: pruning, retention and expiry go by it again",
                "stayed ahead, so the step counts as real" if confirmed else "is back where it should be",
            )


def _ahead(believed: Look, stepped: Look) -> float:
    return (stepped.wall - believed.wall) / MICROSECONDS - (stepped.elapsed - believed.elapsed)
