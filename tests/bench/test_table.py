from __future__ import annotations

import pytest
from bench.table import compared, number, tables, words
from bench.workloads import BY_NAME

from tests.bench.sample_results import failure, measurement, results

DRAIN, PICKUP = BY_NAME["drain"], BY_NAME["pickup"]


def test_each_system_is_compared_with_tidewheel_on_its_own_ground() -> None:
    """A peer on SQLite with Tidewheel on SQLite; one on Redis with Tidewheel on PostgreSQL."""
    found = results(
        measurement("drain", "tidewheel-postgres", jobs_per_second=40_000),
        measurement("drain", "tidewheel-sqlite", jobs_per_second=20_000),
        measurement("drain", "pgqueuer", jobs_per_second=10_000),
        measurement("drain", "huey", jobs_per_second=2_000),
        measurement("drain", "saq", jobs_per_second=1_000),
    )
    assert compared(found, DRAIN, "pgqueuer") == "4.00×"
    assert compared(found, DRAIN, "huey") == "10.00×"
    assert compared(found, DRAIN, "saq") == "40.00×"
    assert compared(found, DRAIN, "tidewheel-postgres") == "–"


def test_where_less_is_better_the_ratio_turns_round() -> None:
    found = results(
        measurement("pickup", "tidewheel-postgres", p50_ms=0.5), measurement("pickup", "pgqueuer", p50_ms=2.0)
    )
    assert compared(found, PICKUP, "pgqueuer") == "4.00×"


def test_medians_and_spread_are_shown() -> None:
    rates = (9_000, 30_000, 10_000)
    found = results(
        *(measurement("drain", "pgqueuer", index, jobs_per_second=rate) for index, rate in enumerate(rates))
    )
    assert "| pgqueuer | 10,000 | 9,000–30,000 | – |" in tables(found, [DRAIN])


def test_a_system_without_figures_says_why() -> None:
    found = results(failure("drain", "oban", "not measured: needs Python 3.12, this is 3.11"))
    assert "| oban | not measured: needs Python 3.12, this is 3.11 |" in tables(found, [DRAIN])


def test_of_a_traceback_the_last_line_is_shown() -> None:
    found = results(failure("drain", "arq", "failed: Traceback\n  somewhere\nRuntimeError: no cheese"))
    assert "RuntimeError: no cheese" in tables(found, [DRAIN])


def test_a_repetition_that_failed_is_not_hidden_by_those_that_did_not() -> None:
    found = results(
        measurement("drain", "arq", jobs_per_second=800),
        failure("drain", "arq", "lost jobs: 1 of 2 jobs ran"),
    )
    assert "arq (one repetition lost jobs: 1 of 2 jobs ran)" in tables(found, [DRAIN])


def test_workloads_nobody_did_have_no_table() -> None:
    assert tables(results(measurement("drain", "arq", jobs_per_second=800)), [PICKUP]) == ""


@pytest.mark.parametrize(("value", "text"), [(12345.6, "12,346"), (45.67, "45.7"), (0.512, "0.51")])
def test_numbers_have_as_many_digits_as_mean_something(value: float, text: str) -> None:
    assert number(value) == text


def test_headings_are_words() -> None:
    assert words("worker_cpu_us") == "worker CPU, µs/job"
    assert words("jobs_per_second") == "jobs/s"
