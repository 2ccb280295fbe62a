"""A run's results: every repetition of everything, with what it was taken on, as JSON."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from bench.figures import Summary, summarise

FORMAT = 1


def timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True, slots=True)
class Measurement:
    """One repetition of one workload on one system: figures, or why there are none."""

    workload: str
    system: str
    repetition: int
    started_at: str
    load_average: float | None
    took_seconds: float
    figures: dict[str, float] = field(default_factory=dict)
    problem: str | None = None

    def moved(self, repetitions: int) -> Measurement:
        """The same as a later repetition, when runs are put together."""
        return replace(self, repetition=self.repetition + repetitions)


@dataclass
class Results:
    """What one run found."""

    machine: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    systems: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    started_at: str = field(default_factory=timestamp)
    format: int = FORMAT

    def summary(self, workload: str, system: str, figure: str) -> Summary | None:
        """Of the repetitions that have this figure."""
        values = [
            measurement.figures[figure]
            for measurement in self.measurements
            if (measurement.workload, measurement.system) == (workload, system)
            and figure in measurement.figures
        ]
        return summarise(values) if values else None

    def problem(self, workload: str, system: str) -> str | None:
        """Why a system has no figure, or lost one of its repetitions."""
        return next(
            (
                measurement.problem
                for measurement in self.measurements
                if (measurement.workload, measurement.system) == (workload, system) and measurement.problem
            ),
            None,
        )

    def save(self, path: Path) -> None:
        """Whole or not at all, so that a run that is broken off keeps what it had."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".draft")
        draft.write_text(json.dumps(asdict(self), indent=1) + "\n", "utf-8")
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        content = json.loads(path.read_text("utf-8"))
        if content.get("format") != FORMAT:
            raise ValueError(f"{path} has format {content.get('format')}; this reads {FORMAT}")
        content["measurements"] = [Measurement(**each) for each in content["measurements"]]
        return cls(**content)
