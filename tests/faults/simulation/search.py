"""Many seeds on several processes: which of them fail, and what they were made of."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.faults.simulation.world import Outcome, simulate

PORTION = 50
"""Seeds that a process tries before it reports."""


@dataclass(slots=True)
class Tally:
    """What so many schedules were made of."""

    schedules: int = 0
    simulated_seconds: float = 0.0
    steps: int = 0
    contents: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def count(self, outcome: Outcome) -> None:
        self.schedules += 1
        self.simulated_seconds += outcome.seconds
        self.steps += outcome.steps
        self.contents.update(outcome.report.counts)
        self.contents.update({f"fault: {kind}": n for kind, n in outcome.report.faults.items()})
        if not outcome.good:
            self.failures.append((outcome.seed, describe(outcome)))

    def add(self, other: Tally) -> None:
        self.schedules += other.schedules
        self.simulated_seconds += other.simulated_seconds
        self.steps += other.steps
        self.contents.update(other.contents)
        self.failures += other.failures

    def lines(self, seconds: float) -> Iterator[str]:
        number = max(1, self.schedules)
        a_minute = self.schedules * 60 / max(seconds, 1e-9)
        yield f"{self.schedules:,} schedules in {seconds:.0f} s, {a_minute:,.0f} a minute"
        seconds_each, steps_each = self.simulated_seconds / number, self.steps / number
        yield f"{seconds_each:.1f} simulated seconds and {steps_each:,.0f} steps each"
        yield "on average:"
        for name, total in sorted(self.contents.items()):
            yield f"  {total / number:8.3f} {name}"
        yield f"{len(self.failures)} failed"


def describe(outcome: Outcome) -> str:
    """What is wrong with a run, and how to see it again."""
    findings = [f"  {finding.rule}: {finding.text}" for finding in outcome.findings()]
    return "\n".join(
        [
            f"seed {outcome.seed} breaks a promise:",
            *findings[:10],
            f"  see it happen: python -m tests.faults.simulation --seed {outcome.seed} --trace",
        ]
    )


def try_seeds(seeds: Sequence[int]) -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.count(simulate(seed))
    return tally


def search(first: int, number: int, processes: int, tell: Callable[[str], None]) -> Tally:
    """Try these seeds; each failure is told as it is found."""
    portions = [
        range(start, min(start + PORTION, first + number)) for start in range(first, first + number, PORTION)
    ]
    total, told_at = Tally(), time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        for tally in pool.map(try_seeds, portions):
            total.add(tally)
            for _, failure in tally.failures:
                tell(failure)
            if time.monotonic() - told_at > 60:
                told_at = time.monotonic()
                tell(f"{total.schedules:,} schedules, {len(total.failures)} failed")
    return total
