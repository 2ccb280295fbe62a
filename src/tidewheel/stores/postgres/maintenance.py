"""Background work in bounded transactions: release dependents, roll up counters, prune finished jobs.

``DeferredReleases`` continues with the dependents of ended jobs if one transaction was not enough.
``CounterRollup`` adds up appended counter rows: the store that appends them does it, after about 5,000 jobs,
so that statistics stay cheap to read. ``prune`` removes finished jobs past their retention; a transaction
looks at up to 20,000.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import State
from tidewheel.errors import TidewheelError
from tidewheel.stores.bounds import LANE_MINUTES_KEPT_SECONDS, MINUTES_KEPT_SECONDS
from tidewheel.stores.postgres import dependencies
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.dependencies import ReleaseResult
from tidewheel.stores.postgres.row_mapping import STATES
from tidewheel.stores.postgres.wakeups import ANY_NUMBER
from tidewheel.stores.sql_files import SqlFile

RELEASES_PER_RESCUE: Final = 10
MAX_RELEASES: Final = 1000
"""Transactions in which a rescue, or who has ended a job, goes on with those that waited for it."""

_log = logging.getLogger("tidewheel.postgres")


class DeferredReleases:
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

    def schedule(self, released: ReleaseResult) -> None:
        """Of jobs that waited for those that ended. Nobody waits for what is left to do about them."""
        self._ready(dict.fromkeys(released.topics, ANY_NUMBER))
        if released.unfinished and self._task is None and not self._database.sees_one_tenant:
            self._task = asyncio.create_task(self._run_in_background())

    async def wait(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def run(self, most: int) -> bool:
        """In so many transactions; whether there is more to do."""
        if self._database.sees_one_tenant:
            return False  # who sees one tenant leaves it to those who see all
        for _ in range(most):
            freed = await dependencies.release_dependents(self._database)
            self._ready(dict.fromkeys(freed.topics, ANY_NUMBER))
            if not freed.unfinished:
                return False
            self._finished()
        return True

    async def _run_in_background(self) -> None:
        try:
            await self.run(MAX_RELEASES)
        except TidewheelError as error:
            _log.debug("jobs that wait for others were left to the next rescue: %s", error)
        finally:
            self._task = None


ROLLUP_AFTER_JOBS: Final = 5_000
"""Jobs this store has written, each write counted as ``ROLLUP_WEIGHT_OF_WRITE`` more, after which it adds up
what was appended to the counters. A job of a lane of its own is a row, and statistics read a few thousand in
10 ms."""
ROLLUP_WEIGHT_OF_WRITE: Final = 10

_sql = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")


class CounterRollup:
    """What one store does about it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._written_since_rollup = 0
        self.running: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self.running is not None:
            self.running.cancel()  # whoever writes next adds up all

    def count_written(self, jobs: int) -> None:
        """So many jobs, in one write."""
        self._written_since_rollup += jobs + ROLLUP_WEIGHT_OF_WRITE
        if self._written_since_rollup >= ROLLUP_AFTER_JOBS and self.running is None:
            self._written_since_rollup = 0
            if not self._database.sees_one_tenant:  # who sees one tenant leaves it to those who see all
                self.running = asyncio.create_task(self._run_in_background())

    async def run(self) -> None:
        await self._database.fetch(_sql["roll_up_counters"])

    async def _run_in_background(self) -> None:
        try:
            await self.run()
        except TidewheelError as error:
            _log.debug("counters were not added up: %s", error)  # the next one adds up all
        finally:
            self.running = None


MAX_SCANNED_PER_PRUNE: Final = 20_000
"""Jobs one transaction looks at, most of which may have been requeued or deleted before."""
MAX_PRUNE_ROUNDS: Final = 10
"""Transactions of that kind in a call, as long as none of them found a job to remove."""
PRUNES_PER_CLEANUP: Final = 20
"""While every call removes ``limit`` jobs, documents, meters and counters are tidied up in every twentieth.

Vanished workers are removed by each call: they are listed, and other stores do the same.
"""


async def prune(database: Database, limit: int, now: int) -> dict[State, int]:
    """How many of each state were removed."""
    kept = seconds_to_microseconds(MINUTES_KEPT_SECONDS)
    of_lanes = seconds_to_microseconds(LANE_MINUTES_KEPT_SECONDS)
    for _ in range(MAX_PRUNE_ROUNDS):
        rows = await database.fetch(_sql["prune"], now, limit, MAX_SCANNED_PER_PRUNE, kept, of_lanes)
        pruned = {STATES[state]: n for state, n in rows if state is not None}
        if pruned or not rows:
            break  # otherwise all that it looked at had gone before, and there is more
    return pruned
