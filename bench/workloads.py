"""The work: what is done to each system, and which figure comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

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
    baselines: bool = False  # also for the bare loops
    who: Literal["all", "strong", "ours"] = "all"  # strong: Windlass and the strongest peers


def drain(
    trial: Trial, processes: int = 1, kind: str = "noop", payload: int = 100, pace: float = 1.0
) -> Figures:
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


def bulk(trial: Trial) -> Figures:
    """One caller hands over jobs by the thousand."""
    trial.open()
    trial.fill(trial.jobs(1000))
    trial.place.rest()
    answer = trial.fill(trial.jobs(100_000, pace=2))
    return {"jobs_per_second": answer["jobs"] / answer["seconds"], "jobs": answer["jobs"]}


def deep(trial: Trial) -> Figures:
    """The first 100,000 of a million waiting jobs."""
    jobs = trial.jobs(100_000)
    trial.open()
    trial.fill(max(jobs, int(1_000_000 * trial.scale)))
    trial.add_workers()
    trial.place.rest()
    trial.work()
    counts = trial.wait_for(jobs, patience=120)
    elapsed = (counts[0]["last_ns"] - counts[0]["first_ns"]) / 1e9
    return {"jobs_per_second": counts[0]["ran"] / elapsed, "jobs": counts[0]["ran"]}


def aged(trial: Trial) -> Figures:
    """A drain beside a million finished jobs."""
    jobs = trial.jobs(100_000)
    producer = trial.open()
    producer.ask("grow", patience=1200, finished=int(1_000_000 * trial.scale), waiting=0, delayed=0)
    trial.fill(jobs)
    trial.add_workers()
    trial.place.rest()
    trial.work()
    counts = trial.wait_for(jobs, patience=120)
    ended = trial.wait_until_recorded(jobs)
    return {"jobs_per_second": jobs / (ended - counts[0]["first_ns"] / 1e9), "jobs": jobs}


def topics(trial: Trial, number: int = 1000) -> Figures:
    """One worker for a thousand topics, each with its share of the jobs."""
    jobs = trial.jobs(100_000)
    trial.open(topics=number)
    trial.fill(jobs)
    trial.add_workers()
    trial.place.rest()
    trial.work()
    counts = trial.wait_for(jobs, patience=120)
    ended = trial.wait_until_recorded(jobs)
    return {"jobs_per_second": jobs / (ended - counts[0]["first_ns"] / 1e9), "jobs": jobs}


def pinned(trial: Trial, window: float = 10.0) -> Figures:
    """Produce and drain for two minutes while another session holds a snapshot open; then vacuum."""
    producer = trial.open()
    trial.add_workers()
    trial.work()
    producer.ask("enqueue", callers=100, seconds=1, payload=100)
    trial.place.rest()
    before = trial.place.megabytes() or 0.0
    windows = max(3, round(12 * min(1.0, trial.scale)))
    figures: Figures = {}
    rates = []
    with trial.place.pinned_snapshot():
        producer.tell("enqueue", callers=100, seconds=windows * window, payload=100)
        ran, began = trial.ran(), time.monotonic()
        for number in range(1, windows + 1):
            time.sleep(max(0.0, began + number * window - time.monotonic()))
            now = trial.ran()
            rates.append((now - ran) / window)
            figures[f"window_{number}"] = rates[-1]
            ran = now
        producer.answer(120)
        figures["pinned_megabytes"] = trial.place.megabytes() or 0.0
    trial.place.vacuum()
    released = trial.place.megabytes() or 0.0
    # Whatever was freed is there to be used again: the database must not go on growing.
    producer.ask("enqueue", patience=120, callers=100, seconds=window, payload=100)
    trial.place.vacuum()
    return {
        "last_of_first_percent": 100 * rates[-1] / rates[0],
        "jobs_per_second": sum(rates) / len(rates),
        "before_megabytes": before,
        "released_megabytes": released,
        "after_megabytes": trial.place.megabytes() or 0.0,
        **figures,
    }


def memory(trial: Trial) -> Figures:
    """What a worker's memory grows by over a million jobs, once it has warmed up."""
    jobs = int(1_000_000 * trial.scale)
    trial.open()
    trial.fill(jobs)
    trial.add_workers()
    trial.place.rest()
    trial.work()
    trial.wait_for(jobs // 20, patience=120)
    warm = most = trial.counts()[0]["rss_megabytes"]
    while (count := trial.counts()[0])["ran"] < jobs:
        most = max(most, count["rss_megabytes"])
        time.sleep(0.1)
    return {
        "growth_megabytes": max(most, count["rss_megabytes"]) - warm,
        "warm_megabytes": warm,
        "most_megabytes": most,
        "end_megabytes": count["rss_megabytes"],
        "jobs": jobs,
    }


def flat(trial: Trial) -> Figures:
    """A claim of 100 beside a million each of finished, waiting and delayed jobs, against an empty store."""
    producer = trial.open()
    answer = producer.ask("flat", patience=1800, number=int(1_000_000 * trial.scale), rounds=100)
    empty, full = percentile(answer["empty"], 0.5), percentile(answer["full"], 0.5)
    return {"full_of_empty": full / empty, "empty_ms": 1000 * empty, "full_ms": 1000 * full}


def look(trial: Trial) -> Figures:
    """Pages of jobs and statistics, with a million jobs of several states and a thousand topics."""
    producer = trial.open()
    part = int(400_000 * trial.scale)
    producer.ask("grow", patience=1800, finished=part, waiting=part, delayed=part // 2)
    trial.place.rest()
    producer.ask("look", rounds=5)
    answer = producer.ask("look", patience=300, rounds=50)
    return {
        "list_p99_ms": 1000 * percentile(answer["lists"], 0.99),
        "list_p50_ms": 1000 * percentile(answer["lists"], 0.5),
        "stats_p50_ms": 1000 * percentile(answer["stats"], 0.5),
        "stats_p99_ms": 1000 * percentile(answer["stats"], 0.99),
    }


def _with(function: Callable[..., Figures], *arguments: Any, **more: Any) -> Callable[[Trial], Figures]:
    return lambda trial: function(trial, *arguments, **more)


RATE = "jobs_per_second"

WORKLOADS: tuple[Workload, ...] = (
    Workload("drain", "drain, 1 process", RATE, drain, variants=True, baselines=True),
    Workload("drain-2", "drain, 2 processes", RATE, _with(drain, 2)),
    Workload("drain-8", "drain, 8 processes", RATE, _with(drain, 8), who="strong"),
    *(
        Workload(
            f"enqueue-{callers}",
            f"enqueue, {callers:,} caller{'s' if callers > 1 else ''} awaiting each commit",
            RATE,
            _with(enqueue, callers),
            baselines=True,
        )
        for callers in (1, 10, 100, 1000)
    ),
    Workload("bulk", "bulk enqueue", RATE, bulk, baselines=True),
    Workload("together", "produce + drain together, 100 callers", RATE, together),
    Workload("pickup", "pick-up by an idle worker", "p50_ms", pickup, higher=False, variants=True),
    Workload("pause", "drain, handlers of 1 ms", RATE, _with(drain, kind="pause", pace=0.5), kind="pause", who="strong"),
    Workload("sync", "drain, plain functions", RATE, _with(drain, kind="sync", pace=0.3), kind="sync", who="strong"),
    Workload("payload-2k", "drain, payloads of 2 kB", RATE, _with(drain, payload=2_000, pace=0.5), who="strong"),
    Workload("payload-10k", "drain, payloads of 10 kB", RATE, _with(drain, payload=10_000, pace=0.2), who="strong"),
    Workload("retries", "drain, 10 % fail once", RATE, _with(drain, kind="flaky", pace=0.5), kind="flaky", who="ours"),
    Workload("deep", "drain, first 100,000 of 1 M", RATE, deep, who="strong"),
    Workload("aged", "drain beside 1 M finished jobs", RATE, aged, who="ours"),
    Workload("topics", "drain, 1,000 topics", RATE, topics, who="ours"),
    Workload(
        "pinned", "produce + drain, snapshot pinned", "last_of_first_percent", pinned, grounds=("postgres",), who="strong"
    ),
    Workload("memory", "worker's memory over 1 M jobs", "growth_megabytes", memory, higher=False, who="ours"),
    Workload("flat", "claim at 1 M + 1 M + 1 M against empty", "full_of_empty", flat, higher=False, who="ours"),
    Workload("look", "list and stats at 1 M jobs", "list_p99_ms", look, higher=False, who="ours"),
)

BY_NAME = {workload.name: workload for workload in WORKLOADS}
