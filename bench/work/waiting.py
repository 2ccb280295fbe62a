"""How long a job waits for its handler."""

from __future__ import annotations

import time

from bench.figures import percentile
from bench.trial import Figures, JobsLost, Trial


def pickup(trial: Trial) -> Figures:
    """From the call of enqueue to the start of the handler in another, idle process; what idling costs."""
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


def urgent(trial: Trial) -> Figures:
    """Urgent jobs into a million under drain: from the call of enqueue to the start of the handler."""
    producer = trial.open()
    trial.fill(int(1_000_000 * trial.scale))
    trial.add_workers()
    trial.place.rest()
    trial.work()
    trial.wait_for(1000, patience=60)
    number = max(50, int(400 * trial.scale))
    producer.ask("urgent", patience=120, number=number, gap=0.05)
    waits = _all_waits(trial, number)
    return {
        "p50_ms": 1000 * percentile(waits, 0.5),
        "p99_ms": 1000 * percentile(waits, 0.99),
        "worst_ms": 1000 * max(waits),
        "jobs": number,
        "backlog_left": float(producer.ask("left")["unfinished"]),
    }


def late(trial: Trial) -> Figures:
    """Jobs of transactions that stayed open for 10 s: from their commit to the start of the handler.

    Newer jobs are drained meanwhile, so that every claim has long passed the place where these belong.
    """
    producer = trial.open()
    trial.add_workers()
    trial.work()
    number, backlog = 20, int(800_000 * trial.scale)
    answer = producer.ask(
        "late", patience=300, number=number, open_seconds=trial.seconds(10), backlog=backlog
    )
    _all_waits(trial, number)
    told = trial.workers[0].ask("waits")
    # Each wait began with the call; what counts begins with the commit.
    open_seconds = dict(answer["open"])
    waits = [
        wait - open_seconds[called] for wait, called in zip(told["seconds"], told["called"], strict=True)
    ]
    return {
        "p50_ms": 1000 * percentile(waits, 0.5),
        "p99_ms": 1000 * percentile(waits, 0.99),
        "worst_ms": 1000 * max(waits),
        "jobs": number,
        "backlog_left": float(answer["unfinished"]),
    }


def _all_waits(trial: Trial, number: int) -> list[float]:
    """Of so many jobs; a minute is enough for each of them to have started."""
    deadline = time.monotonic() + 60
    while len(waits := trial.workers[0].ask("waits")["seconds"]) < number:
        if time.monotonic() > deadline:
            raise JobsLost(f"{len(waits)} of {number} jobs started")
        time.sleep(0.05)
    return [float(wait) for wait in waits]
