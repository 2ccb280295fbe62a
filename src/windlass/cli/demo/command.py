"""``windlass demo``: an app, a producer, a worker and a view in one process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

import click

from windlass.__about__ import __version__
from windlass.app import Windlass
from windlass.cli import words
from windlass.cli.demo.journal import Event, Journal
from windlass.cli.demo.producer import Producer
from windlass.cli.demo.summary import print_summary
from windlass.cli.demo.tasks import CONCURRENCY, make_shop
from windlass.cli.terminal import console, is_terminal, speaks_unicode
from windlass.model import Stats
from windlass.urls import shown_url

FRAME_SECONDS: Final = 0.125
LINE_SECONDS: Final = 0.1
WINDOW_SECONDS: Final = 3600.0

View = Callable[[Windlass, Journal], Coroutine[Any, Any, None]]


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
    "On PostgreSQL they have a schema of their own, windlass_demo, unless the URL names one.",
)
def demo(seconds: float | None, url: str | None) -> None:
    """Watch a queue at work, on a throw-away database.

    A small shop's work, live: quick emails, payments (some fail for good, some are sent twice), webhooks
    that are retried, reports with progress, imports that resume from a checkpoint, reminders for later.
    Nothing is installed, and without --url nothing is left behind.
    """
    view = _screen if is_terminal() and speaks_unicode() else _lines
    with (
        _no_logs(),
        # Windows may hold on to a database file for a moment longer; that must not be the demo's last word.
        tempfile.TemporaryDirectory(prefix="windlass-demo-", ignore_cleanup_errors=True) as directory,
    ):
        place = _place(url) if url is not None else _file(Path(directory, "demo.db"))
        stats, journal, lasted = asyncio.run(_run(place, seconds, view))
    print_summary(stats, journal, lasted, left_in=None if url is None else shown_url(place))


def _file(path: Path) -> str:
    return f"sqlite:///{quote(path.as_posix(), safe='/:')}"


def _place(url: str) -> str:
    """Where the demo works. Its jobs must not be mixed with those of the application in the same database."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or "schema" in parse_qs(parts.query):
        return url
    return f"{url}{'&' if parts.query else '?'}schema=windlass_demo"


async def _run(url: str, seconds: float | None, view: View) -> tuple[Stats, Journal, float]:
    journal = Journal()
    shop = make_shop(url, journal)
    async with shop.app as app:
        worker = app.worker(name="demo")
        working = asyncio.create_task(worker.run())
        others = {
            asyncio.create_task(Producer(shop, journal).run()),
            asyncio.create_task(view(app, journal)),
        }
        try:
            # The worker ends by itself at Ctrl-C; the others only end with an error, which must be seen.
            await asyncio.wait({working, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lasted = journal.seconds
            for task in others:
                task.cancel()
            worker.stop()
            ended = await asyncio.gather(working, *others, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error
        return await app.stats(WINDOW_SECONDS), journal, lasted


async def _screen(app: Windlass, journal: Journal) -> None:
    """The live view, on the terminal's other screen: what was there before comes back afterwards."""
    from rich.live import Live

    from windlass.cli.demo.screen import Screen

    terminal = console()
    screen = Screen(journal, __version__, CONCURRENCY)
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        while True:
            screen.measure(await app.stats(WINDOW_SECONDS))
            live.update(screen.render(terminal.width, terminal.height), refresh=True)
            await asyncio.sleep(FRAME_SECONDS)


async def _lines(app: Windlass, journal: Journal) -> None:  # noqa: ARG001 - the same shape as _screen
    """One line for each event, for pipes and logs."""

    def say(events: list[Event]) -> None:
        for event in events:
            click.echo(f"{event.at:6.1f}s  {event.kind:9}  {event.topic:9}  {event}")

    try:
        while True:
            say(journal.news())
            await asyncio.sleep(LINE_SECONDS)
    finally:
        say(journal.news(everything=True))


@contextlib.contextmanager
def _no_logs() -> Iterator[None]:
    """The worker's log lines would tear the view; retries and failures are shown there anyway."""
    logger = logging.getLogger("windlass")
    before = logger.propagate
    silent = logging.NullHandler()
    logger.addHandler(silent)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(silent)
