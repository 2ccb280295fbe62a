"""Adding up what was appended to the counters: who appends does it, so that reading stays cheap."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidewheel.errors import TidewheelError
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.queries import Queries

FOLD_AFTER: Final = 5_000
"""Jobs this store has written, each write counted as ``WRITE_COUNTS`` more, after which it adds up what was
appended to the counters. A job of a lane of its own is a row, and statistics read a few thousand in 10 ms."""
WRITE_COUNTS: Final = 10

_sql = Queries("tidewheel.stores.postgres.sql", "verbs.sql")
_log = logging.getLogger("tidewheel.postgres")


class Folding:
    """What one store does about it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unfolded = 0
        self.under_way: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self.under_way is not None:
            self.under_way.cancel()  # whoever writes next adds up all

    def wrote(self, jobs: int) -> None:
        """So many jobs, in one write."""
        self._unfolded += jobs + WRITE_COUNTS
        if self._unfolded >= FOLD_AFTER and self.under_way is None:
            self._unfolded = 0
            if not self._database.scoped:  # who sees one tenant leaves it to those who see all
                self.under_way = asyncio.create_task(self._quietly())

    async def fold(self) -> None:
        await self._database.fetch(_sql["fold"])

    async def _quietly(self) -> None:
        try:
            await self.fold()
        except TidewheelError as error:
            _log.debug("counters were not added up: %s", error)  # the next one adds up all
        finally:
            self.under_way = None
