"""``tidewheel demo``: a shop's queue at work, for a first look.

One process runs the app, the workers, a producer, the HTTP server and the view, until Ctrl-C or for
``--seconds``. Without ``--url`` the database is a temporary file. The web UI opens in a browser if a person
can see it: on a terminal with a display.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

import click

from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.demo.activity_log import ActivityLog
from tidewheel.cli.demo.demo_server import DemoLogin, DemoServer, open_demo_listener
from tidewheel.cli.demo.job_producer import Producer
from tidewheel.cli.demo.shop_app import WORKER_NAMES, make_shop
from tidewheel.cli.demo.view import WINDOW_SECONDS, print_events, print_summary, show_screen
from tidewheel.cli.serve import DEFAULT_PORT
from tidewheel.cli.terminal import is_terminal, supports_unicode
from tidewheel.core.reports import Stats
from tidewheel.core.urls import redact_url
from tidewheel.worker import Worker
from tidewheel.worker.signals import stop_signals

ViewFunction = Callable[[Tidewheel, ActivityLog, DemoLogin], Coroutine[Any, Any, None]]


async def run_demo(
    url: str, login: DemoLogin, listener: socket.socket, view: ViewFunction, seconds: float | None
) -> tuple[Stats, ActivityLog, float]:
    """For so many seconds, or until a signal; then everything is stopped, and this is what was seen."""
    journal = ActivityLog()
    shop = make_shop(url, journal, login.superuser_setting)
    async with shop.app as app:
        door = DemoServer(app, listener)
        await door.open()
        workers = [app.worker(name=name, handle_signals=False) for name in WORKER_NAMES]
        parts: tuple[DemoServer | Worker, ...] = (door, *workers)
        over = asyncio.Event()

        def stop() -> None:
            """The first signal lets running jobs finish, for two seconds; the second does not."""
            over.set()
            for part in parts:
                part.stop()

        lasting = [asyncio.create_task(part.run()) for part in parts]
        others = [
            asyncio.create_task(Producer(shop, journal).run()),
            asyncio.create_task(view(app, journal, login)),
            asyncio.create_task(over.wait()),
        ]
        with stop_signals(stop, enabled=True):
            try:
                # None of them ends before the signal but with an error, which must be seen.
                await asyncio.wait([*lasting, *others], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            finally:
                lasted = journal.seconds
                for task in others:
                    task.cancel()
                if not over.is_set():
                    stop()
                ended = await asyncio.gather(*lasting, *others, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error
        return await app.stats(WINDOW_SECONDS), journal, lasted


_REMOTE_VARIABLES = ("CI", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
"""Set where nobody sits in front of this machine's screen."""


def should_open_browser(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a person at this machine watches: on a terminal, with a display, with a browser in windows."""
    if not is_terminal() or any(environment.get(name) for name in _REMOTE_VARIABLES):
        return False
    if sys.platform not in {"win32", "darwin"} and not (
        environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    ):
        return False
    try:
        # A browser in the terminal would take the screen that the demo draws on.
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False


def open_browser(url: str) -> None:
    """Open the page, on a thread: some browsers only return when they are closed."""
    threading.Thread(target=webbrowser.open, args=(url,), name="tidewheel-browser", daemon=True).start()


_SILENCED_LOGGERS: Final = ("tidewheel", "uvicorn.error")


@click.command
@click.option(
    "--seconds",
    type=formats.DurationType(),
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
    view = show_screen if is_terminal() and supports_unicode() else print_events
    wanted = should_open_browser() if browser is None else browser
    listener, login = open_demo_listener(port)
    with (
        listener,
        _silence_logs(),
        _temporary_directory() as directory,
    ):
        place = _demo_url(url) if url is not None else _sqlite_url(directory / "demo.db")
        if wanted:
            open_browser(login.url)  # the socket listens already: whoever comes early waits for the answer
        stats, journal, lasted = asyncio.run(run_demo(place, login, listener, view, seconds))
    print_summary(stats, journal, lasted, left_in=None if url is None else redact_url(place))


@contextlib.contextmanager
def _temporary_directory() -> Iterator[Path]:
    """A directory that goes in the end, however often somebody presses Ctrl-C until then."""
    # Windows may hold on to a database file for a moment longer; that must not be the demo's last word.
    made = tempfile.TemporaryDirectory(prefix="tidewheel-demo-", ignore_cleanup_errors=True)
    try:
        yield Path(made.name)
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        made.cleanup()
        signal.signal(signal.SIGINT, before)


def _sqlite_url(path: Path) -> str:
    return f"sqlite:///{quote(path.as_posix(), safe='/:')}"


def _demo_url(url: str) -> str:
    """Where the demo works. Its jobs must not be mixed with those of the application in the same database."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or "schema" in parse_qs(parts.query):
        return url
    return f"{url}{'&' if parts.query else '?'}schema=tidewheel_demo"


@contextlib.contextmanager
def _silence_logs() -> Iterator[None]:
    """Log lines would tear the view; retries and failures are shown there anyway."""
    silent = logging.NullHandler()
    loggers = [logging.getLogger(name) for name in _SILENCED_LOGGERS]
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
