"""The benchmark's own arithmetic, what it finds wrong, and the process it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.patience import PATIENCE
from tidewheel.cli.bench import meanings
from tidewheel.core import payload
from tidewheel.core.reports import Ailment, AilmentKind
from tidewheel.stores import Ground
from tidewheel.verification.benchmark import Figure, Figures, Measurement, concerns
from tidewheel.verification.benchmark.report import quantile, rate, timed
from tidewheel.verification.benchmark.worker_process import _PROGRAM
from tidewheel.verification.benchmark.workload import SMALLEST_PAYLOAD, make_text


def run_of(ground: Ground | None = None, load: float | None = 0.1, **p50_seconds: float) -> Figures:
    """A run with these times; whatever is left out of the jobs' measurements took a millisecond."""
    underneath = {Measurement.ROUND_TRIP, Measurement.COMMIT}
    times = {str(measurement): 0.001 for measurement in Measurement if measurement not in underneath}
    figures = {
        Measurement(name): Figure(100, 1.0, seconds, 2 * seconds, 100.0)
        for name, seconds in {**times, **p50_seconds}.items()
    }
    ground = ground or Ground("PostgreSQL 18.1")
    return Figures(ground, figures, 100, 100, 1000, 100, 1.0, load, cores=2)


def test_a_quantile_is_a_time_that_was_seen() -> None:
    """Nothing is made up between two of them."""
    assert quantile([1.0, 2.0], 0.5) == 1.0
    assert quantile([float(number) for number in range(1, 201)], 0.99) == 198.0
    assert quantile([7.0], 0.99) == 7.0


def test_figures_are_summed_up_from_times_and_counts() -> None:
    """A rate where one makes sense, times where single calls were timed."""
    assert rate(50, 2.0) == Figure(50, 2.0, jobs_per_second=25.0)
    assert timed([0.3, 0.1, 0.2], 1.0, with_rate=True) == Figure(3, 1.0, 0.2, 0.3, 3.0)
    assert timed([0.1], 1.0, with_rate=False).jobs_per_second is None
    assert timed([], 1.0, with_rate=True) == Figure(0, 1.0, jobs_per_second=0.0)


@pytest.mark.parametrize("size", [SMALLEST_PAYLOAD, 100, 10_000])
def test_a_payload_has_exactly_the_size_that_was_asked_for(size: int) -> None:
    """Encoded, as it is stored."""
    assert len(payload.encode({"text": make_text(size)}, limit=size)) == size


def test_a_good_run_gives_no_reason_for_concern() -> None:
    """Nothing is said for the sake of saying it."""
    assert concerns(run_of(round_trip=0.0005, commit=0.002)) == []
    assert concerns(run_of(Ground("memory", shared=False), load=None)) == []


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (run_of(round_trip=0.0062, commit=0.008), "the server is 6.2 ms away"),
        (run_of(commit=0.034), "a durable commit takes 34 ms"),
        (run_of(load=1.6), "load 1.6, 2 cores"),
        (replace(run_of(load=3.0), cores=1), "load 3.0, 1 core)"),
        (run_of(Ground("x", doubts=(Ailment(AilmentKind.POOLED),))), "a pooler sits between"),
    ],
)
def test_what_looks_wrong_is_said_with_its_value(run: Figures, said: str) -> None:
    """One sentence for each thing, and no other."""
    [sentence] = concerns(run)
    assert said in sentence


def test_a_far_server_is_not_also_called_a_slow_disk() -> None:
    """A commit contains the way there and back."""
    [sentence] = concerns(run_of(round_trip=0.04, commit=0.043))
    assert "40.0 ms away" in sentence


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (run_of(round_trip=0.0008, commit=0.0009), "the way to the server and back, 0.80 ms"),
        (run_of(round_trip=0.0001, commit=0.0009), "waiting for the durable commit, 0.90 ms"),
        (run_of(commit=0.0002), "The durable commit is 0.20 ms of a call"),
        (run_of(Ground("memory", shared=False)), "Nothing reaches a disk"),
    ],
)
def test_what_limits_a_single_caller_is_named(run: Figures, said: str) -> None:
    """The way, the disk or the processors, by what was measured."""
    assert said in dict(meanings(run))["enqueue"]


def test_what_limits_many_callers_is_named() -> None:
    """Shared commits leave the processor as the limit, unless the disk is slow."""
    assert "not the disk, limits" in dict(meanings(run_of(commit=0.001, enqueue_callers=0.01)))["callers"]
    assert "The disk limits" in dict(meanings(run_of(commit=0.008, enqueue_callers=0.01)))["callers"]
    assert "One processor limits" in dict(meanings(run_of(Ground("memory"))))["callers"]


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
