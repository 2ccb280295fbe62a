"""What several repetitions come to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """Median and spread of repetitions."""

    median: float
    lowest: float
    highest: float
    repetitions: int

    @property
    def spread(self) -> float:
        """How far the repetitions lie apart, as a part of the median."""
        return (self.highest - self.lowest) / self.median if self.median else 0.0


def summarise(values: Sequence[float]) -> Summary:
    """Of at least one value."""
    return Summary(statistics.median(values), min(values), max(values), len(values))


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which ``part`` of all lie (nearest rank); 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def ratio(ours: float, theirs: float, *, higher: bool) -> float | None:
    """How many times better ours is; None when there is nothing to divide by."""
    first, second = (ours, theirs) if higher else (theirs, ours)
    return first / second if second else None
