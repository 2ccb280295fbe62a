"""Durations in buckets."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.core.reports import Distribution
from tidewheel.stores.reports import (
    bucket_middle,
    bucket_of,
    bucket_start,
    count_in_buckets,
    summarise_buckets,
)

durations = st.integers(0, 10**12)


@given(durations, durations)
def test_longer_durations_have_later_buckets(one: int, other: int) -> None:
    """Buckets keep the order, so percentiles can be read from them."""
    shorter, longer = sorted((one, other))
    assert bucket_of(shorter) <= bucket_of(longer)


@given(st.integers(4, 10**12))
def test_a_bucket_is_at_most_an_eighth_off(microseconds: int) -> None:
    """Its middle stands for everything in it."""
    assert bucket_middle(bucket_of(microseconds)) == pytest.approx(microseconds, rel=0.125)


@pytest.mark.parametrize("microseconds", [0, 1, 2, 3])
def test_the_smallest_durations_are_exact(microseconds: int) -> None:
    """Below four microseconds every one has its bucket."""
    assert bucket_middle(bucket_of(microseconds)) == microseconds


def test_negative_and_absurd_durations_fall_into_the_end_buckets() -> None:
    """A clock step must not break the statistics."""
    assert bucket_of(-5) == bucket_of(0) == 0
    assert bucket_of(2**60) == bucket_of(2**80)


def test_every_bucket_is_used_and_they_are_few() -> None:
    """No gaps between neighbours, and the whole range fits in two hundred."""
    edges = {
        bucket_of(value)
        for power in range(50)
        for value in range(2**power, 2**power + 2 * 2**power, max(1, 2**power // 8))
    }
    assert edges == set(range(1, max(edges) + 1))
    assert max(edges) <= 200


def test_nothing_measured_is_nothing_said() -> None:
    """No zeroes that look like measurements."""
    assert summarise_buckets({}, 0) == Distribution()


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=200))
def test_percentiles_are_ordered_and_close_to_the_real_ones(values: list[int]) -> None:
    """Never more than an eighth from the value at that rank; the average is exact."""
    counts = Counter(map(bucket_of, values))
    summary = summarise_buckets(counts, sum(values))
    assert summary.count == len(values)
    assert summary.average == pytest.approx(sum(values) / len(values) / 1e6)
    assert summary.p50 is not None
    assert summary.p95 is not None
    assert summary.p99 is not None
    assert summary.p50 <= summary.p95 <= summary.p99
    ordered = sorted(values)
    for share, found in ((0.5, summary.p50), (0.95, summary.p95), (0.99, summary.p99)):
        rank = max(0, -(-len(values) * round(share * 100) // 100) - 1)
        assert found == pytest.approx(ordered[rank] / 1e6, rel=0.125 + 1e-9)  # 4.5 is an eighth from 4


@given(st.integers(0, 200))
def test_a_bucket_starts_with_the_shortest_duration_it_takes(bucket: int) -> None:
    """One microsecond less belongs to the bucket before."""
    assert bucket_of(bucket_start(bucket)) == bucket
    assert bucket == 0 or bucket_of(bucket_start(bucket) - 1) == bucket - 1


@given(st.lists(durations))
def test_many_durations_fall_into_the_buckets_each_of_them_falls_into(many: list[int]) -> None:
    """Filling the buckets at once counts and adds up the same."""
    one_by_one: dict[int, tuple[int, int]] = {}
    for duration in many:
        n, total = one_by_one.get(bucket_of(duration), (0, 0))
        one_by_one[bucket_of(duration)] = (n + 1, total + duration)
    assert {bucket: (n, total) for bucket, n, total in count_in_buckets(many)} == one_by_one
