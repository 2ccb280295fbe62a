"""``tidewheel bench``: measure the speed of the queue on this store and machine.

The command shows a progress bar and ends cleanly when it is interrupted. The result is a table, an
explanation of each figure and of the factor that limits it, warnings about suspicious figures, and the
conditions to compare it by.
"""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from tidewheel.__about__ import __version__
from tidewheel.cli import formats
from tidewheel.cli.formats import latency, measured
from tidewheel.cli.signals import cancel_on_signals
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import (
    Cell,
    Column,
    console,
    examples,
    is_terminal,
    json_option,
    print_json,
    print_table,
)
from tidewheel.core.urls import redact_url
from tidewheel.verification.benchmark import (
    BenchmarkReport,
    Measurement,
    MeasurementResult,
    find_warnings,
    run_benchmark,
)

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

DOMINANT_SHARE: Final = 0.5
"""The part of a time from which on it is the reason for it."""


def explain_figures(run: BenchmarkReport) -> list[tuple[str, str]]:
    """Pairs of a name and what to say about it."""
    figures = run.results
    one = figures[Measurement.ENQUEUE_ONE]
    return [
        ("enqueue", _explain_enqueue_one(run, one)),
        ("callers", _explain_callers(run, figures[Measurement.ENQUEUE_CALLERS])),
        ("in bulk", _explain_enqueue_many(figures[Measurement.ENQUEUE_MANY], one)),
        ("worker", _explain_drain(run, figures[Measurement.DRAIN])),
        ("together", _explain_enqueue_and_run(run, figures[Measurement.TOGETHER])),
        ("pick-up", _explain_pick_up(run, figures[Measurement.PICK_UP])),
    ]


def _explain_enqueue_one(run: BenchmarkReport, one: MeasurementResult) -> str:
    rate = measured(one.jobs_per_second)
    said = f"A program that awaits each job before it makes the next gets {rate} a second."
    call = one.p50_seconds or 0.0
    commit = _p50(run, Measurement.COMMIT)
    round_trip = _p50(run, Measurement.ROUND_TRIP) or 0.0
    if commit is None:
        return f"{said} Nothing reaches a disk: this is the processor's work alone."
    if round_trip > DOMINANT_SHARE * call:
        return f"{said} Most of a call is the way to the server and back, {latency(round_trip)}."
    if commit > DOMINANT_SHARE * call:
        return f"{said} Most of a call is waiting for the durable commit, {latency(commit)}."
    return f"{said} The durable commit is {latency(commit)} of a call; the rest is the processors' work."


def _explain_callers(run: BenchmarkReport, callers: MeasurementResult) -> str:
    said = f"With {run.callers} of them at once, as in a web server, "
    rate = measured(callers.jobs_per_second)
    commit = _p50(run, Measurement.COMMIT)
    if commit is None:
        return f"{said}it is {rate} jobs a second. One processor limits this."
    limit = (
        "The disk"
        if commit > DOMINANT_SHARE * (callers.p50_seconds or 0.0)
        else "The processor, not the disk,"
    )
    return (
        f"{said}calls share their commits: {rate} jobs a second, 99 % answered within "
        f"{latency(callers.p99_seconds)}. {limit} limits this."
    )


def _explain_enqueue_many(many: MeasurementResult, one: MeasurementResult) -> str:
    each = _seconds_per_job(many)
    said = f"A job handed over with a thousand others costs {latency(each)}"
    if each is not None and one.p50_seconds is not None and one.p50_seconds > 2 * each:
        said += f", one alone {latency(one.p50_seconds)}: use enqueue_many for imports"
    return said + "."


def _explain_drain(run: BenchmarkReport, drain: MeasurementResult) -> str:
    return (
        f"One worker process runs at most {measured(drain.jobs_per_second)} jobs a second, {run.concurrency} "
        "at "
        f"a time: {latency(_seconds_per_job(drain))} of queueing for each. What your handlers do comes on "
        "top."
    )


def _explain_enqueue_and_run(run: BenchmarkReport, together: MeasurementResult) -> str:
    where = "in another process" if run.ground.shared else "beside them"
    return (
        f"While {run.callers} callers enqueue as fast as they can, one worker {where} completes "
        f"{measured(together.jobs_per_second)} jobs a second; they share processors and store."
    )


def _explain_pick_up(run: BenchmarkReport, pick_up: MeasurementResult) -> str:
    where = "another process" if run.ground.shared else "the same process"
    said = (
        f"An idle worker in {where} begins a job {latency(pick_up.p50_seconds)} after enqueue was called, "
        f"99 % within {latency(pick_up.p99_seconds)}"
    )
    if not run.ground.wakeups:
        return f"{said}: it polls, every {latency(run.poll_interval)} (poll_interval)."
    return f"{said}." if _p50(run, Measurement.COMMIT) is None else f"{said}, the commit included."


def _seconds_per_job(figure: MeasurementResult) -> float | None:
    """Seconds a job took of a whole stretch."""
    return figure.seconds / figure.count if figure.count else None


def _p50(run: BenchmarkReport, measurement: Measurement) -> float | None:
    figure = run.results.get(measurement)
    return None if figure is None else figure.p50_seconds


