"""The work: what is done to each system, and which figure comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.figures import percentile
from bench.trial import Trial, per_job

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of work. ``figure`` is what is compared; for ``higher`` more is better."""

    name: str
    title: str
    figure: str
    run: Callable[[Trial], Figures]
    higher: bool = True
    kind: str = "noop"
    grounds: tuple[str, ...] = ("postgres", "sqlite", "redis", "redis-durable")
    variants: bool = False  # also for the defaults of each peer
    few: bool = False  # for Windlass and the strongest peers only


def drain(trial: Trial, processes: int = 1, kind: str = "noop", payload: int = 100, pace: float = 1.0) -> Figures:
    """A queue full of jobs, then workers, until the store has recorded all of them."""
    jobs = trial.jobs(100_000, pace=pace)
    trial.open(kind)
    trial.fill(jobs, payload)
    trial.add_workers(processes)
    trial.place.rest()
    cpu: Figures = {}
    with trial.cpu(cpu):
        trial.work()
        counts = trial.wait_for(jobs, patience=120)
        ended = trial.wait_until_recorded(jobs)
    began = min(count["first_ns"] for count in counts if count["ran"]) / 1e9
    return {"jobs_per_second": jobs / (ended - began), "jobs": jobs, **per_job(cpu, jobs)}


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


def together(trial: Trial, callers: int = 100) -> Figures:
    """One process produces, another drains, at the same time."""
    producer = trial.open()
    trial.add_workers()
    trial.work()
    producer.ask("enqueue", callers=callers, seconds=0.5, payload=100)
    trial.place.rest()
    seconds = trial.seconds(10)
    before, began = trial.ran(), time.monotonic()
    cpu: Figures = {}
    with trial.cpu(cpu):
        answer = producer.ask("enqueue", patience=120 + seconds, callers=callers, seconds=seconds, payload=100)
        ran, elapsed = trial.ran() - before, time.monotonic() - began
    return {
        "jobs_per_second": ran / elapsed,
        "produced_per_second": answer["jobs"] / answer["seconds"],
        "enqueue_p50_ms": 1000 * percentile(answer["times"], 0.5),
        "jobs": ran,
        **per_job(cpu, ran),
    }


def pickup(trial: Trial) -> Figures:
    """From the call of enqueue to the start of the handler in another process that was idle; what idling costs."""
    producer = trial.open()
    trial.add_workers()
    trial.work()
    number = trial.jobs(200, seconds=1000)
    producer.ask("stamp", number=10, gap=0.05)
    trial.wait_for(10, patience=60)
    producer.ask("stamp", patience=120, number=number, gap=0.02)
    trial.wait_for(10 + number, patience=60)
    waits = trial.workers[0].ask("waits")["seconds"][10:]
    time.sleep(0.5)
    before = trial.counts()[0]["cpu_seconds"]
    idle = trial.seconds(5)
    time.sleep(idle)
    used = trial.counts()[0]["cpu_seconds"] - before
    return {
        "p50_ms": 1000 * percentile(waits, 0.5),
        "p99_ms": 1000 * percentile(waits, 0.99),
        "idle_cpu_percent": 100 * used / idle,
        "jobs": number,
    }


WORKLOADS: tuple[Workload, ...] = (
    Workload("drain", "drain, 1 process", "jobs_per_second", drain, variants=True),
    Workload("drain-2", "drain, 2 processes", "jobs_per_second", lambda trial: drain(trial, 2)),
    *(
        Workload(
            f"enqueue-{callers}",
            f"enqueue, {callers:,} caller{'s' if callers > 1 else ''}",
            "jobs_per_second",
            lambda trial, callers=callers: enqueue(trial, callers),  # type: ignore[misc]
        )
        for callers in (1, 10, 100, 1000)
    ),
    Workload("together", "produce + drain, 100 callers", "jobs_per_second", together),
    Workload("pickup", "pick-up by an idle worker", "p50_ms", pickup, higher=False, variants=True),
)

BY_NAME = {workload.name: workload for workload in WORKLOADS}
