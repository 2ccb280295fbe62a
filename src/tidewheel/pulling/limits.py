"""How often and how long a reservation may be made longer by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tidewheel.settings import Settings


@dataclass(frozen=True, slots=True)
class TouchLimits:
    """None is no limit."""

    most: int | None = None  # touches of one reservation
    longest: float | None = None  # seconds that all of them together may add
    interval: float | None = None  # seconds from one to the next; the first may come at once

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(settings.max_touches, settings.max_touch_duration, settings.min_touch_interval)

    def problem(self, *, touches: int, since_last: float, added: float) -> str | None:
        """What is wrong with one more touch; None when nothing is.

        ``touches``: how many there were. ``since_last``: seconds; it counts only after a touch. ``added``:
        seconds beyond the reservation's first end that the job would be held for then.
        """
        if self.most is not None and touches >= self.most:
            return f"this job was touched {touches} times; the limit is {self.most} (max_touches)"
        if self.interval is not None and touches and since_last < self.interval:
            return (
                f"this job was touched {since_last:.1f} s ago; "
                f"{self.interval:g} s have to lie between two touches (min_touch_interval)"
            )
        if self.longest is not None and added > self.longest:
            return (
                f"this touch would make it {added:.0f} s longer than it was reserved for; "
                f"the limit is {self.longest:g} s (max_touch_duration)"
            )
        return None


NO_LIMITS = TouchLimits()
