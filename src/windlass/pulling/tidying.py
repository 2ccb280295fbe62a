"""For a process that hands jobs out and runs none: somebody has to do what workers do for all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.app import Windlass


async def keep_tidy(app: Windlass) -> None:
    """Bring back jobs of the dead, and remove those that were kept long enough, until cancelled."""
    from windlass.worker.janitor import Janitor
    from windlass.worker.pruner import Pruner
    from windlass.worker.waiting import Recovery

    recovery = Recovery()
    janitor = Janitor(app.store, app.settings.poll_interval, app.clock, recovery)
    # Each by itself: pruning takes its time, and jobs of the dead do not wait for it.
    await asyncio.gather(janitor.run(), Pruner(app.store, app.clock, recovery).run())
