"""Work that is waiting, and how fast it is done."""

from __future__ import annotations

import time

from bench.figures import percentile
from bench.trial import Figures, Trial, per_job


def drain(
    trial: Trial, processes: int = 1, kind: str = "noop", payload: int = 100, pace: float = 1.0
) -> Figures:
    """A queue full of jobs, then workers, until the store has recorded all of them."""
    jobs = trial.jobs(200_000, pace=pace)
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


def deep(trial: Trial) -> Figures:
    """The first 100,000 of a million waiting jobs."""
    jobs = trial.jobs(100_000)
    trial.open()
    trial.fill(trial.jobs(1_000_000, seconds=100))  # peers that take in slowly get a smaller backlog
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
        answer = producer.ask(
            "enqueue", patience=120 + seconds, callers=callers, seconds=seconds, payload=100
        )
        ran, elapsed = trial.ran() - before, time.monotonic() - began
    return {
        "jobs_per_second": ran / elapsed,
        "produced_per_second": answer["jobs"] / answer["seconds"],
        "enqueue_p50_ms": 1000 * percentile(answer["times"], 0.5),
        "jobs": ran,
        **per_job(cpu, ran),
    }


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
