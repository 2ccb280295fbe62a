"""A scratch place in memory: every private store is one."""

from __future__ import annotations

from tidewheel.errors import ConfigurationError
from tidewheel.stores.scratch import Ground


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
