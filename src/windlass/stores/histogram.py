"""Durations in buckets: small enough to write with every batch, fine enough for percentiles.

Four buckets an octave, from a microsecond up: a percentile read from them is at most an eighth off.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.model import Distribution

_MAX_BUCKET = 4 * 50  # 2^50 µs is 35 years


def bucket_of(microseconds: int) -> int:
    """Which bucket a duration falls into."""
    if microseconds < 4:
        return max(microseconds, 0)
    octave = microseconds.bit_length() - 1
    return min(4 * (octave - 1) + ((microseconds >> (octave - 2)) & 3), _MAX_BUCKET)


def middle_of(bucket: int) -> float:
    """A bucket's middle, in microseconds."""
    if bucket < 4:
        return float(bucket)
    octave, quarter = bucket // 4 + 1, bucket % 4
    width = 1 << (octave - 2)
    return float((4 + quarter) * width) + width / 2


def summarise(counts: Mapping[int, int], total_microseconds: int) -> Distribution:
    """Average and percentiles of bucketed durations, in seconds."""
    number = sum(counts.values())
    if not number:
        return Distribution()
    ordered = sorted(counts.items())

    def percentile(share: float) -> float:
        rank = share * number
        seen = 0
        for bucket, count in ordered:
            seen += count
            if seen >= rank:
                return middle_of(bucket) / 1e6
        return middle_of(ordered[-1][0]) / 1e6

    return Distribution(
        count=number,
        average=total_microseconds / number / 1e6,
        p50=percentile(0.50),
        p95=percentile(0.95),
        p99=percentile(0.99),
    )
