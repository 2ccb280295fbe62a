"""Removing finished jobs past their keep: a bounded piece of work in each transaction."""

from __future__ import annotations

from typing import Final

from tidewheel.clock import seconds_to_microseconds
from tidewheel.model import State
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.recording import STATES
from tidewheel.stores.protocol import LANE_MINUTES_KEPT_SECONDS, MINUTES_KEPT_SECONDS
from tidewheel.stores.queries import Queries

PRUNE_LOOKED: Final = 20_000
"""Jobs one transaction looks at, most of which may have been requeued or deleted before."""
PRUNE_ROUNDS: Final = 10
"""Transactions of that kind in a call, as long as none of them found a job to remove."""
PRUNES_TOGETHER: Final = 20
"""While every call removes ``limit`` jobs, documents, meters and counters are tidied up in every twentieth.

Vanished workers are removed by each call: they are listed, and other stores do the same.
"""

_sql = Queries("tidewheel.stores.postgres.sql", "verbs.sql")


async def prune(database: Database, limit: int, now: int) -> dict[State, int]:
    """How many of each state were removed."""
    kept = seconds_to_microseconds(MINUTES_KEPT_SECONDS)
    of_lanes = seconds_to_microseconds(LANE_MINUTES_KEPT_SECONDS)
    for _ in range(PRUNE_ROUNDS):
        rows = await database.fetch(_sql["prune"], now, limit, PRUNE_LOOKED, kept, of_lanes)
        pruned = {STATES[state]: n for state, n in rows if state is not None}
        if pruned or not rows:
            break  # otherwise all that it looked at had gone before, and there is more
    return pruned
