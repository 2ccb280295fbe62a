"""The course of a run: which measurements, how long each, and what is kept of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from tidewheel.errors import InvalidInput
from tidewheel.stores import TemporaryStore, make_temporary_store
from tidewheel.verification.benchmark.measurements import (
    BATCH_JOBS,
    CALLERS,
    MEASUREMENTS,
    MeasurementSetup,
    MeasurementTimer,
    ProgressCallback,
)
from tidewheel.verification.benchmark.report import BenchmarkReport, Measurement, MeasurementResult
from tidewheel.verification.benchmark.workload import (
    CONCURRENCY,
    MAX_PAYLOAD_BYTES,
    MIN_PAYLOAD_BYTES,
    make_bench_app,
    make_text,
)

MIN_SECONDS: Final = 1.0
MAX_SECONDS: Final = 600.0

TIME_SHARES: Final[Mapping[Measurement, float]] = {
    Measurement.ROUND_TRIP: 0.02,
    Measurement.COMMIT: 0.05,
    Measurement.PICK_UP: 0.15,
    Measurement.ENQUEUE_ONE: 0.13,
    Measurement.ENQUEUE_CALLERS: 0.17,
    Measurement.ENQUEUE_MANY: 0.08,
    Measurement.DRAIN: 0.20,
    Measurement.TOGETHER: 0.20,
}
"""Of the time of a run. The pick-up comes while the store is still quiet; what the ways to enqueue leave is
what the drain has to do."""


async def run_benchmark(
    url: str,
    *,
    seconds: float,
    payload_bytes: int,
    poll_interval: float,
    begun: Callable[[str], None],
    watch: ProgressCallback,
) -> BenchmarkReport:
    """Measure beside the store that ``url`` names; ``begun`` is told where. Nothing is left behind."""
    _check("seconds", seconds, MIN_SECONDS, MAX_SECONDS)
    _check("payload", payload_bytes, MIN_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES)
    load = _load()
    async with make_temporary_store(url) as scratch:
        begun(scratch.location)
        figures = await _run(scratch, seconds, payload_bytes, poll_interval, watch)
        return BenchmarkReport(
            ground=scratch.profile,
            results=figures,
            payload_bytes=payload_bytes,
            callers=CALLERS,
            batch=BATCH_JOBS,
            concurrency=CONCURRENCY,
            poll_interval=poll_interval,
            load=load,
            cores=_cores(),
        )


async def _run(
    temporary: TemporaryStore,
    seconds: float,
    payload_bytes: int,
    poll_interval: float,
    watch: ProgressCallback,
) -> dict[Measurement, MeasurementResult]:
    bench = make_bench_app(temporary.url, poll_interval)
    figures: dict[Measurement, MeasurementResult] = {}
    before = 0.0  # seconds of the run that belong to measurements already taken
    async with bench.app:
        course = MeasurementSetup(bench, temporary, make_text(payload_bytes), payload_bytes)
        for measurement, share in TIME_SHARES.items():
            stretch = MeasurementTimer(seconds * share, measurement, before, watch)
            figure = await MEASUREMENTS[measurement](course, stretch)
            if figure is not None:
                figures[measurement] = figure
            before += seconds * share
    return figures


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidInput(f"{name} is {value:,.15g}; {least:,.15g} to {most:,.15g} are possible")


def _load() -> float | None:
    """How many processes wanted a processor over the last minute; None where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _cores() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
