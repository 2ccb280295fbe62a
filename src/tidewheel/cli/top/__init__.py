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
from tidewheel.cli.terminal import examples, is_terminal, speaks_unicode
from tidewheel.cli.top.renderer import Canvas, draw
from tidewheel.cli.top.state import View
from tidewheel.cli.top.state_poller import Lookout
from tidewheel.cli.top.styled_text import rendered
from tidewheel.cli.top.terminal_screen import Screen
from tidewheel.core.urls import shown_url
from tidewheel.worker.signals import stop_signals

TICK_SECONDS: Final = 1.0
"""The clock goes on, also when the store says nothing."""
KEY_SECONDS: Final = 0.1
"""How often keys are asked for where they cannot announce themselves (Windows)."""
SHORTEST_FRAME: Final = 0.05
"""Between two frames: who drags a window makes hundreds of sizes a second."""
QUIT: Final = ("q", "Q", "\x03", "\x04")
AGAIN: Final = "\x0c"
"""Ctrl-L."""


async def watch(view: View, lookout: Lookout) -> None:
    """Show the view until q, Ctrl-C or another signal. The terminal is as before when this ends, however."""
    over, news = asyncio.Event(), asyncio.Event()

    def end() -> None:
        over.set()
        news.set()

    screen = Screen()
    # Listening comes first: a signal that arrives while the screen is being taken must find it given back.
    with (
        stop_signals(end, enabled=True),
        _quiet_logs(),
        screen,
        _signals(screen, end, news.set),
        _keys(screen, end, news.set) as polled,
    ):
        looking = asyncio.ensure_future(lookout.run(news.set))
        looking.add_done_callback(lambda _: end())  # with an error, which is raised below
        try:
            await _frames(screen, view, over, news, KEY_SECONDS if polled else TICK_SECONDS, end)
        except OSError:
            pass  # the terminal is gone, and with it everybody who looked
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking


async def _frames(
    screen: Screen, view: View, over: asyncio.Event, news: asyncio.Event, tick: float, end: Callable[[], None]
) -> None:
    colour = "NO_COLOR" not in os.environ
    size = None
    while not over.is_set():
        news.clear()
        if size != (size := screen.size()):
            screen.forget()
        width, height = size
        lines = draw(view, Canvas(width, height, unicode=speaks_unicode()), now=time.monotonic())
        screen.draw([rendered(line, width, colour=colour) for line in lines])
        await asyncio.sleep(SHORTEST_FRAME)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), tick)
        if tick == KEY_SECONDS:
            _heed(screen, end, news.set)


def _heed(screen: Screen, end: Callable[[], None], redraw: Callable[[], None]) -> None:
    try:
        keys = screen.pressed()
    except OSError:
        end()
        return
    if any(key in keys for key in QUIT):
        end()
    elif AGAIN in keys:
        screen.forget()
        redraw()


@contextlib.contextmanager
def _keys(screen: Screen, end: Callable[[], None], redraw: Callable[[], None]) -> Iterator[bool]:
    """Keys are heeded at once; True where the event loop cannot tell that there are any."""
    if screen.keys is None:
        yield False
        return
    loop = asyncio.get_running_loop()
    try:
        loop.add_reader(screen.keys, _heed, screen, end, redraw)
    except (NotImplementedError, OSError):  # Windows; OSError: a descriptor that cannot be polled
        yield True
        return
    try:
        yield False
    finally:
        loop.remove_reader(screen.keys)


@contextlib.contextmanager
def _signals(screen: Screen, end: Callable[[], None], redraw: Callable[[], None]) -> Iterator[None]:
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
    type=formats.Duration(),
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
