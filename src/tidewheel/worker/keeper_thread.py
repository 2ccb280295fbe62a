"""The thread a keeper runs on, so that no handler can starve it.

Only a C call that never lets go of the interpreter does; tasks like that belong in a process of their own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Protocol

from tidewheel.worker.keeper import Keeper

OnDeath = Callable[[BaseException], None]


class Beside(Protocol):
    """Something that runs beside the worker's event loop: a thread, or what a simulation has for one."""

    def start(self) -> None:
        """Begin."""

    async def join(self) -> None:
        """Wait, without blocking the event loop, until it has ended."""


class KeeperThread:
    """One thread per worker, with an event loop of its own."""

    def __init__(self, keeper: Keeper, on_death: OnDeath) -> None:
        self._keeper = keeper
        self._on_death = on_death
        self._thread = threading.Thread(target=self._run, name="tidewheel-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def join(self) -> None:
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            asyncio.run(self._keeper.run())
        except BaseException as error:  # told to the worker: without its keeper it would lose every lease
            self._on_death(error)
