"""``tidewheel demo``: what it can be told, and where it works."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

import click

from tidewheel.cli import words
from tidewheel.cli.demo import browser as browsers
from tidewheel.cli.demo.course import run_demo
from tidewheel.cli.demo.door import listen_here
from tidewheel.cli.demo.summary import print_summary
from tidewheel.cli.demo.view import lines, screen
from tidewheel.cli.serve import DEFAULT_PORT
from tidewheel.cli.terminal import is_terminal, speaks_unicode
from tidewheel.urls import shown_url

_TALKATIVE: Final = ("tidewheel", "uvicorn.error")


@click.command
@click.option(
    "--seconds",
    type=words.Duration(),
    metavar="DURATION",
    help="End by itself after this long: seconds, or 90s, 2m. Default: at Ctrl-C.",
)
@click.option(
    "--url",
    help="Work in this database instead of a throw-away file, and leave the jobs there. "
    "On PostgreSQL they have a schema of their own, tidewheel_demo, unless the URL names one.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="NUMBER",
    help=f"Where the web UI is, on this machine alone. Default: {DEFAULT_PORT}, or any that is free.",
)
@click.option(
    "--browser/--no-browser",
    default=None,
    help="Open the web UI in a browser, or do not. Default: where there is a terminal and a display.",
)
def demo(seconds: float | None, url: str | None, port: int | None, browser: bool | None) -> None:
    """Watch a queue at work, here and in the browser.

    A small shop's work, live: quick emails, payments (some fail for good, some are sent twice), orders in
    steps, webhooks that are retried, reports with progress and a job that runs after them, imports that
    resume from a checkpoint, reminders for later, upkeep by a schedule. The web UI shows all of it; where it
    is and a login made for this run are on the screen.
    Nothing is installed, and without --url nothing is left behind: the database is a throw-away file.
    """
    view = screen if is_terminal() and speaks_unicode() else lines
    wanted = browsers.is_wanted() if browser is None else browser
    listener, login = listen_here(port)
    with (
        listener,
        _no_logs(),
        _throw_away() as directory,
    ):
        place = _place(url) if url is not None else _file(directory / "demo.db")
        if wanted:
            browsers.show(login.url)  # the socket listens already: whoever comes early waits for the answer
        stats, journal, lasted = asyncio.run(run_demo(place, login, listener, view, seconds))
    print_summary(stats, journal, lasted, left_in=None if url is None else shown_url(place))


@contextlib.contextmanager
def _throw_away() -> Iterator[Path]:
    """A directory that goes in the end, however often somebody presses Ctrl-C until then."""
    # Windows may hold on to a database file for a moment longer; that must not be the demo's last word.
    made = tempfile.TemporaryDirectory(prefix="tidewheel-demo-", ignore_cleanup_errors=True)
    try:
        yield Path(made.name)
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        made.cleanup()
        signal.signal(signal.SIGINT, before)


def _file(path: Path) -> str:
    return f"sqlite:///{quote(path.as_posix(), safe='/:')}"


def _place(url: str) -> str:
    """Where the demo works. Its jobs must not be mixed with those of the application in the same database."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or "schema" in parse_qs(parts.query):
        return url
    return f"{url}{'&' if parts.query else '?'}schema=tidewheel_demo"


@contextlib.contextmanager
def _no_logs() -> Iterator[None]:
    """Log lines would tear the view; retries and failures are shown there anyway."""
    silent = logging.NullHandler()
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(silent)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagated in zip(loggers, before, strict=True):
            logger.propagate = propagated
            logger.removeHandler(silent)
