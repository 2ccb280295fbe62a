"""The result of a run: a table, what it means, what looks wrong, and what to compare it by."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import click

from tidewheel.__about__ import __version__
from tidewheel.benchmark import Figure, Figures, Measurement, concerns
from tidewheel.cli import words
from tidewheel.cli.bench.meaning import meanings
from tidewheel.cli.terminal import Cell, Column, console, is_terminal, print_table

WIDEST: Final = 100
"""Prose in longer lines is hard to read, whatever the terminal's width."""

_TITLES: Final[Mapping[Measurement, str]] = {
    Measurement.ENQUEUE_ONE: "enqueue, one at a time",
    Measurement.ENQUEUE_CALLERS: "enqueue, 100 callers at once",
    Measurement.ENQUEUE_MANY: "enqueue_many, 1,000 at a time",
    Measurement.DRAIN: "one worker, jobs waiting",
    Measurement.TOGETHER: "one worker, 100 callers at once",
    Measurement.PICK_UP: "pick-up by an idle worker",
    Measurement.ROUND_TRIP: "round trip to the server",
    Measurement.COMMIT: "one durable commit",
}
"""In the order of the table: what lies underneath comes last, though it is measured first."""


def title(measurement: Measurement) -> str:
    """What is measured, in a few words."""
    return _TITLES[measurement]


def result_json(run: Figures, url: str, seconds: float) -> dict[str, Any]:
    """Everything, for programs. Times are in seconds."""
    return {
        "url": url,
        "tidewheel": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": run.cores,
        "load": None if run.load is None else round(run.load, 2),
        "store": run.ground.store,
        "settings": dict(run.ground.settings),
        "seconds": seconds,
        "payload_bytes": run.payload_bytes,
        "callers": run.callers,
        "batch": run.batch,
        "concurrency": run.concurrency,
        "poll_interval": run.poll_interval,
        "measurements": {name.value: asdict(figure) for name, figure in run.figures.items()},
        "concerns": concerns(run),
    }


def print_result(run: Figures, url: str, seconds: float) -> None:
    """The same for people."""
    _say(f"{run.ground.store}: {url}", "bold")
    click.echo()
    _print_figures(run.figures)
    click.echo()
    _print_pairs(meanings(run), "cyan")
    click.echo()
    if found := concerns(run):
        _print_pairs([("warning", sentence) for sentence in found], "bold yellow")
        click.echo()
    _say(_conditions(run, seconds), "dim")


def _print_figures(figures: Mapping[Measurement, Figure]) -> None:
    print_table(
        [Column("measured"), Column("jobs/s", "right"), Column("p50", "right"), Column("p99", "right")],
        (
            [
                Cell(name),
                _rate_cell(figure),
                _time_cell(figure.p50_seconds),
                _time_cell(figure.p99_seconds),
            ]
            for measurement, name in _TITLES.items()
            if (figure := figures.get(measurement)) is not None
        ),
        empty="",
    )


def _rate_cell(figure: Figure) -> Cell:
    rate = figure.jobs_per_second
    if rate is None:
        return Cell("")
    return Cell(words.about(rate), plain=f"{rate:.0f}", style="bold green")


def _time_cell(seconds: float | None) -> Cell:
    if seconds is None:
        return Cell("")
    return Cell(words.latency(seconds), plain=f"{seconds:.6f}")


def _conditions(run: Figures, seconds: float) -> str:
    store = [run.ground.store, *(f"{name} {value}" for name, value in run.ground.settings.items())]
    versions = [f"tidewheel {__version__}", f"Python {platform.python_version()}"]
    machine = [f"{platform.system()} {platform.machine()}", words.plural(run.cores, "core")]
    work = [f"payload {words.plural(run.payload_bytes, 'byte')}", f"{seconds:g} s"]
    return "; ".join(", ".join(part) for part in (versions, machine, store, work))


def _say(text: str, style: str) -> None:
    if not is_terminal():
        click.echo(text)
        return
    from rich.text import Text

    terminal = console()
    terminal.print(Text(text, style=style), width=min(terminal.width, WIDEST))


def _print_pairs(pairs: list[tuple[str, str]], style: str) -> None:
    """Names and sentences, side by side on a terminal."""
    if not is_terminal():
        for name, sentence in pairs:
            click.echo(f"{name}: {sentence}")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, sentence in pairs:
        table.add_row(Text(name, style=style), Text(sentence))
    terminal = console()
    terminal.print(table, width=min(terminal.width, WIDEST))
