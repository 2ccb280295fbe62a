"""A place of its own beside the jobs of a URL: empty at first, gone without a trace at the end.

For finding out what a store can do and bear where it really stands, on the same disk or server and with the
same settings, without touching anybody's jobs.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidewheel.findings import Ailment


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
