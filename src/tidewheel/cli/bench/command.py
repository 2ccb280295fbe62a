"""``tidewheel bench``: a minute of measuring, with a bar to watch and a clean end however it comes."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

import click

from tidewheel.benchmark import Figures, Measurement, measure
from tidewheel.cli import words
from tidewheel.cli.bench.result import print_result, result_json, title
from tidewheel.cli.ending import ended_by_signals
from tidewheel.cli.target import Target, target_options
from tidewheel.cli.terminal import console, examples, is_terminal, json_option, print_json
from tidewheel.urls import shown_url

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

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
    type=words.Duration(),
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
    url = shown_url(app.settings.url)
    if as_json:
        print_json(result_json(figures, url, seconds))
    else:
        print_result(figures, url, seconds)


async def _measure(app: Tidewheel, seconds: float, payload: int) -> Figures:
    with ended_by_signals(), Watch(seconds) as watch:
        return await measure(
            app.settings.url,
            seconds=seconds,
            payload_bytes=payload,
            poll_interval=app.settings.poll_interval,
            begun=watch.begun,
            watch=watch.look,
        )


class Watch:
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

    def __enter__(self) -> Watch:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begun(self, place: str) -> None:
        """Where it works, should anybody wonder what that is, or kill this process outright."""
        click.echo(f"measuring for about {self._seconds:g} s in {place}, which goes at the end", err=True)

    def look(self, measurement: Measurement, seconds: float) -> None:
        self._bar.update(
            self._row, description=title(measurement), completed=seconds, visible=True, refresh=True
        )
