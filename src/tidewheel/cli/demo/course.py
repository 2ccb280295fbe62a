"""The demo's course: app, workers, producer, server and view in one process, until it is over."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from tidewheel.app import Tidewheel
from tidewheel.cli.demo.door import Door, Login
from tidewheel.cli.demo.journal import Journal
from tidewheel.cli.demo.producer import Producer
from tidewheel.cli.demo.tasks import WORKERS, make_shop
from tidewheel.cli.demo.view import WINDOW_SECONDS
from tidewheel.model import Stats
from tidewheel.worker import Worker
from tidewheel.worker.signals import stop_signals

View = Callable[[Tidewheel, Journal, Login], Coroutine[Any, Any, None]]


async def run_demo(
    url: str, login: Login, listener: socket.socket, view: View, seconds: float | None
) -> tuple[Stats, Journal, float]:
    """For so many seconds, or until a signal; then everything is stopped, and this is what was seen."""
    journal = Journal()
    shop = make_shop(url, journal, login.superuser)
    async with shop.app as app:
        door = Door(app, listener)
        await door.open()
        workers = [app.worker(name=name, handle_signals=False) for name in WORKERS]
        parts: tuple[Door | Worker, ...] = (door, *workers)
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
