"""What is known at the moment, as it is drawn."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tidewheel.answers import Attention, FailedJobs
from tidewheel.cli.top.rates import NO_RATES, Rates
from tidewheel.fleet import WorkerInfo
from tidewheel.glance import Glance

MOST_SAMPLES: Final = 300
"""Of the line of bars; a wider terminal is rare."""


@dataclass(slots=True)
class View:
    """Everything a screen shows; whoever looks at the store puts it here."""

    url: str
    """without its password"""
    store: str
    """name and version"""
    every: float
    glance: Glance | None = None
    rates: Rates = NO_RATES
    history: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    """completed a second, oldest first"""
    attention: Attention | None = None
    failed: FailedJobs | None = None
    workers: Sequence[WorkerInfo] = ()
    closer_at: float = 0.0
    """when attention, failures and workers were looked at, monotonic"""
    took_seconds: float = 0.0
    """the last look at the store"""
    seen_at: float = 0.0
    """when that was, monotonic"""
    trouble: str | None = None
    """why the last look failed"""
    trouble_since: float = 0.0
    """monotonic"""

    @property
    def closer_age(self) -> float:
        """By how many seconds those are older than the counts they stand beside."""
        return max(0.0, self.seen_at - self.closer_at)
