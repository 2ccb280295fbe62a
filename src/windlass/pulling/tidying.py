"""For a process that hands jobs out and runs none: somebody has to do what workers do for all."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from windlass.app import Windlass

_FIRST_AFTER: Final = 2.0
"""Seconds. Whoever starts it waits for it to serve, and the worker's modules take a while to import."""


async def keep_tidy(app: Windlass) -> None:
    """Bring back jobs of the dead, and remove those that were kept long enough, until cancelled."""
    await asyncio.sleep(_FIRST_AFTER)
    # On a thread: importing would otherwise hold up everybody who is being served.
    await asyncio.to_thread(import_module, "windlass.worker.janitor")
    from windlass.worker.janitor import Janitor
    from windlass.worker.waiting import Recovery

    await Janitor(app.store, app.settings.poll_interval, app.clock, Recovery()).run()
