"""Results as a picture for the README. Needs matplotlib, which comes with the ``bench`` extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures import Summary
from bench.results import Results
from bench.systems import OURS
from bench.table import number
from bench.workloads import BY_NAME

PANELS = ("drain", "enqueue-100", "together")
DEFAULT = Path(__file__).parent.parent / "docs" / "images" / "benchmark.png"

COLOURS = {"ours": "#0f766e", "peer": "#94a3b8"}


def bars(results: Results, workload: str) -> list[tuple[str, Summary]]:
    """The systems that have a figure, best last, as such a chart wants them; no defaults, no baselines."""
    figure, higher = BY_NAME[workload].figure, BY_NAME[workload].higher
    found = [
        (name, summary)
        for name in results.systems
        if ":" not in name
        and not name.startswith(("raw-", "bare-"))
        and (summary := results.summary(workload, name, figure)) is not None
    ]
    return sorted(found, key=lambda bar: bar[1].median, reverse=not higher)


def colour(name: str) -> str:
    return COLOURS["ours" if name.startswith(OURS) else "peer"]


def plot(results: Results, output: Path) -> None:
    """One panel for each workload of ``PANELS`` that was measured."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    panels = [(workload, found) for workload in PANELS if (found := bars(results, workload))]
    if not panels:
        raise ValueError(f"no figures of {', '.join(PANELS)} in these results")
    tallest = max(len(found) for _, found in panels)
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(5.2 * len(panels), 0.8 + 0.32 * tallest), squeeze=False, layout="constrained"
    )
    for axis, (workload, found) in zip(axes[0], panels, strict=True):
        _panel(axis, BY_NAME[workload].title, found)
        axis.set_ylim(len(found) - tallest - 0.5, len(found) - 0.5)  # bars of one height, from the top down
    machine = results.machine
    figure.supxlabel(
        f"jobs per second, median of {results.settings['repeat']}, lines show the spread"
        f" · {machine['cores']} cores, Python {machine['python']}"
        f", PostgreSQL {results.versions.get('postgresql', '–')}, SQLite {machine['sqlite']}"
        f", full durability · {results.started_at[:10]}",
        fontsize=8,
        color="#57534e",
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=160)
    pyplot.close(figure)


def _panel(axis: Any, title: str, found: list[tuple[str, Summary]]) -> None:
    names = [name for name, _ in found]
    medians = [summary.median for _, summary in found]
    spreads = [
        [summary.median - summary.lowest for _, summary in found],
        [summary.highest - summary.median for _, summary in found],
    ]
    axis.barh(
        names, medians, xerr=spreads, color=[colour(name) for name in names], height=0.7, ecolor="#78716c"
    )
    farthest = max(summary.highest for _, summary in found)
    for position, (_, summary) in enumerate(found):
        axis.text(
            summary.highest + 0.015 * farthest, position, number(summary.median), va="center", fontsize=8
        )
    axis.set_xlim(0, 1.18 * farthest)
    axis.set_title(title, fontsize=10, loc="left")
    axis.tick_params(axis="y", length=0, labelsize=9)
    axis.set_xticks([])
    axis.spines[["top", "right", "bottom", "left"]].set_visible(False)
    for label in axis.get_yticklabels():
        if label.get_text().startswith(OURS):
            label.set_fontweight("bold")
