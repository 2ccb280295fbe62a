"""Where workers elsewhere are served: what one event loop needs for it, next to its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel.pulling.returning import Returning
from tidewheel.remote.housekeeping import Housekeeping
from tidewheel.remote.reserving import Reserving
from tidewheel.remote.room import Room
from tidewheel.remote.step_counts import StepCounts
from tidewheel.remote.store_time import StoreTime

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.stores.protocol import Store


class Desk:
    """Made when the first of them comes."""

    def __init__(self, app: Tidewheel, store: Store) -> None:
        self._returning = Returning(store, app.clock)
        self.room = Room(store, app.settings, app.clock, self._returning)
        self.reserving = Reserving(self.room, store, app.clock, self._returning)
        self.housekeeping = Housekeeping(app)
        self.step_counts = StepCounts(store)
        self.store_time = StoreTime(store, app.clock)

    async def close(self) -> None:
        """Let go, and give back what nobody has seen."""
        await self.housekeeping.close()
        await self.room.close()
        self.reserving.close()
        await self._returning.close()
