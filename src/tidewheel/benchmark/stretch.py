"""The time one measurement has."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tidewheel.benchmark.figures import Measurement

WATCH_SECONDS: Final = 0.2
"""How often the watcher is told."""

Watcher = Callable[[Measurement, float], None]
"""Told which measurement runs, and how many seconds of the run are over, a few times a second."""


class Stretch:
    """The time one measurement has, counted from ``begin``."""

    def __init__(self, seconds: float, measurement: Measurement, before: float, watch: Watcher) -> None:
        self.seconds = seconds
        self._measurement = measurement
        self._before = before
        self._watch = watch
        self._began = self._watched = time.perf_counter()
        watch(measurement, before)

    def begin(self) -> None:
        """Everything is ready: time counts from now."""
        self._began = time.perf_counter()

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._began

    def over(self) -> bool:
        """Asked between two jobs, where a word to the watcher delays neither."""
        now = time.perf_counter()
        elapsed = now - self._began
        if now - self._watched > WATCH_SECONDS:
            self._watched = now
            self._watch(self._measurement, self._before + min(elapsed, self.seconds))
        return elapsed >= self.seconds
