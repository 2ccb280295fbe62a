"""Results as a run would have them."""

from __future__ import annotations

from bench.results import Measurement, Results


def measurement(workload: str, system: str, repetition: int = 0, **figures: float) -> Measurement:
    return Measurement(workload, system, repetition, "2026-01-01T00:00:00Z", 0.5, 1.0, figures)


def failure(workload: str, system: str, problem: str) -> Measurement:
    return Measurement(workload, system, 0, "2026-01-01T00:00:00Z", 0.5, 1.0, {}, problem)


def results(*measurements: Measurement) -> Results:
    grounds = {"sqlite": "sqlite", "huey": "sqlite", "saq": "redis-durable"}
    systems = {
        each.system: {"ground": grounds.get(each.system.rpartition("-")[2], "postgres")}
        for each in measurements
    }
    machine = {"cores": 2, "python": "3.11", "sqlite": "3.40"}
    return Results(machine, {"repeat": 3, "scale": 1.0}, dict(systems), measurements=list(measurements))
