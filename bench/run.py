"""A run: every workload, on every system, several times, in turn: A B C, A B C, A B C."""

from __future__ import annotations

import contextlib
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import machine
from bench.environments import Environment, NotMeasured, prepare
from bench.grounds import Grounds
from bench.program import AdapterFailed
from bench.results import Measurement, Results, timestamp
from bench.systems import OURS, System
from bench.trial import CONCURRENCY, PAYLOAD, JobsLost, Trial
from bench.workloads import Workload
from tidewheel.__about__ import __version__

Watcher = Callable[[Measurement], None]


def run(
    systems: Sequence[System],
    workloads: Sequence[Workload],
    *,
    repeat: int,
    scale: float,
    cache: Path,
    watcher: Watcher,
    output: Path | None = None,
) -> Results:
    """Measure; what could not be measured is in the results, too."""
    settings = {"repeat": repeat, "scale": scale, "concurrency": CONCURRENCY, "payload_bytes": PAYLOAD}
    results = Results(machine.describe(), settings, versions={OURS: __version__})
    with Grounds() as grounds, tempfile.TemporaryDirectory(prefix="tidewheel-bench-log-") as logs:
        environments: dict[str, Environment | str] = {}
        for system in systems:
            environments[system.name] = _environment(system, cache)
            results.systems[system.name] = _describe(system, environments[system.name])
        for workload in workloads:
            chosen = [system for system in systems if suits(system, workload)]
            for repetition in range(repeat):
                for system in chosen:
                    environment = environments[system.name]
                    if isinstance(environment, str):
                        if repetition:
                            continue  # once is enough to say that it is not here
                        measurement = _not_measured(workload, system, repetition, environment)
                    else:
                        log = Path(logs) / f"{system.name.replace(':', '-')}.log"
                        measurement = measure(grounds, system, environment, workload, repetition, scale, log)
                    results.measurements.append(measurement)
                    results.versions |= grounds.versions
                    results.settings |= grounds.settings
                    watcher(measurement)
                    if output is not None:
                        results.save(output)
    return results


def suits(system: System, workload: Workload) -> bool:
    """Whether this system is to do this work."""
    return (
        system.ground in workload.grounds
        and workload.kind in system.kinds
        and (system.best or workload.variants)
        and (workload.who != "strong" or system.strong)
        and (workload.who != "ours" or system.name.startswith(OURS))
        and not (system.baseline and not workload.baselines)
    )


def measure(
    grounds: Grounds,
    system: System,
    environment: Environment,
    workload: Workload,
    repetition: int,
    scale: float,
    log: Path,
) -> Measurement:
    """One repetition. A system that fails is a result, not the end of the run."""
    started_at, load, began = timestamp(), machine.load_average(), time.monotonic()
    figures: dict[str, float] = {}
    problem = None
    try:
        with grounds.place(system.ground) as place, contextlib.ExitStack() as stack:
            figures = workload.run(Trial(system, environment, place, log, scale, stack))
    except NotMeasured as reason:
        problem = f"not measured: {reason}"
    except JobsLost as lost:
        problem = f"lost jobs: {lost}"
    except AdapterFailed as failure:
        problem = f"failed: {failure}"
    except Exception:
        problem = f"failed: {traceback.format_exc(limit=-4)}"
    return Measurement(
        workload.name,
        system.name,
        repetition,
        started_at,
        load,
        round(time.monotonic() - began, 2),
        {name: round(value, 4) for name, value in figures.items()},
        problem,
    )


def _environment(system: System, cache: Path) -> Environment | str:
    try:
        return prepare(system, cache)
    except NotMeasured as reason:
        return str(reason)


def _describe(system: System, environment: Environment | str) -> dict[str, object]:
    described: dict[str, object] = {
        "ground": system.ground,
        "requirements": list(system.requirements),
        "options": system.options,
        "note": system.note,
    }
    if isinstance(environment, str):
        return {**described, "problem": environment}
    return {**described, "versions": environment.versions}


def _not_measured(workload: Workload, system: System, repetition: int, reason: str) -> Measurement:
    return Measurement(
        workload.name, system.name, repetition, timestamp(), None, 0.0, {}, f"not measured: {reason}"
    )
