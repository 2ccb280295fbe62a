"""Metrics as plain values, which can be added up, sent to another process, and written as text.

The text is Prometheus's format 0.0.4.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from tidewheel.telemetry.catalogue import BUCKETS, CATALOGUE, Metric

OTHER: Final = "other"
"""The label of what has no series of its own, because there are too many."""
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One series of a metric: a number, or of a histogram how many in each bucket, and their sum."""

    name: str
    labels: tuple[str, ...]
    values: tuple[float, ...]


def one(metric: Metric, value: float, *labels: str) -> Sample:
    return Sample(metric.name, labels, (value,))


def added_up(samples: Iterable[Sample]) -> list[Sample]:
    """Those of the same series become one; for counters and histograms."""
    sums: dict[tuple[str, tuple[str, ...]], tuple[float, ...]] = {}
    for name, labels, values in samples:
        before = sums.get((name, labels))
        sums[name, labels] = (
            values if before is None else tuple(a + b for a, b in zip(before, values, strict=True))
        )
    return [Sample(name, labels, values) for (name, labels), values in sums.items()]


def text(samples: Iterable[Sample]) -> str:
    """What a scrape is answered; metrics in the order of the catalogue."""
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        found[sample.name].append(sample)
    lines: list[str] = []
    for metric in CATALOGUE.values():
        if of_metric := found.get(metric.name):
            lines += (f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}")
            for sample in of_metric:
                lines += (
                    _histogram(metric, sample) if metric.kind == "histogram" else (_single(metric, sample),)
                )
    return "\n".join((*lines, ""))


def _single(metric: Metric, sample: Sample) -> str:
    return _line(metric.name, zip(metric.labels, sample.labels, strict=True), sample.values[0])


def _histogram(metric: Metric, sample: Sample) -> Iterator[str]:
    labels = tuple(zip(metric.labels, sample.labels, strict=True))
    *counts, total = sample.values
    ends = [_number(end) for end in BUCKETS] + ["+Inf"]
    for end, number in zip(ends, accumulate(counts), strict=True):
        yield _line(f"{metric.name}_bucket", (*labels, ("le", end)), number)
    yield _line(f"{metric.name}_sum", labels, total)
    yield _line(f"{metric.name}_count", labels, sum(counts))


def _line(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{name}{{{inner}}} {_number(value)}" if inner else f"{name} {_number(value)}"


def _number(value: float) -> str:
    # Whole numbers without a fraction, as far as a float counts them all.
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
