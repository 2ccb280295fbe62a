"""New work, and how fast it is taken in."""

from __future__ import annotations

from bench.figures import percentile
from bench.trial import Figures, Trial


def enqueue(trial: Trial, callers: int) -> Figures:
    """Callers that each wait for their own durable commit, one job after the other."""
    producer = trial.open()
    producer.ask("enqueue", callers=min(callers, 20), seconds=0.3, payload=100)  # connections, plans, caches
    trial.place.rest()
    server = trial.place.server_cpu_seconds()
    answer = producer.ask("enqueue", patience=120, callers=callers, seconds=trial.seconds(3), payload=100)
    figures = {
        "jobs_per_second": answer["jobs"] / answer["seconds"],
        "jobs": answer["jobs"],
        "p50_ms": 1000 * percentile(answer["times"], 0.5),
        "p99_ms": 1000 * percentile(answer["times"], 0.99),
        "producer_cpu_us": 1e6 * answer["cpu_seconds"] / answer["jobs"],
    }
    if server is not None:
        used = (trial.place.server_cpu_seconds() or 0.0) - server
        figures["server_cpu_us"] = 1e6 * used / answer["jobs"]
    return figures


def bulk(trial: Trial) -> Figures:
    """One caller hands over jobs by the thousand."""
    trial.open()
    trial.fill(trial.jobs(1000))
    trial.place.rest()
    answer = trial.fill(trial.jobs(100_000, pace=2))
    return {"jobs_per_second": answer["jobs"] / answer["seconds"], "jobs": answer["jobs"]}
