"""``tidewheel top``."""

from __future__ import annotations

import shutil
import time
from typing import Final

import click

from tidewheel.app import Tidewheel
from tidewheel.cli import words
from tidewheel.cli.target import Target, target_options
from tidewheel.cli.terminal import examples, is_terminal, speaks_unicode
from tidewheel.cli.top.drawing import Canvas, draw
from tidewheel.cli.top.lines import rendered
from tidewheel.cli.top.looking import Lookout
from tidewheel.cli.top.view import View
from tidewheel.cli.top.watching import watch
from tidewheel.urls import shown_url

FASTEST: Final = 0.2
SLOWEST: Final = 3600.0
IN_A_PIPE: Final = (120, 24)
"""Columns of plain text that nobody's terminal limits, unless $COLUMNS does."""


@click.command(
    epilog=examples(
        "tidewheel top",
        "tidewheel top --every 5s --url postgresql://localhost/shop",
        "tidewheel top --once | mail -s queue operator",
    )
)
@click.option(
    "--every",
    type=words.Duration(),
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="How often to look: seconds, or 500ms, 5s; at least 200ms.",
)
@click.option(
    "--once", is_flag=True, help="Print what is there as plain text, and end. So it does in a pipe."
)
@click.option("--tenant", metavar="NAME", help="Only jobs of this tenant.")
@target_options
@click.pass_context
def top(ctx: click.Context, target: Target, every: float, once: bool, tenant: str | None) -> None:
    """Watch the queue live: topics, rates, running jobs, failures.

    q and Ctrl-C quit, Ctrl-L draws anew. What needs attention is said above; tidewheel why says what to do
    about it. While the store is away the last figures stay, and the last line says since when.
    """
    if not FASTEST <= every <= SLOWEST:
        raise click.BadParameter(
            f"{every:g} s is out of range; give {FASTEST:g} s to {SLOWEST:g} s", ctx, param_hint="--every"
        )

    async def look(app: Tidewheel) -> View:
        view = View(shown_url(app.settings.url), _store_name(app), every)
        lookout = Lookout(app, view, tenant)
        if once or not is_terminal():
            await lookout.once()
        else:
            await watch(view, lookout)
        return view

    view = target.run(look)
    if once or not is_terminal():
        canvas = Canvas(shutil.get_terminal_size(IN_A_PIPE).columns, None, unicode=speaks_unicode())
        for line in draw(view, canvas, now=time.monotonic()):
            click.echo(rendered(line, canvas.width, colour=False).rstrip())


def _store_name(app: Tidewheel) -> str:
    about = app.describe()
    return f"{about['store']} {about.get(about['store'], '')}".strip()
