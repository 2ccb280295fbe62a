"""The result of a benchmark run: its figures as data, and concerns about the run.

A concern is a sentence for people about a suspicious figure, with a remedy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidewheel.admin.reports.findings import describe_health_finding
from tidewheel.stores import DatabaseProfile


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
class MeasurementResult:
    """One measurement: so many in so many seconds and, where each was timed, how long one took."""

    count: int
    seconds: float
    p50_seconds: float | None = None
    p99_seconds: float | None = None
    jobs_per_second: float | None = None
    """None where the number a second says nothing."""


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """A whole run, with what is needed to compare it with another one."""

    ground: DatabaseProfile
    results: Mapping[Measurement, MeasurementResult]
    payload_bytes: int
    callers: int
    batch: int
    concurrency: int
    poll_interval: float
    load: float | None  # jobs of others that wanted a processor when it began, where the system tells
    cores: int


def make_rate_result(count: int, seconds: float) -> MeasurementResult:
    """Jobs in a stretch of time."""
    return MeasurementResult(count, seconds, jobs_per_second=count / seconds if seconds > 0 else None)


def make_latency_result(times: Sequence[float], seconds: float, *, with_rate: bool) -> MeasurementResult:
    """Calls that were timed one by one; without a rate where they were held back, or are no jobs."""
    jobs_per_second = len(times) / seconds if with_rate and seconds > 0 else None
    if not times:
        return MeasurementResult(0, seconds, jobs_per_second=jobs_per_second)
    ordered = sorted(times)
    return MeasurementResult(
        len(times), seconds, quantile(ordered, 0.5), quantile(ordered, 0.99), jobs_per_second
    )


def quantile(ordered: Sequence[float], part: float) -> float:
    """The smallest value that at least this part of all does not exceed: always one that was seen."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


SLOW_ROUND_TRIP_SECONDS: Final = 0.005
SLOW_COMMIT_SECONDS: Final = 0.02
BUSY_SHARE: Final = 0.75
"""Of the processors, wanted in the minute before the run."""


def find_warnings(run: BenchmarkReport) -> list[str]:
    """The store's own doubts first, then what the figures say."""
    found = [describe_health_finding(doubt).sentence for doubt in run.ground.health_findings]
    round_trip = _p50(run, Measurement.ROUND_TRIP)
    commit = _p50(run, Measurement.COMMIT)
    if round_trip is not None and round_trip > SLOW_ROUND_TRIP_SECONDS:
        found.append(
            f"the server is {round_trip * 1000:.1f} ms away, and every call waits for that; less than "
            f"{SLOW_ROUND_TRIP_SECONDS * 1000:.0f} ms is usual inside one data centre: bring them together"
        )
    # What the way there and back costs has been said; this is about the disk at its end.
    on_disk = None if commit is None else commit - (round_trip or 0.0)
    if on_disk is not None and on_disk > SLOW_COMMIT_SECONDS:
        found.append(
            f"a durable commit takes {on_disk * 1000:.0f} ms on this disk, and everything waits for it; less "
            f"than {SLOW_COMMIT_SECONDS * 1000:.0f} ms is usual even without flash: look for a slow or "
            "shared disk, or another program that writes a lot"
        )
    if run.load is not None and run.load > BUSY_SHARE * run.cores:
        found.append(
            f"this machine was busy in the minute before the run (load {run.load:.1f}, {run.cores} "
            f"{'core' if run.cores == 1 else 'cores'}): an idle one shows better figures"
        )
    return found


def _p50(run: BenchmarkReport, measurement: Measurement) -> float | None:
    figure = run.results.get(measurement)
    return None if figure is None else figure.p50_seconds
