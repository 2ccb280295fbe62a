"""Upkeep of a store by any process that keeps it open: jobs of the dead come back, old jobs are removed.

Once a minute, from the first minute on: a short script does nothing. A look that finds nothing costs two
statements. A backlog is worked off by one process of all (see ``Pruner``), so it does not matter how many
processes look. Workers rescue more often by themselves, and so do servers that hand jobs out.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tidewheel.clock import Clock
from tidewheel.errors import StoreError
from tidewheel.jitter import jitter
from tidewheel.stores.protocol import Store

if TYPE_CHECKING:
    from tidewheel.telemetry.telemetry import Telemetry

LOOK_SECONDS: Final = 60.0

_log = logging.getLogger("tidewheel.maintenance")


class Maintenance:
    """The upkeep that one event loop does for its store."""

    def __init__(self, store: Store, clock: Clock, telemetry: Telemetry, seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._telemetry = telemetry
        self._seconds = seconds
        # A timer between two looks, and not a task: an event loop may end without a word.
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._failing = False
        self.start()

    def start(self) -> None:
        """Look in a minute or so; not all processes at once."""
        seconds = self._seconds * jitter(0.75, 1.25)
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    async def close(self) -> None:
        """End it, in the middle of a backlog if need be."""
        if self._timer is not None:
            self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))

    def _begin(self) -> None:
        self._looking = asyncio.get_running_loop().create_task(self._look(), name="tidewheel-maintenance")

    async def _look(self) -> None:
        from tidewheel.worker.observers import Observers
        from tidewheel.worker.pruner import Pruner

        pruner = Pruner(self._store, self._clock, Observers(None, self._telemetry.metrics, self._clock))
        try:
            await self._store.rescue()
            await pruner.work_off()
        except StoreError as error:
            if error.lacks_rights:
                _log.debug("this role may not rescue and prune, and leaves it to others: %s", error)
                return
            if not self._failing:
                _log.warning("rescuing and pruning failed, trying again in a minute: %s", error)
            self._failing = True
        except Exception:
            # A bug must not end the upkeep of this process: without it the store grows for ever.
            _log.exception("rescuing and pruning failed, trying again in a minute")
        else:
            self._failing = False
        self.start()
