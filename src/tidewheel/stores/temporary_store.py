"""Temporary stores for measurements, beside the jobs of a URL.

A temporary store uses the same disk or server with the same settings, so its figures hold for the real store.
It starts empty, does not touch existing jobs, and is removed completely. In memory, any private store is
temporary.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidewheel.core.reports import Ailment
from tidewheel.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Ground:
    """What jobs stand on there, as far as the store can tell."""

    store: str
    """Name and version: ``PostgreSQL 18.1``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What speed and safety depend on, in the database's own words."""
    doubts: tuple[Ailment, ...] = ()
    """What is not as it should be for a queue that must lose nothing."""
    shared: bool = True
    """Whether other processes can reach it."""
    hints: bool = True
    """Whether idle workers are woken; otherwise they find jobs by polling."""


class Scratch(Protocol):
    """One such place. Made and removed by ``make_scratch``."""

    url: str
    """For an app of one's own."""
    place: str
    """Where it is, for people."""
    ground: Ground

    async def look(self) -> None:
        """Find out about the ground, and make nothing."""

    async def make(self) -> None:
        """Make it, and find out about the ground. Raises ``ConfigurationError`` where it may not be made."""

    async def remove(self) -> None:
        """Take away whatever ``make`` and the users of ``url`` left. Harmless when nothing was made."""

    async def round_trip(self) -> float | None:
        """Seconds that one question and its answer take; None where nobody has to be asked."""

    async def commit(self) -> float | None:
        """Seconds that one small durable commit takes; None where nothing is durable."""

    async def disturb(self, seconds: float) -> str | None:
        """Make the trouble that befalls a store of this kind, for about so long; what was done, in words.

        None where there is nothing to disturb.
        """


def scratch_name() -> str:
    """A name that nobody has chosen before."""
    return f"tidewheel_scratch_{secrets.token_hex(6)}"


class MemoryScratch:
    """Jobs that nobody else can see anyway."""

    def __init__(self, url: str) -> None:
        if not url.startswith("memory://"):
            raise ConfigurationError(f"{url!r} is no memory store; use memory:// or memory://name")
        self.url = "memory://"
        self.place = "the memory of this process"
        self.ground = Ground("memory", shared=False)

    async def look(self) -> None:
        """Nothing to find out."""

    async def make(self) -> None:
        """Nothing to make."""

    async def remove(self) -> None:
        """It goes with the app that used it."""

    async def round_trip(self) -> float | None:
        return None

    async def commit(self) -> float | None:
        return None

    async def disturb(self, seconds: float) -> str | None:  # noqa: ARG002 - nobody is in between
        return None
