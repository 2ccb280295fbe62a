"""Results for people: one table a workload, with medians, spread and ratios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.figures import Summary, ratio
from bench.results import Results
from bench.workloads import Workload

OURS = {"postgres": "tidewheel-postgres", "sqlite": "tidewheel-sqlite"}
"""Whom the systems on one ground are compared with; those on Redis with PostgreSQL."""

EXTRA = (
    "p50_ms",
    "p99_ms",
    "worker_cpu_us",
    "server_cpu_us",
    "producer_cpu_us",
    "idle_cpu_percent",
    "produced_per_second",
)
"""Other figures worth a column, where a workload has them."""


def tables(results: Results, workloads: Sequence[Workload]) -> str:
    """All of them, as Markdown."""
    return "\n".join("\n".join(_table(results, workload)) for workload in workloads)


def _table(results: Results, workload: Workload) -> Iterator[str]:
    systems = [name for name in results.systems if _known(results, workload, name)]
    if not systems:
        return
    extra = [
        figure
        for figure in EXTRA
        if figure != workload.figure and any(results.summary(workload.name, name, figure) for name in systems)
    ]
    yield f"### {workload.title} (`{workload.name}`)"
    yield ""
    yield f"| system | {words(workload.figure)} | spread | ours is | {' | '.join(map(words, extra))} |"
    yield "|---|" + "---:|" * (3 + len(extra))
    for name in systems:
        summary = results.summary(workload.name, name, workload.figure)
        problem = results.problem(workload.name, name)
        if summary is None:
            yield f"| {name} | {_first_line(problem)} |"
            continue
        cells = [number(summary.median), _spread(summary), compared(results, workload, name)]
        cells += [_cell(results.summary(workload.name, name, figure)) for figure in extra]
        note = f" (one repetition {_first_line(problem)})" if problem else ""
        yield f"| {name}{note} | {' | '.join(cells)} |"
    yield ""


def compared(results: Results, workload: Workload, name: str) -> str:
    """How many times better Tidewheel on the same ground is."""
    ground = str(results.systems[name]["ground"])
    ours = OURS.get(ground, OURS["postgres"])
    mine = results.summary(workload.name, ours, workload.figure)
    theirs = results.summary(workload.name, name, workload.figure)
    if mine is None or theirs is None or name == ours:
        return "–"
    times = ratio(mine.median, theirs.median, higher=workload.higher)
    return "–" if times is None else f"{times:.2f}×"


def _known(results: Results, workload: Workload, name: str) -> bool:
    return any(
        (measurement.workload, measurement.system) == (workload.name, name)
        for measurement in results.measurements
    )


def _cell(summary: Summary | None) -> str:
    return "–" if summary is None else number(summary.median)


def _spread(summary: Summary) -> str:
    return f"{number(summary.lowest)}–{number(summary.highest)}" if summary.repetitions > 1 else "–"


def _first_line(problem: str | None) -> str:
    lines = (problem or "").strip().splitlines() or [""]
    # Of a traceback the last line says what happened.
    return lines[0] if len(lines) == 1 else f"{lines[0][:40]} … {lines[-1][:120]}"


def words(figure: str) -> str:
    """A figure's name as a heading."""
    return (
        figure.replace("_per_second", "/s")
        .replace("_ms", ", ms")
        .replace("_cpu_us", " CPU, µs/job")
        .replace("_percent", ", %")
        .replace("_", " ")
    )


def number(value: float) -> str:
    """With as many digits as mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
