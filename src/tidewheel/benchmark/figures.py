"""What was measured, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidewheel.stores import Ground


class Measurement(StrEnum):
    """The measurements, in the order in which they are taken."""

    ROUND_TRIP = "round_trip"
    COMMIT = "commit"
    PICK_UP = "pick_up"
    ENQUEUE_ONE = "enqueue_one"
    ENQUEUE_CALLERS = "enqueue_callers"
    ENQUEUE_MANY = "enqueue_many"
    DRAIN = "drain"
    TOGETHER = "together"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement: so many in so many seconds and, where each was timed, how long one took."""

    count: int
    seconds: float
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    jobs_per_second: float | None = None
    """None where the number a second says nothing."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A whole run, with what is needed to compare it with another one."""

    ground: Ground
    figures: Mapping[Measurement, Figure]
    payload_bytes: int
    callers: int
    batch: int
    concurrency: int
    poll_interval: float
    load: float | None  # jobs of others that wanted a processor when it began, where the system tells
    cores: int


def rate(count: int, seconds: float) -> Figure:
    """Jobs in a stretch of time."""
    return Figure(count, seconds, jobs_per_second=count / seconds if seconds > 0 else None)


def timed(times: Sequence[float], seconds: float, *, with_rate: bool) -> Figure:
    """Calls that were timed one by one; without a rate where they were held back, or are no jobs."""
    jobs_per_second = len(times) / seconds if with_rate and seconds > 0 else None
    if not times:
        return Figure(0, seconds, jobs_per_second=jobs_per_second)
    ordered = sorted(times)
    return Figure(len(times), seconds, quantile(ordered, 0.5), quantile(ordered, 0.99), jobs_per_second)


def quantile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of all does not exceed: always one that was seen."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
