"""The benchmark's own arithmetic, what it finds wrong, and the process it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.patience import PATIENCE
from tidewheel.cli.bench import explain_figures
from tidewheel.core import payload
from tidewheel.core.reports import HealthFinding, HealthFindingKind
from tidewheel.stores import DatabaseProfile
from tidewheel.verification.benchmark import BenchmarkReport, Measurement, MeasurementResult, find_warnings
from tidewheel.verification.benchmark.report import make_latency_result, make_rate_result, quantile
from tidewheel.verification.benchmark.worker_process import _PROGRAM
from tidewheel.verification.benchmark.workload import MIN_PAYLOAD_BYTES, make_text


def run_of(
    ground: DatabaseProfile | None = None, load: float | None = 0.1, **p50_seconds: float
) -> BenchmarkReport:
    """A run with these times; whatever is left out of the jobs' measurements took a millisecond."""
    underneath = {Measurement.ROUND_TRIP, Measurement.COMMIT}
    times = {str(measurement): 0.001 for measurement in Measurement if measurement not in underneath}
    figures = {
        Measurement(name): MeasurementResult(100, 1.0, seconds, 2 * seconds, 100.0)
        for name, seconds in {**times, **p50_seconds}.items()
    }
    ground = ground or DatabaseProfile("PostgreSQL 18.1")
    return BenchmarkReport(ground, figures, 100, 100, 1000, 100, 1.0, load, cores=2)


def test_a_quantile_is_a_time_that_was_seen() -> None:
    """Nothing is made up between two of them."""
    assert quantile([1.0, 2.0], 0.5) == 1.0
    assert quantile([float(number) for number in range(1, 201)], 0.99) == 198.0
    assert quantile([7.0], 0.99) == 7.0


def test_figures_are_summed_up_from_times_and_counts() -> None:
    """A rate where one makes sense, times where single calls were timed."""
    assert make_rate_result(50, 2.0) == MeasurementResult(50, 2.0, jobs_per_second=25.0)
    assert make_latency_result([0.3, 0.1, 0.2], 1.0, with_rate=True) == MeasurementResult(
        3, 1.0, 0.2, 0.3, 3.0
    )
    assert make_latency_result([0.1], 1.0, with_rate=False).jobs_per_second is None
    assert make_latency_result([], 1.0, with_rate=True) == MeasurementResult(0, 1.0, jobs_per_second=0.0)


@pytest.mark.parametrize("size", [MIN_PAYLOAD_BYTES, 100, 10_000])
def test_a_payload_has_exactly_the_size_that_was_asked_for(size: int) -> None:
    """Encoded, as it is stored."""
    assert len(payload.encode({"text": make_text(size)}, limit=size)) == size


def test_a_good_run_gives_no_reason_for_concern() -> None:
    """Nothing is said for the sake of saying it."""
    assert find_warnings(run_of(round_trip=0.0005, commit=0.002)) == []
    assert find_warnings(run_of(DatabaseProfile("memory", shared=False), load=None)) == []


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (run_of(round_trip=0.0062, commit=0.008), "the server is 6.2 ms away"),
        (run_of(commit=0.034), "a durable commit takes 34 ms"),
        (run_of(load=1.6), "load 1.6, 2 cores"),
        (replace(run_of(load=3.0), cores=1), "load 3.0, 1 core)"),
        (
            run_of(DatabaseProfile("x", health_findings=(HealthFinding(HealthFindingKind.POOLED),))),
            "a pooler sits between",
        ),
    ],
)
def test_what_looks_wrong_is_said_with_its_value(run: BenchmarkReport, said: str) -> None:
    """One sentence for each thing, and no other."""
    [sentence] = find_warnings(run)
    assert said in sentence


def test_a_far_server_is_not_also_called_a_slow_disk() -> None:
    """A commit contains the way there and back."""
    [sentence] = find_warnings(run_of(round_trip=0.04, commit=0.043))
    assert "40.0 ms away" in sentence


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (run_of(round_trip=0.0008, commit=0.0009), "the way to the server and back, 0.80 ms"),
        (run_of(round_trip=0.0001, commit=0.0009), "waiting for the durable commit, 0.90 ms"),
        (run_of(commit=0.0002), "The durable commit is 0.20 ms of a call"),
        (run_of(DatabaseProfile("memory", shared=False)), "Nothing reaches a disk"),
    ],
)
def test_what_limits_a_single_caller_is_named(run: BenchmarkReport, said: str) -> None:
    """The way, the disk or the processors, by what was measured."""
    assert said in dict(explain_figures(run))["enqueue"]


def test_what_limits_many_callers_is_named() -> None:
    """Shared commits leave the processor as the limit, unless the disk is slow."""
    assert (
        "not the disk, limits" in dict(explain_figures(run_of(commit=0.001, enqueue_callers=0.01)))["callers"]
    )
    assert "The disk limits" in dict(explain_figures(run_of(commit=0.008, enqueue_callers=0.01)))["callers"]
    assert "One processor limits" in dict(explain_figures(run_of(DatabaseProfile("memory"))))["callers"]


def test_the_worker_process_ends_with_its_input(tmp_path: object) -> None:
    """A benchmark that was killed outright leaves no worker behind, whether it had given orders or not."""
    orders = {"url": f"sqlite:///{tmp_path}/jobs.db", "topic": "bench_flow", "poll_interval": 1.0}
    for told in (b"", json.dumps(orders).encode() + b"\n"):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, "."],
            input=told,
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
        assert (done.stdout, done.stderr) == (b"", b"")
