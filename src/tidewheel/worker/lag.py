"""How late an event loop runs what is ready: the sign of handlers that block it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidewheel.clock import Clock


class LoopLag:
    """Asked from another thread, so that a loop that never answers is known to be late all the same."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], None], clock: Clock) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at: float | None = None  # None: the last question was answered
        self._worst = 0.0

    def ask(self) -> None:
        """Have the loop answer; nothing while an earlier question is open."""
        with self._lock:
            if self._asked_at is not None:
                return
            self._asked_at = self._clock.monotonic()
        self._call_soon(self._answer)

    def silent_seconds(self) -> float:
        """For how long a question has been open."""
        with self._lock:
            return 0.0 if self._asked_at is None else self._clock.monotonic() - self._asked_at

    def take_worst(self) -> float:
        """The longest delay since the last call, in seconds; an open question counts as it stands."""
        with self._lock:
            worst, self._worst = self._worst, 0.0
            return worst if self._asked_at is None else max(worst, self._clock.monotonic() - self._asked_at)

    def _answer(self) -> None:
        with self._lock:
            if self._asked_at is not None:
                self._worst = max(self._worst, self._clock.monotonic() - self._asked_at)
                self._asked_at = None
