"""Room in topics with limits: other processes are told of it only when nobody here takes it.

Whoever ends a job asks for the next one, and mostly gets it. To tell everybody each time would make a hundred
workers look for one place, which costs the store more than the jobs themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PATIENCE_SECONDS: Final = 0.01
"""How long room is left to those who are here: several times what a claim takes."""


class FreedRoom:
    """What came free and was not taken again, by topic. Moments are monotonic, in seconds."""

    def __init__(self) -> None:
        self._free: dict[str, int] = {}
        self._due: dict[str, float] = {}  # when others are to be told, earliest first

    def change(self, changes: Mapping[str, int], now: float) -> None:
        """So many places of each topic came free, or were taken (less than zero)."""
        for topic, change in changes.items():
            free = self._free.get(topic, 0) + change
            if free > 0:
                self._free[topic] = free
                self._due.setdefault(topic, now + PATIENCE_SECONDS)
            else:
                self._forget(topic)

    def due_in(self, now: float) -> float | None:
        """Seconds until others are to be told; None: there is nothing to tell."""
        return max(0.0, next(iter(self._due.values())) - now) if self._due else None

    def take_due(self, now: float) -> set[str]:
        """Topics of which others are to be told now."""
        if not self._due:
            return set()
        topics = {topic for topic, due in self._due.items() if due <= now}
        for topic in topics:
            self._forget(topic)
        return topics

    def take_all(self) -> set[str]:
        """Topics of which others are to be told because nobody here will take anything any more."""
        topics = set(self._due)
        self._free.clear()
        self._due.clear()
        return topics

    def _forget(self, topic: str) -> None:
        self._free.pop(topic, None)
        self._due.pop(topic, None)
