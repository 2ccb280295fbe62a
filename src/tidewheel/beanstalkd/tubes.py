"""The tubes that this process knows of: who uses and watches them, and what happened here since its start.

Jobs are in the store, so a tube that nobody refers to may still have some. It is forgotten when somebody
looks and it has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

DEFAULT_TUBE: Final = "default"
MAX_UNUSED_TUBES: Final = 10_000
"""Most tubes whose counters are kept though nobody refers to them."""


@dataclass(slots=True)
class Tube:
    """One of them."""

    name: str
    using: int = 0  # connections
    watching: int = 0
    waiting: int = 0
    total_jobs: int = 0  # put by clients of this process
    deletes: int = 0
    pauses: int = 0
    paused_for: int = 0  # seconds, as last told

    @property
    def in_use(self) -> bool:
        return self.using > 0 or self.watching > 0 or self.name == DEFAULT_TUBE


class Tubes:
    """All of them, in the order in which they came to be known."""

    def __init__(self) -> None:
        self._tubes: dict[str, Tube] = {DEFAULT_TUBE: Tube(DEFAULT_TUBE)}
        self._unreferred: dict[str, None] = {}  # oldest first

    def get(self, name: str) -> Tube | None:
        return self._tubes.get(name)

    def make(self, name: str) -> Tube:
        """The tube of this name."""
        tube = self._tubes.get(name)
        if tube is None:
            tube = self._tubes[name] = Tube(name)
            self._mark_unused(tube)
        return tube

    def use(self, name: str) -> Tube:
        tube = self.make(name)
        tube.using += 1
        self._unreferred.pop(name, None)
        return tube

    def stop_using(self, tube: Tube) -> None:
        """Somebody uses it no longer."""
        tube.using -= 1
        self._mark_unused(tube)

    def watch(self, name: str) -> Tube:
        tube = self.make(name)
        tube.watching += 1
        self._unreferred.pop(name, None)
        return tube

    def stop_watching(self, tube: Tube) -> None:
        """Somebody watches it no longer."""
        tube.watching -= 1
        self._mark_unused(tube)

    def list_existing(self, with_jobs: Iterable[str]) -> list[str]:
        """The names of those that exist, given those that have jobs; the others are forgotten."""
        there = set(with_jobs)
        for name in [name for name in self._unreferred if name not in there]:
            self._forget(name)
        return [*self._tubes, *sorted(there - self._tubes.keys())]

    def exists(self, name: str, *, has_jobs: bool) -> bool:
        """Whether this one does."""
        if has_jobs:
            return True
        if name in self._unreferred:
            self._forget(name)
        return name in self._tubes

    def _mark_unused(self, tube: Tube) -> None:
        if tube.in_use:
            return
        self._unreferred[tube.name] = None
        if len(self._unreferred) > MAX_UNUSED_TUBES:
            self._forget(next(iter(self._unreferred)))

    def _forget(self, name: str) -> None:
        del self._unreferred[name]
        del self._tubes[name]
