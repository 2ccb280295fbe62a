"""Every metric there is, once: what it is called, what it counts, and by what."""

from __future__ import annotations

from collections.abc import Mapping
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
