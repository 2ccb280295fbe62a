"""What the log is told of requests that could not be served.

While a store is away everybody asks again and again, hundreds of workers among them: a line for each would
bury the reason, and fill a disk by morning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

TOLD_SECONDS: Final = 10.0
"""After one that was told, those of the same kind are only counted for so long."""

_log = logging.getLogger("windlass.server")


class Outages:
    """The first of each kind, and how many others there were when the next one is told."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._told_at: dict[str, float] = {}  # by kind, of which there are a few
        self._untold: dict[str, int] = {}

    def tell(self, kind: str, error: Exception) -> None:
        now = self._monotonic()
        if now - self._told_at.get(kind, float("-inf")) < TOLD_SECONDS:
            self._untold[kind] = self._untold.get(kind, 0) + 1
            return
        others = self._untold.pop(kind, 0)
        more = f" ({others:,} more since it was last said)" if others else ""
        _log.warning("a request could not be served: %s%s", error, more)
        self._told_at[kind] = now
