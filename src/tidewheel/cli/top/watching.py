"""The live view, from the first frame until somebody has seen enough."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final

from tidewheel.cli.terminal import speaks_unicode
from tidewheel.cli.top.drawing import Canvas, draw
from tidewheel.cli.top.lines import rendered
from tidewheel.cli.top.looking import Lookout
from tidewheel.cli.top.screen import Screen
from tidewheel.cli.top.view import View
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
