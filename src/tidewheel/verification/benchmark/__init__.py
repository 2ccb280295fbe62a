"""What a store can do on this machine: a minute of measuring, in a place of its own beside the real jobs."""

from tidewheel.verification.benchmark.report import (
    BenchmarkReport,
    Measurement,
    MeasurementResult,
    find_warnings,
)
from tidewheel.verification.benchmark.run import MAX_SECONDS, MIN_SECONDS, run_benchmark

__all__ = [
    "MAX_SECONDS",
    "MIN_SECONDS",
    "BenchmarkReport",
    "Measurement",
    "MeasurementResult",
    "find_warnings",
    "run_benchmark",
]
