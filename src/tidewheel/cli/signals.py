"""Ending a command that works for a minute and has to clear away what it made."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator

from tidewheel.worker.signals import stop_signals


@contextlib.contextmanager
def cancel_on_signals() -> Iterator[None]:
    """The first signal cancels the running task. Those after it do nothing: by then it is clearing away."""
    running = asyncio.current_task()
    ending = False

    def end() -> None:
        nonlocal ending
        if running is not None and not ending:
            ending = True
            running.cancel()

    loop = asyncio.get_running_loop()
    hang_up = getattr(signal, "SIGHUP", None)  # the terminal's window was closed; not on Windows
    if hang_up is not None and signal.getsignal(hang_up) is signal.SIG_IGN:
        hang_up = None  # nohup: whoever started it wants it to go on
    with stop_signals(end, enabled=True):
        if hang_up is not None:
            loop.add_signal_handler(hang_up, end)
        try:
            yield
        finally:
            if hang_up is not None:
                loop.remove_signal_handler(hang_up)
