"""Going on with jobs whose parents have ended, where one transaction was not enough for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from tidewheel.errors import TidewheelError
from tidewheel.stores.postgres import depending
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.depending import Freed
from tidewheel.stores.postgres.marks import ANYWHERE

RELEASES_A_RESCUE: Final = 10
MOST_RELEASES: Final = 1000
"""Transactions in which a rescue, or who has ended a job, goes on with those that waited for it."""

_log = logging.getLogger("tidewheel.postgres")


class Releasing:
    """What one store does about it. ``ready`` and ``finished`` tell those who wait for either."""

    def __init__(
        self, database: Database, ready: Callable[[Mapping[str, int]], None], finished: Callable[[], None]
    ) -> None:
        self._database = database
        self._ready = ready
        self._finished = finished
        self._task: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()  # the next rescue goes on

    def after(self, freed: Freed) -> None:
        """Of jobs that waited for those that ended. Nobody waits for what is left to do about them."""
        self._ready(dict.fromkeys(freed.topics, ANYWHERE))
        if freed.unfinished and self._task is None and not self._database.scoped:
            self._task = asyncio.create_task(self._quietly())

    async def done(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def go_on(self, most: int) -> bool:
        """In so many transactions; whether there is more to do."""
        if self._database.scoped:
            return False  # who sees one tenant leaves it to those who see all
        for _ in range(most):
            freed = await depending.go_on(self._database)
            self._ready(dict.fromkeys(freed.topics, ANYWHERE))
            if not freed.unfinished:
                return False
            self._finished()
        return True

    async def _quietly(self) -> None:
        try:
            await self.go_on(MOST_RELEASES)
        except TidewheelError as error:
            _log.debug("jobs that wait for others were left to the next rescue: %s", error)
        finally:
            self._task = None
