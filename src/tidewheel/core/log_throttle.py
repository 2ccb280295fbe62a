"""Limit how often a log repeats itself, so that a client cannot fill the disk by failing in a loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

LOG_REPEAT_SECONDS: Final = 10.0
"""Seconds between two lines of the same kind; lines in between are only counted."""


class ThrottledLog:
    """Write one warning of each kind per ``LOG_REPEAT_SECONDS``, with the number left out since.

    ``kind`` must come from the program, never from a client: each kind is remembered.
    """

    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._written_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def write(self, kind: str, message: str, *values: object) -> None:
        now = self._monotonic()
        if now - self._written_at.get(kind, float("-inf")) < LOG_REPEAT_SECONDS:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._written_at[kind] = now
        others = self._left_out.pop(kind, 0)
        more = f" ({others:,} more like it since the last line)" if others else ""
        self._logger.warning(f"{message}%s", *values, more)
