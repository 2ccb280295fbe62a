"""The two ways to watch: a live screen on a terminal, lines for pipes and logs."""

from __future__ import annotations

import asyncio
from typing import Final

import click

from tidewheel.__about__ import __version__
from tidewheel.app import Tidewheel
from tidewheel.cli.demo.door import Login
from tidewheel.cli.demo.journal import Event, Journal
from tidewheel.cli.demo.tasks import CONCURRENCY, WORKERS
from tidewheel.cli.terminal import console

FRAME_SECONDS: Final = 0.125
LINE_SECONDS: Final = 0.1
WINDOW_SECONDS: Final = 3600.0


async def screen(app: Tidewheel, journal: Journal, login: Login) -> None:
    """The live view, on the terminal's other screen: what was there before comes back afterwards."""
    from rich.live import Live

    from tidewheel.cli.demo.screen import Screen

    terminal = console()
    shown = Screen(journal, login, __version__, CONCURRENCY * len(WORKERS))
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        while True:
            shown.measure(await app.stats(WINDOW_SECONDS))
            live.update(shown.render(terminal.width, terminal.height), refresh=True)
            await asyncio.sleep(FRAME_SECONDS)


async def lines(app: Tidewheel, journal: Journal, login: Login) -> None:  # noqa: ARG001 - the shape of screen
    """Where the UI is, then one line for each event."""

    def say(events: list[Event]) -> None:
        for event in events:
            click.echo(f"{event.at:6.1f}s  {event.kind:9}  {event.topic:9}  {event}")

    click.echo(f"The web UI is at {login.url}")
    click.echo(f"  name      {login.name}\n  password  {login.password}")
    try:
        while True:
            say(journal.news())
            await asyncio.sleep(LINE_SECONDS)
    finally:
        say(journal.news(everything=True))
