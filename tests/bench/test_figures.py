from __future__ import annotations

import pytest
from bench.figures import percentile, ratio, summarise


def test_a_summary_is_the_median_with_what_lies_around_it() -> None:
    """One disturbed repetition moves the spread, not the figure."""
    summary = summarise([100.0, 10.0, 110.0])
    assert (summary.median, summary.lowest, summary.highest, summary.repetitions) == (100.0, 10.0, 110.0, 3)
    assert summary.spread == 1.0


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.5) == 51.0
    assert percentile(values, 0.99) == 100.0
    assert percentile([], 0.5) == 0.0


@pytest.mark.parametrize(("higher", "times"), [(True, 4.0), (False, 0.25)])
def test_a_ratio_says_how_many_times_better_ours_is(higher: bool, times: float) -> None:
    """More jobs a second are better, more milliseconds are not."""
    assert ratio(40.0, 10.0, higher=higher) == times


def test_nothing_is_not_divided_by() -> None:
    assert ratio(40.0, 0.0, higher=True) is None
