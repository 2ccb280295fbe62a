"""What a large queue does to memory, claims, lists and statistics."""

from __future__ import annotations

import time

from bench.figures import percentile
from bench.trial import Figures, Trial


def memory(trial: Trial, number: int, payload: int = 100) -> Figures:
    """What a worker's memory grows by over so many jobs, once it has warmed up."""
    jobs = int(number * trial.scale)
    trial.open()
    trial.fill(jobs, payload)
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
