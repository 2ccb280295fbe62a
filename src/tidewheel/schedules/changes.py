"""Who wants to hear, inside this process, that somebody changed a schedule."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Changes:
    """Events of any event loop, set from any thread. A hint: schedulers look now and then in any case."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @contextmanager
    def heard_by(self, event: asyncio.Event) -> Iterator[None]:
        """Set this event of the running loop at every change meanwhile."""
        with self._lock:
            self._heard[event] = asyncio.get_running_loop()
        try:
            yield
        finally:
            with self._lock:
                del self._heard[event]

    def tell(self) -> None:
        with self._lock:
            for event, loop in self._heard.items():
                try:
                    loop.call_soon_threadsafe(event.set)
                except RuntimeError:
                    if not loop.is_closed():  # closed: who listened is gone with it
                        raise
