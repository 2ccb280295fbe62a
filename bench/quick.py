"""``python -m bench --quick``: has Tidewheel become slower? Two minutes, no peers, no network.

Tidewheel is compared with the bare loops of the same run, so that the machine's speed and mood cancel out;
the ratios are then compared with those in ``reference.json``. The bare loops run no code of Tidewheel: a loss
anywhere in it shows.
"""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import systems, workloads
from bench.machine import load_average
from bench.results import Results, timestamp
from bench.run import Watcher, run

REFERENCE = Path(__file__).with_name("reference.json")

PAIRS = {"postgres": ("tidewheel-postgres", "bare-postgres"), "sqlite": ("tidewheel-sqlite", "bare-sqlite")}
WORKLOADS = ("drain", "enqueue-100")
DECIDING = ("drain",)
"""Workloads whose loss is a defect; the others are shown."""

TOLERANCE = 0.15
"""What the ratio may lose before it is a defect."""

CPU_TOLERANCE = 0.05
"""More processor time a job than this, and a loss measured on a busy machine is believed."""

BUSY = 0.5
"""The load of each core from which on a machine counts as busy."""

REPEAT = 4
SCALE = 0.4


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tidewheel as a part of the bare loop, now and then."""

    workload: str
    ground: str
    rate: float  # jobs a second, as a part of the bare loop's; more is better
    cpu: float  # processor time a job, as a multiple of the bare loop's; less is better
    reference_rate: float | None = None
    reference_cpu: float | None = None
    busy: bool = False  # others used the machine

    @property
    def name(self) -> str:
        return f"{self.workload}-{self.ground}"

    @property
    def change(self) -> float | None:
        """Of the rate against the reference: -0.2 is a loss of 20 %."""
        return None if not self.reference_rate else self.rate / self.reference_rate - 1

    @property
    def cpu_change(self) -> float:
        """Of the processor time a job: 0.2 is 20 % more."""
        return 0.0 if not self.reference_cpu else self.cpu / self.reference_cpu - 1

    @property
    def defect(self) -> bool:
        """A loss; on a busy machine only when the processor time, which is far less noisy, confirms it."""
        if self.workload not in DECIDING or self.change is None or self.change >= -TOLERANCE:
            return False
        return not self.busy or self.cpu_change > CPU_TOLERANCE


def measure(watcher: Watcher, cache: Path, repeat: int = REPEAT, scale: float = SCALE) -> Results:
    chosen = [systems.BY_NAME[name] for pair in PAIRS.values() for name in pair]
    work = [workloads.BY_NAME[name] for name in WORKLOADS]
    return run(chosen, work, repeat=repeat, scale=scale, cache=cache, watcher=watcher)


def compare(results: Results, reference: dict[str, Any] | None, *, busy: bool = False) -> list[Comparison]:
    """One comparison for each workload and ground. Raises ``ValueError`` when something was not measured."""
    known = (reference or {}).get("ratios", {})
    found = []
    for workload in WORKLOADS:
        for ground, (ours, bare) in PAIRS.items():
            for system in (ours, bare):
                if results.summary(workload, system, "jobs_per_second") is None:
                    raise ValueError(f"{workload} of {system}: {results.problem(workload, system)}")
            rate = paired_ratio(results, workload, ours, bare, "jobs_per_second")
            cpu = paired_ratio(results, workload, ours, bare, "cpu_us")
            before = known.get(f"{workload}-{ground}", {})
            found.append(Comparison(workload, ground, rate, cpu, before.get("rate"), before.get("cpu"), busy))
    return found


def paired_ratio(results: Results, workload: str, ours: str, bare: str, figure: str) -> float:
    """The median over the repetitions of one figure divided by the other, taken one right after the other."""
    pairs: dict[int, dict[str, float]] = {}
    for measurement in results.measurements:
        if measurement.workload == workload and measurement.system in (ours, bare) and measurement.figures:
            figures = {**measurement.figures, "cpu_us": _cpu(measurement.figures)}
            pairs.setdefault(measurement.repetition, {})[measurement.system] = figures[figure]
    ratios = [pair[ours] / pair[bare] for pair in pairs.values() if len(pair) == 2 and pair[bare]]
    if not ratios:
        raise ValueError(f"{workload}: {ours} and {bare} were never measured together")
    return statistics.median(ratios)


def _cpu(figures: dict[str, float]) -> float:
    """Processor time of all parts: what a job costs the machine."""
    return sum(value for name, value in figures.items() if name.endswith("_cpu_us"))


def show(comparisons: list[Comparison]) -> str:
    rate = f"{'rate, part of bare loop':>26} {'reference':>10} {'change':>8}"
    cpu = f"{'CPU, × bare loop':>18} {'reference':>10}"
    lines = [f"{'':24} {rate} {cpu}"]
    for each in comparisons:
        before = "–" if each.reference_rate is None else f"{each.reference_rate:.3f}"
        change = "–" if each.change is None else f"{100 * each.change:+.0f} %"
        cpu = "–" if each.reference_cpu is None else f"{each.reference_cpu:.2f}"
        mark = "  DEFECT" if each.defect else ""
        lines.append(
            f"{each.name:24} {each.rate:26.3f} {before:>10} {change:>8} {each.cpu:18.2f} {cpu:>10}{mark}"
        )
    return "\n".join(lines)


def load_reference(path: Path = REFERENCE) -> dict[str, Any] | None:
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def save_reference(comparisons: list[Comparison], results: Results, path: Path = REFERENCE) -> None:
    content = {
        "taken_at": timestamp(),
        "machine": results.machine,
        "versions": results.versions,
        "repeat": results.settings["repeat"],
        "scale": results.settings["scale"],
        "ratios": {
            each.name: {"rate": round(each.rate, 4), "cpu": round(each.cpu, 3)} for each in comparisons
        },
    }
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def busy_with_other_things() -> str | None:
    """A warning when others use the machine: rates then depend on who gets which core, even in turn."""
    load, cores = load_average(), os.cpu_count() or 1
    if load is None or load < BUSY * cores:
        return None
    return (
        f"load {load} on {cores} cores: a lower rate counts only where the CPU of each job has grown, too\n"
    )


def quick(watcher: Watcher, cache: Path, *, save: bool) -> int:
    """The whole of it; the exit code."""
    if warning := busy_with_other_things():
        print(warning)
    busy = warning is not None
    results = measure(watcher, cache)
    comparisons = compare(results, load_reference(), busy=busy)
    if any(each.defect for each in comparisons) and not save:
        print("\nbelow the reference; once more, to be sure")
        again = measure(watcher, cache)
        for measurement in again.measurements:
            results.measurements.append(measurement.moved(REPEAT))
        comparisons = compare(results, load_reference(), busy=busy)
    print()
    print(show(comparisons))
    if save:
        save_reference(comparisons, results)
        print(f"\nsaved to {REFERENCE}")
        return 0
    for each in comparisons:
        if each.defect:
            lost = -100 * (each.change or 0.0)
            print(
                f"\n{each.name} lost {lost:.0f} % against the reference; {100 * TOLERANCE:.0f} % are allowed."
                f" If that is meant: python -m bench --quick --save"
            )
    return 1 if any(each.defect for each in comparisons) else 0
