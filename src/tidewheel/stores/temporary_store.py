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

from tidewheel.core.reports import HealthFinding
from tidewheel.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class DatabaseProfile:
    """What jobs stand on there, as far as the store can tell."""

    store: str
    """Name and version: ``PostgreSQL 18.1``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What speed and safety depend on, in the database's own words."""
    health_findings: tuple[HealthFinding, ...] = ()
    """What is not as it should be for a queue that must lose nothing."""
    shared: bool = True
    """Whether other processes can reach it."""
    wakeups: bool = True
    """Whether idle workers are woken; otherwise they find jobs by polling."""


class TemporaryStore(Protocol):
    """One such place. Made and removed by ``make_temporary_store``."""

    url: str
    """For an app of one's own."""
    location: str
    """Where it is, for people."""
    profile: DatabaseProfile

    async def inspect(self) -> None:
        """Find out about the ground, and make nothing."""

    async def create(self) -> None:
        """Make it, and find out about the ground. Raises ``ConfigurationError`` where it may not be made."""

    async def remove(self) -> None:
        """Take away whatever ``create`` and the users of ``url`` left. Harmless when nothing was made."""

    async def measure_round_trip(self) -> float | None:
        """Seconds that one question and its answer take; None where nobody has to be asked."""

    async def measure_commit(self) -> float | None:
        """Seconds that one small durable commit takes; None where nothing is durable."""

    async def inject_fault(self, seconds: float) -> str | None:
        """Make the trouble that befalls a store of this kind, for about so long; what was done, in words.

        None where there is nothing to disturb.
        """


def temporary_name() -> str:
    """A name that nobody has chosen before."""
    return f"tidewheel_scratch_{secrets.token_hex(6)}"


class MemoryTemporaryStore:
    """Jobs that nobody else can see anyway."""

    def __init__(self, url: str) -> None:
        if not url.startswith("memory://"):
            raise ConfigurationError(f"{url!r} is no memory store; use memory:// or memory://name")
        self.url = "memory://"
        self.location = "the memory of this process"
        self.profile = DatabaseProfile("memory", shared=False)

    async def inspect(self) -> None:
        """Nothing to find out."""

    async def create(self) -> None:
        """Nothing to make."""

    async def remove(self) -> None:
        """It goes with the app that used it."""

    async def measure_round_trip(self) -> float | None:
        return None

    async def measure_commit(self) -> float | None:
        return None

    async def inject_fault(self, seconds: float) -> str | None:  # noqa: ARG002 - nobody is in between
        return None
