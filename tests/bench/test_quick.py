from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.quick import PAIRS, WORKLOADS, compare, load_reference, paired_ratio, save_reference, show
from bench.results import Results

from tests.bench.sample_results import failure, measurement, results


def run_of(*, ours: float = 20_000, bare: float = 40_000, enqueue: float = 20_000) -> Results:
    """Three repetitions, each on a machine half as fast as the one before."""
    found = []
    for workload in WORKLOADS:
        for repetition, speed in enumerate((1.0, 0.5, 0.25)):
            for mine, theirs in PAIRS.values():
                rate = ours if workload == "drain" else enqueue
                found += [
                    measurement(
                        workload,
                        mine,
                        repetition,
                        jobs_per_second=speed * rate,
                        worker_cpu_us=30,
                        server_cpu_us=30,
                    ),
                    measurement(
                        workload,
                        theirs,
                        repetition,
                        jobs_per_second=speed * bare,
                        worker_cpu_us=5,
                        server_cpu_us=15,
                    ),
                ]
    return results(*found)


@pytest.fixture
def reference(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "reference.json"
    save_reference(compare(run_of(), None), run_of(), file)
    saved = load_reference(file)
    assert saved is not None
    return saved


def test_the_speed_of_the_machine_cancels_out() -> None:
    """Figures of one repetition are divided by each other, because the next may find another machine."""
    assert paired_ratio(run_of(), "drain", *PAIRS["postgres"], "jobs_per_second") == 0.5


def test_the_processor_time_of_all_parts_is_compared_too() -> None:
    assert paired_ratio(run_of(), "drain", *PAIRS["postgres"], "cpu_us") == 3.0


@pytest.mark.parametrize(
    ("rate", "defect"), [(20_000, False), (17_200, False), (16_800, True), (40_000, False)]
)
def test_a_loss_of_more_than_15_percent_in_drain_is_a_defect(
    reference: dict[str, Any], rate: float, defect: bool
) -> None:
    compared = compare(run_of(ours=rate), reference)
    assert [each.defect for each in compared if each.workload == "drain"] == [defect, defect]
    assert ("DEFECT" in show(compared)) is defect


def test_on_a_busy_machine_the_processor_time_has_to_confirm_a_loss(reference: dict[str, Any]) -> None:
    """Rates depend on who gets which core then; a false alarm would teach people not to listen."""
    assert not any(each.defect for each in compare(run_of(ours=10_000), reference, busy=True))
    for ratios in reference["ratios"].values():
        ratios["cpu"] /= 1.2
    drains = [each for each in compare(run_of(ours=10_000), reference, busy=True) if each.workload == "drain"]
    assert all(each.defect for each in drains)


def test_a_loss_elsewhere_is_shown_and_no_defect(reference: dict[str, Any]) -> None:
    compared = compare(run_of(enqueue=10_000), reference)
    assert not any(each.defect for each in compared)
    assert "-50 %" in show(compared)


def test_without_a_reference_nothing_is_a_defect() -> None:
    assert not any(each.defect for each in compare(run_of(ours=1), None))


def test_what_was_not_measured_is_an_error_and_no_success() -> None:
    """A harness that cannot measure must not pass."""
    found = results(failure("drain", "tidewheel-postgres", "failed: no PostgreSQL"))
    with pytest.raises(ValueError, match="drain of tidewheel-postgres: failed: no PostgreSQL"):
        compare(found, None)


def test_the_committed_reference_covers_what_is_compared() -> None:
    reference = load_reference()
    assert reference is not None
    assert all(each.reference_rate for each in compare(run_of(), reference))
