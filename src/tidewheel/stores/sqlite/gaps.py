"""Leases across a time in which nobody could write, because a handler's own transaction had the lock.

Meanwhile no lease can be extended, and no job can be taken over either. So a lease that ended in such a gap
goes on for who had to wait, and what is really orphaned is brought back a moment later, when everybody has
had time to say that they are there. Who made the gap writes it down, for all processes that share the file;
it is read only where a lease may have ended.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from tidewheel.clock import seconds_to_microseconds
from tidewheel.stores.queries import Queries

LEAST: Final = seconds_to_microseconds(0.2)
"""Shorter transactions than this are part of every lease's reckoning."""
AFTERWARDS: Final = seconds_to_microseconds(2.0)
"""How long workers have to extend their leases after a gap; their keepers try at least every second."""
LONGEST: Final = seconds_to_microseconds(60.0)
"""A lease that ended longer ago than this has ended, however hard it was to write meanwhile."""

_sql = Queries("tidewheel.stores.sqlite.sql", "tally.sql")


def remember(connection: sqlite3.Connection, began: int, ended: int) -> None:
    """Write a gap down, in the transaction at hand. Those that follow each other are one."""
    if ended - began < LEAST:
        return
    before = connection.execute(_sql["last_gap"]).fetchone()
    if before[1] is not None and before[1] <= began <= before[1] + AFTERWARDS:
        # Not without end: in between the lock was free, and who lives had a turn.
        began = max(before[0], ended - 2 * (ended - began) - AFTERWARDS)
    connection.execute(_sql["remember_gap"], (began, ended))


def leases_judged_at(connection: sqlite3.Connection, now: int) -> int:
    """The moment by which leases are judged: now, or soon after a gap when that began."""
    began, ended = connection.execute(_sql["last_gap"]).fetchone()
    if ended is None or not ended <= now <= ended + AFTERWARDS:
        return now
    return min(now, max(int(began), now - LONGEST))