MAX_LINE_WIDTH: Final = 100
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


def measurement_title(measurement: Measurement) -> str:
    """What is measured, in a few words."""
    return _TITLES[measurement]


def result_json(run: BenchmarkReport, url: str, seconds: float) -> dict[str, Any]:
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
        "measurements": {name.value: asdict(figure) for name, figure in run.results.items()},
        "concerns": find_warnings(run),
    }


def print_result(run: BenchmarkReport, url: str, seconds: float) -> None:
    """The same for people."""
    _print_text(f"{run.ground.store}: {url}", "bold")
    click.echo()
    _print_figures(run.results)
    click.echo()
    _print_pairs(explain_figures(run), "cyan")
    click.echo()
    if found := find_warnings(run):
        _print_pairs([("warning", sentence) for sentence in found], "bold yellow")
        click.echo()
    _print_text(_conditions(run, seconds), "dim")


def _print_figures(figures: Mapping[Measurement, MeasurementResult]) -> None:
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


def _rate_cell(figure: MeasurementResult) -> Cell:
    rate = figure.jobs_per_second
    if rate is None:
        return Cell("")
    return Cell(formats.measured(rate), plain_text=f"{rate:.0f}", style="bold green")


def _time_cell(seconds: float | None) -> Cell:
    if seconds is None:
        return Cell("")
    return Cell(formats.latency(seconds), plain_text=f"{seconds:.6f}")


def _conditions(run: BenchmarkReport, seconds: float) -> str:
    store = [run.ground.store, *(f"{name} {value}" for name, value in run.ground.settings.items())]
    versions = [f"tidewheel {__version__}", f"Python {platform.python_version()}"]
    machine = [f"{platform.system()} {platform.machine()}", formats.plural(run.cores, "core")]
    work = [f"payload {formats.plural(run.payload_bytes, 'byte')}", f"{seconds:g} s"]
    return "; ".join(", ".join(part) for part in (versions, machine, store, work))


def _print_text(text: str, style: str) -> None:
    if not is_terminal():
        click.echo(text)
        return
    from rich.text import Text

    terminal = console()
    terminal.print(Text(text, style=style), width=min(terminal.width, MAX_LINE_WIDTH))


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
    terminal.print(table, width=min(terminal.width, MAX_LINE_WIDTH))


DEFAULT_PAYLOAD: Final = 100


@click.command(
    epilog=examples(
        "tidewheel bench",
        "tidewheel bench --url postgresql://localhost/shop",
        "tidewheel bench --seconds 10 --payload 2000 --json",
    )
)
@click.option(
    "--seconds",
    type=formats.DurationType(),
    default="45s",
    show_default=True,
    metavar="DURATION",
    help="How long to measure, all in all: seconds, or 90s, 2m. The longer, the steadier the figures.",
)
@click.option(
    "--payload",
    type=int,
    default=DEFAULT_PAYLOAD,
    show_default=True,
    metavar="BYTES",
    help="How large a job's payload is, encoded.",
)
@json_option
@target_options
def bench(target: Target, seconds: float, payload: int, as_json: bool) -> None:
    """Measure what the queue can do here, on your store and machine.

    Enqueueing one by one, from 100 callers and in bulk, a worker that empties the queue, both together, and
    how soon an idle worker picks a job up. It works in a place of its own, which goes at the end, also after
    Ctrl-C: on SQLite a file beside yours, on PostgreSQL a schema of the same database. Your jobs are not
    touched, but for this minute they share disk, server and processors with it.
    """
    app = target.load()
    try:
        figures = asyncio.run(_measure(app, seconds, payload))
    except asyncio.CancelledError:
        click.echo("stopped; nothing is left behind", err=True)
        raise click.Abort from None
    url = redact_url(app.settings.url)
    if as_json:
        print_json(result_json(figures, url, seconds))
    else:
        print_result(figures, url, seconds)


async def _measure(app: Tidewheel, seconds: float, payload: int) -> BenchmarkReport:
    with cancel_on_signals(), BenchProgress(seconds) as watch:
        return await run_benchmark(
            app.settings.url,
            seconds=seconds,
            payload_bytes=payload,
            poll_interval=app.settings.poll_interval,
            begun=watch.show_place,
            watch=watch.update,
        )


class BenchProgress:
    """A bar on stderr, or one line where nobody watches.

    Drawn only when told to: a thread that draws ten times a second would be part of what is measured.
    """

    def __init__(self, seconds: float) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._seconds = seconds
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:.0f} of {task.total:.0f} s"),
            console=console(stderr=True),
            transient=True,
            auto_refresh=False,
            disable=not is_terminal(sys.stderr),
        )
        self._row = self._bar.add_task("", total=seconds, visible=False)

    def __enter__(self) -> BenchProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show_place(self, place: str) -> None:
        """Where it works, should anybody wonder what that is, or kill this process outright."""
        click.echo(f"measuring for about {self._seconds:g} s in {place}, which goes at the end", err=True)

    def update(self, measurement: Measurement, seconds: float) -> None:
        self._bar.update(
            self._row,
            description=measurement_title(measurement),
            completed=seconds,
            visible=True,
            refresh=True,
        )
