"""SIGINT and SIGTERM: the first lets running jobs finish, the second gives them back at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stop_signals(stop: Callable[[], None], *, enabled: bool) -> Iterator[None]:
    """Call ``stop`` for each signal while inside. Only the main thread can listen to signals."""
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        for number in _SIGNALS:
            loop.add_signal_handler(number, stop)
        by_loop = True
    except NotImplementedError:  # Windows
        by_loop = False

        def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature signal wants
            stop()

        for number in _SIGNALS:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number in _SIGNALS:
            if by_loop:
                loop.remove_signal_handler(number)
            signal.signal(number, before[number])
