"""Worker health, judged from the worker's own state without a call to the store.

``LoopLag`` measures how late the event loop runs callbacks that are ready: a long delay means that a handler
blocks the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from tidewheel.core.clock import Clock
from tidewheel.telemetry.metric_gauges import QueueFigures

BLOCKED_SECONDS: Final = 10.0
"""An event loop that has been silent for so long starts and ends nothing: the worker is not ready."""
HUNG_SECONDS: Final = 600.0
"""So long, and only a new process helps. A worker gets rid of a handler that blocks its loop past the default
timeout by itself, and that must have had its time."""
CLAIM_PATIENCE_SECONDS: Final = 15.0
"""How much later than the poll interval the answer to a claim may come, before claims count as stopped."""


class WorkerHealth(Struct, frozen=True, kw_only=True):
    """One look at a worker. Plain data: it is sent to another process, and shown as JSON."""

    name: str
    status: str
    """``starting``, ``working``, ``stopping``, or ``making way`` with half its slots stuck."""
    alive: bool
    """False: nothing but a new process helps."""
    ready: bool
    """Whether it takes jobs and reaches its store."""
    reasons: tuple[str, ...] = ()
    """Why it is not alive or not ready, for people."""
    store: bool = False
    """Whether the store answered when it was last spoken with."""
    last_claim_seconds: float | None = None
    """Since the store last answered a claim; none before the first."""
    concurrency: int = 0
    running: int = 0
    stuck: int = 0
    loop_lag_seconds: float = 0.0
    """For how long the event loop has owed an answer."""
    ran: int = 0
    failing: bool = False
    """Whether a part that speaks with the store did not get through when it last tried."""
    queue: QueueFigures | None = None
    """None without metrics, and before the first look."""


def starting(name: str) -> WorkerHealth:
    """Of a worker that waits for its store, or is just being made."""
    return WorkerHealth(
        name=name, status="starting", alive=True, ready=False, reasons=("the store is not open yet",)
    )


def judge(
    *,
    name: str,
    stopping: bool,
    worn: bool,
    failing: bool,
    claimed_ago: float | None,
    full: bool,
    poll_interval: float,
    concurrency: int,
    running: int,
    stuck: int,
    silent: float,
    ran: int,
    queue: QueueFigures | None = None,
) -> WorkerHealth:
    """What follows from what a worker sees. ``full``: it has all the jobs it wants, and so claims none."""
    reasons = []
    if silent >= HUNG_SECONDS:
        reasons.append(f"the event loop has been blocked for {silent:.0f} s")
    elif silent >= BLOCKED_SECONDS:
        reasons.append(f"a handler blocks the event loop, for {silent:.0f} s by now")
    if failing:
        reasons.append("the store does not answer")
    if worn:
        reasons.append("half the slots are stuck")
    elif stopping:
        reasons.append("it was asked to stop")
    longest = 1.25 * poll_interval + CLAIM_PATIENCE_SECONDS
    if not reasons and not full and (claimed_ago is None or claimed_ago > longest):
        reasons.append(
            "no claim was answered yet" if claimed_ago is None else f"no claim for {claimed_ago:.0f} s"
        )
    return WorkerHealth(
        name=name,
        status="making way" if worn else "stopping" if stopping else "working",
        alive=silent < HUNG_SECONDS,
        ready=not reasons,
        reasons=tuple(reasons),
        store=not failing and (claimed_ago is not None or full),
        last_claim_seconds=None if claimed_ago is None else round(claimed_ago, 3),
        concurrency=concurrency,
        running=running,
        stuck=stuck,
        loop_lag_seconds=round(silent, 3),
        ran=ran,
        failing=failing,
        queue=queue,
    )


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
