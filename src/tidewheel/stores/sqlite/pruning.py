"""Removing finished jobs past their keep, and what else is kept for a time only.

Nobody else can write meanwhile, so a call ends after ``LOCK_SECONDS``, whatever is left: it works in small
parts, and looks at the time between them. There is no table to drop in their place: all jobs are in one.
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import accumulate
from typing import Any, Final

from tidewheel.clock import seconds_to_microseconds
from tidewheel.model import State
from tidewheel.stores.protocol import LANE_MINUTES_KEPT_SECONDS, MINUTES_KEPT_SECONDS
from tidewheel.stores.queries import Queries
from tidewheel.stores.sqlite import filing, limiting, registering
from tidewheel.stores.sqlite.removing import remove
from tidewheel.stores.sqlite.transaction import Code, Transaction

LOCK_SECONDS: Final = 0.01
"""After this the next part is left for another call."""
PART: Final = 50
PART_BYTES: Final = 1024 * 1024
"""Of bodies in one part: a large one is a chain of pages, and each is read to be freed."""

_sql = Queries("tidewheel.stores.sqlite.sql", "prune.sql")

_STATES = {Code.COMPLETED: State.COMPLETED, Code.FAILED: State.FAILED, Code.CANCELLED: State.CANCELLED}


def prune(transaction: Transaction, limit: int) -> dict[State, int]:
    until = time.monotonic() + LOCK_SECONDS
    pruned: Counter[State] = Counter()
    left, more = limit, True
    while more and left > 0:
        rows, more = _next(transaction, min(left, PART))
        remove(transaction, rows)
        pruned.update(_STATES[Code(row[1])] for row in rows)
        left -= len(rows)
        if time.monotonic() >= until:
            break
    _forget(transaction, limit)
    if not more:  # it reads all counters, which there may be many of: not with every call of many
        transaction.connection.execute(_sql["forget_counts"])
    return dict(pruned)


def _next(transaction: Transaction, most: int) -> tuple[list[tuple[Any, ...]], bool]:
    """The jobs that are overdue longest, at least one if there is any; whether there are more, perhaps."""
    rows = transaction.connection.execute(_sql["prunable"], (transaction.judged_at, most)).fetchall()
    sizes = accumulate(row[-1] for row in rows)
    fitting = max(1, sum(size <= PART_BYTES for size in sizes))
    return [row[:-1] for row in rows[:fitting]], len(rows) == most or fitting < len(rows)


def _forget(transaction: Transaction, limit: int) -> None:
    connection, now = transaction.connection, transaction.judged_at
    connection.execute(_sql["forget_minutes"], (now - seconds_to_microseconds(MINUTES_KEPT_SECONDS),))
    lanes_before = now - seconds_to_microseconds(LANE_MINUTES_KEPT_SECONDS)
    connection.execute(_sql["forget_lane_minutes"], (lanes_before,))
    registering.forget(transaction)
    filing.forget(transaction, limit)
    limiting.forget_meters(transaction, limit)
