"""Durations in buckets: small enough to write with every batch, fine enough for percentiles.

Four buckets an octave, from a microsecond up: a percentile read from them is at most an eighth off.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from tidewheel.model import Distribution

_MAX_BUCKET = 4 * 50  # 2^50 µs is 35 years


def bucket_of(microseconds: int) -> int:
    """Which bucket a duration falls into."""
    if microseconds < 4:
        return max(microseconds, 0)
    octave = microseconds.bit_length() - 1
    return min(4 * (octave - 1) + ((microseconds >> (octave - 2)) & 3), _MAX_BUCKET)


def start_of(bucket: int) -> int:
    """The shortest duration of a bucket, in microseconds."""
    if bucket < 4:
        return bucket
    octave, quarter = bucket // 4 + 1, bucket % 4
    return (4 + quarter) << (octave - 2)


def fill(durations: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    """Buckets for many durations at once: each with how many fall into it, and their sum in microseconds."""
    ordered = sorted(durations)
    done = 0
    while done < len(ordered):
        bucket = bucket_of(ordered[done])
        end = len(ordered) if bucket == _MAX_BUCKET else bisect_left(ordered, start_of(bucket + 1), done)
        yield bucket, end - done, sum(ordered[done:end])
        done = end


def middle_of(bucket: int) -> float:
    """A bucket's middle, in microseconds."""
    if bucket < 4:
        return float(bucket)
    return (start_of(bucket) + start_of(bucket + 1)) / 2


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
