"""Metrics: the catalogue of all metrics, and their samples as plain values.

The catalogue defines each metric once, with its name, help text and labels. Samples can be added up, sent to
another process, and written as text in Prometheus format 0.0.4.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, Literal, NamedTuple

BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)
"""Upper ends of the buckets of a histogram, in seconds; what is longer is in the last one, without an end."""

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One line of the table."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


SUBMITTED: Final = Metric(
    "tidewheel_jobs_submitted_total", "counter", "Jobs that this process has enqueued.", ("task", "topic")
)
COMPLETED: Final = Metric(
    "tidewheel_jobs_completed_total",
    "counter",
    "Jobs that ended here, by how: completed, failed or cancelled.",
    ("task", "state"),
)
RETRIES: Final = Metric(
    "tidewheel_job_retries_total", "counter", "Attempts that errored and are tried again.", ("task",)
)
DURATION: Final = Metric(
    "tidewheel_job_duration_seconds", "histogram", "How long handlers ran, each attempt.", ("task",)
)
WAIT: Final = Metric(
    "tidewheel_job_wait_seconds",
    "histogram",
    "How long jobs that were due waited for their handler, each attempt.",
    ("task",),
)
LEASES_LOST: Final = Metric(
    "tidewheel_leases_lost_total",
    "counter",
    "Leases that ended without a word from their worker, counted by who brought the job back.",
)
PRUNED: Final = Metric(
    "tidewheel_jobs_pruned_total", "counter", "Finished jobs removed after their retention.", ("state",)
)
DEPTH: Final = Metric(
    "tidewheel_queue_depth", "gauge", "Jobs that are kept, by topic and state.", ("topic", "state")
)
OLDEST_DUE: Final = Metric(
    "tidewheel_oldest_due_seconds", "gauge", "How long the longest-waiting due job has been due."
)
STALE_LEASES: Final = Metric(
    "tidewheel_stale_leases",
    "gauge",
    "Running jobs whose lease has ended and that nobody has brought back yet, of the 100 that run longest.",
)
FIGURES_AGE: Final = Metric(
    "tidewheel_queue_figures_age_seconds", "gauge", "How old the figures about the queue are."
)
WORKERS: Final = Metric("tidewheel_workers", "gauge", "Workers by health.", ("health",))
WORKER_READY: Final = Metric(
    "tidewheel_worker_ready", "gauge", "1 while the worker takes jobs and reaches its store.", ("worker",)
)
WORKER_SLOTS: Final = Metric(
    "tidewheel_worker_slots", "gauge", "Handlers the worker can run at a time.", ("worker",)
)
WORKER_RUNNING: Final = Metric("tidewheel_worker_running", "gauge", "Slots that are taken.", ("worker",))
WORKER_STUCK: Final = Metric(
    "tidewheel_worker_stuck",
    "gauge",
    "Slots held by handlers that were told to stop and go on.",
    ("worker",),
)
WORKER_LAG: Final = Metric(
    "tidewheel_worker_loop_lag_seconds",
    "gauge",
    "How long its event loop has owed an answer.",
    ("worker",),
)
WORKER_FAILING: Final = Metric(
    "tidewheel_worker_claims_failing",
    "gauge",
    "1 while the store does not answer the worker's claims.",
    ("worker",),
)
WORKER_LAST_CLAIM: Final = Metric(
    "tidewheel_worker_last_claim_seconds", "gauge", "Since the store last answered a claim.", ("worker",)
)

CATALOGUE: Final[Mapping[str, Metric]] = {
    metric.name: metric
    for metric in (
        *(SUBMITTED, COMPLETED, RETRIES, DURATION, WAIT, LEASES_LOST, PRUNED),
        *(DEPTH, OLDEST_DUE, STALE_LEASES, FIGURES_AGE, WORKERS),
        *(WORKER_READY, WORKER_SLOTS, WORKER_RUNNING, WORKER_STUCK, WORKER_LAG),
        *(WORKER_FAILING, WORKER_LAST_CLAIM),
    )
}
"""By name, in the order in which they are told."""


OTHER: Final = "other"
"""The label of what has no series of its own, because there are too many."""
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One series of a metric: a number, or of a histogram how many in each bucket, and their sum."""

    name: str
    labels: tuple[str, ...]
    values: tuple[float, ...]


def make_sample(metric: Metric, value: float, *labels: str) -> Sample:
    return Sample(metric.name, labels, (value,))


def sum_samples(samples: Iterable[Sample]) -> list[Sample]:
    """Those of the same series become one; for counters and histograms."""
    sums: dict[tuple[str, tuple[str, ...]], tuple[float, ...]] = {}
    for name, labels, values in samples:
        before = sums.get((name, labels))
        sums[name, labels] = (
            values if before is None else tuple(a + b for a, b in zip(before, values, strict=True))
        )
    return [Sample(name, labels, values) for (name, labels), values in sums.items()]


def format_prometheus(samples: Iterable[Sample]) -> str:
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
