"""Leases across a time in which nobody could write.

While somebody holds the write lock for long (a handler with a transaction of its own, a program that shares
the file) no lease can be extended, and no job can be taken over either. So a lease that ended meanwhile goes
on for those who had to wait, and what is really orphaned is brought back a moment later, when they have had
time to say that they are there.
"""

from __future__ import annotations

from typing import Final

from windlass.clock import seconds_to_microseconds

LEAST: Final = seconds_to_microseconds(0.2)
"""Shorter waits than this are part of every lease's reckoning."""
AFTERWARDS: Final = seconds_to_microseconds(2.0)
"""How long workers have to extend their leases after a gap; their keepers try at least every second."""
LONGEST: Final = seconds_to_microseconds(60.0)
"""A lease that ended longer ago than this has ended, however hard it was to write meanwhile."""


class Gaps:
    """What one writer knows of the times it had to wait, by the store's clock."""

    def __init__(self) -> None:
        self._began: int | None = None
        self._ended = 0
        self._longest = 0  # of those that followed each other

    def judge(self, asked: int, now: int) -> int:
        """The moment by which leases are judged, for who asked for the lock then and has it now."""
        if now - asked >= LEAST:
            if self._began is None or asked > self._ended + AFTERWARDS:
                self._began, self._longest = asked, 0
            self._longest = max(self._longest, now - asked)
            self._ended = now
        if self._began is None:
            return now
        if now > self._ended + AFTERWARDS:
            self._began = None
            return now
        # However many follow each other: in between the lock was free, and who lives had a turn.
        since = now - min(LONGEST, 2 * self._longest + AFTERWARDS)
        return min(now, max(self._began, since))
