"""``tidewheel top``: a live view of a queue on a terminal.

The command draws frames until q, Ctrl-C or a signal ends it, then restores the terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final

import click

from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import examples, is_terminal, supports_unicode
from tidewheel.cli.top.renderer import Canvas, render
from tidewheel.cli.top.state import TopState
from tidewheel.cli.top.state_poller import StatePoller
from tidewheel.cli.top.styled_text import render_line
from tidewheel.cli.top.terminal_screen import TerminalScreen
from tidewheel.core.urls import redact_url
from tidewheel.worker.signals import stop_signals

TICK_SECONDS: Final = 1.0
"""The clock goes on, also when the store says nothing."""
KEY_POLL_SECONDS: Final = 0.1
"""How often keys are asked for where they cannot announce themselves (Windows)."""
MIN_FRAME_SECONDS: Final = 0.05
"""Between two frames: who drags a window makes hundreds of sizes a second."""
QUIT_KEYS: Final = ("q", "Q", "\x03", "\x04")
REDRAW_KEY: Final = "\x0c"
"""Ctrl-L."""


async def run_live_view(state: TopState, poller: StatePoller) -> None:
    """Show the view until q, Ctrl-C or another signal. The terminal is as before when this ends, however."""
    over, news = asyncio.Event(), asyncio.Event()

    def end() -> None:
        over.set()
        news.set()

    screen = TerminalScreen()
    # Listening comes first: a signal that arrives while the screen is being taken must find it given back.
    with (
        stop_signals(end, enabled=True),
        _quiet_logs(),
        screen,
        _handle_signals(screen, end, news.set),
        _listen_for_keys(screen, end, news.set) as polled,
    ):
        looking = asyncio.ensure_future(poller.run(news.set))
        looking.add_done_callback(lambda _: end())  # with an error, which is raised below
        try:
            await _frames(screen, state, over, news, KEY_POLL_SECONDS if polled else TICK_SECONDS, end)
        except OSError:
            pass  # the terminal is gone, and with it everybody who looked
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking


async def _frames(
    screen: TerminalScreen,
    state: TopState,
    over: asyncio.Event,
    news: asyncio.Event,
    tick: float,
    end: Callable[[], None],
) -> None:
    colour = "NO_COLOR" not in os.environ
    size = None
    while not over.is_set():
        news.clear()
        if size != (size := screen.size()):
            screen.invalidate()
        width, height = size
        lines = render(state, Canvas(width, height, unicode=supports_unicode()), now=time.monotonic())
        screen.draw([render_line(line, width, colour=colour) for line in lines])
        await asyncio.sleep(MIN_FRAME_SECONDS)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), tick)
        if tick == KEY_POLL_SECONDS:
            _handle_keys(screen, end, news.set)


def _handle_keys(screen: TerminalScreen, end: Callable[[], None], redraw: Callable[[], None]) -> None:
    try:
        keys = screen.read_keys()
    except OSError:
        end()
        return
    if any(key in keys for key in QUIT_KEYS):
        end()
    elif REDRAW_KEY in keys:
        screen.invalidate()
        redraw()


@contextlib.contextmanager
def _listen_for_keys(
    screen: TerminalScreen, end: Callable[[], None], redraw: Callable[[], None]
) -> Iterator[bool]:
    """Keys are heeded at once; True where the event loop cannot tell that there are any."""
    if screen.key_descriptor is None:
        yield False
        return
    loop = asyncio.get_running_loop()
    try:
        loop.add_reader(screen.key_descriptor, _handle_keys, screen, end, redraw)
    except (NotImplementedError, OSError):  # Windows; OSError: a descriptor that cannot be polled
        yield True
        return
    try:
        yield False
    finally:
        loop.remove_reader(screen.key_descriptor)


@contextlib.contextmanager
def _handle_signals(
    screen: TerminalScreen, end: Callable[[], None], redraw: Callable[[], None]
) -> Iterator[None]:
    """A closed window and SIGQUIT end it, a new size is drawn, Ctrl-Z gives the terminal back meanwhile."""
    loop = asyncio.get_running_loop()

    def stop_for_a_while() -> None:
        screen.leave()
        loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here we are again, in the foreground.
        loop.add_signal_handler(signal.SIGTSTP, stop_for_a_while)
        screen.enter()
        redraw()

    wanted = {"SIGHUP": end, "SIGQUIT": end, "SIGWINCH": redraw, "SIGTSTP": stop_for_a_while}
    numbers = {getattr(signal, name): call for name, call in wanted.items() if hasattr(signal, name)}
    for number, call in numbers.items():
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _quiet_logs() -> Iterator[None]:
    """What has no handler would go to stderr, which is this screen; what it is about is in the last line."""
    handler = logging.NullHandler()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


MIN_EVERY_SECONDS: Final = 0.2
MAX_EVERY_SECONDS: Final = 3600.0
PIPE_SIZE: Final = (120, 24)
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
    type=formats.DurationType(),
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
    if not MIN_EVERY_SECONDS <= every <= MAX_EVERY_SECONDS:
        raise click.BadParameter(
            f"{every:g} s is out of range; give {MIN_EVERY_SECONDS:g} s to {MAX_EVERY_SECONDS:g} s",
            ctx,
            param_hint="--every",
        )

    async def look(app: Tidewheel) -> TopState:
        view = TopState(redact_url(app.settings.url), _store_name(app), every)
        lookout = StatePoller(app, view, tenant)
        if once or not is_terminal():
            await lookout.poll_once()
        else:
            await run_live_view(view, lookout)
        return view

    view = target.run(look)
    if once or not is_terminal():
        canvas = Canvas(shutil.get_terminal_size(PIPE_SIZE).columns, None, unicode=supports_unicode())
        for line in render(view, canvas, now=time.monotonic()):
            click.echo(render_line(line, canvas.width, colour=False).rstrip())


def _store_name(app: Tidewheel) -> str:
    about = app.describe()
    return f"{about['store']} {about.get(about['store'], '')}".strip()
