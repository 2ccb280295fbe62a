"""For a process that hands jobs out and runs none: somebody has to do what workers do for all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.app import Windlass


async def keep_tidy(app: Windlass) -> None:
    """Bring back jobs of the dead, and remove those that were kept long enough, until cancelled."""
    from windlass.worker.janitor import Janitor
    from windlass.worker.waiting import Recovery

    await Janitor(app.store, app.settings.poll_interval, app.clock, Recovery()).run()
