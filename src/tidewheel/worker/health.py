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
from tidewheel.telemetry.metric_gauges import QueueSnapshot

LOOP_BLOCKED_SECONDS: Final = 10.0
"""An event loop that has been silent for so long starts and ends nothing: the worker is not ready."""
LOOP_HUNG_SECONDS: Final = 600.0
"""So long, and only a new process helps. A worker gets rid of a handler that blocks its loop past the default
timeout by itself, and that must have had its time."""
CLAIM_OVERDUE_SECONDS: Final = 15.0
"""How much later than the poll interval the answer to a claim may come, before claims count as stopped."""


class WorkerHealth(Struct, frozen=True, kw_only=True):
    """One look at a worker. Plain data: it is sent to another process, and shown as JSON."""

    name: str
    status: str
    """``starting_health``, ``working``, ``stopping``, or ``making way`` with half its slots stuck."""
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
    queue: QueueSnapshot | None = None
    """None without metrics, and before the first look."""


def starting_health(name: str) -> WorkerHealth:
    """Of a worker that waits for its store, or is just being made."""
    return WorkerHealth(
        name=name, status="starting", alive=True, ready=False, reasons=("the store is not open yet",)
    )


def assess_health(
    *,
    name: str,
    stopping: bool,
    degraded: bool,
    failing: bool,
    seconds_since_claim: float | None,
    has_enough_jobs: bool,
    poll_interval: float,
    concurrency: int,
    running: int,
    stuck: int,
    loop_silent_seconds: float,
    ran: int,
    queue: QueueSnapshot | None = None,
) -> WorkerHealth:
    """Judge a worker by its figures. One that ``has_enough_jobs`` claims none, which is not a fault."""
    reasons = []
    if loop_silent_seconds >= LOOP_HUNG_SECONDS:
        reasons.append(f"the event loop has been blocked for {loop_silent_seconds:.0f} s")
    elif loop_silent_seconds >= LOOP_BLOCKED_SECONDS:
        reasons.append(f"a handler blocks the event loop, for {loop_silent_seconds:.0f} s by now")
    if failing:
        reasons.append("the store does not answer")
    if degraded:
        reasons.append("half the slots are stuck")
    elif stopping:
        reasons.append("it was asked to stop")
    longest = 1.25 * poll_interval + CLAIM_OVERDUE_SECONDS
    if not reasons and not has_enough_jobs and (seconds_since_claim is None or seconds_since_claim > longest):
        reasons.append(
            "no claim was answered yet"
            if seconds_since_claim is None
            else f"no claim for {seconds_since_claim:.0f} s"
        )
    return WorkerHealth(
        name=name,
        status="making way" if degraded else "stopping" if stopping else "working",
        alive=loop_silent_seconds < LOOP_HUNG_SECONDS,
        ready=not reasons,
        reasons=tuple(reasons),
        store=not failing and (seconds_since_claim is not None or has_enough_jobs),
        last_claim_seconds=None if seconds_since_claim is None else round(seconds_since_claim, 3),
        concurrency=concurrency,
        running=running,
        stuck=stuck,
        loop_lag_seconds=round(loop_silent_seconds, 3),
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

    def probe(self) -> None:
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

    def take_max(self) -> float:
        """The longest delay since the last call, in seconds; an open question counts as it stands."""
        with self._lock:
            worst, self._worst = self._worst, 0.0
            return worst if self._asked_at is None else max(worst, self._clock.monotonic() - self._asked_at)

    def _answer(self) -> None:
        with self._lock:
            if self._asked_at is not None:
                self._worst = max(self._worst, self._clock.monotonic() - self._asked_at)
                self._asked_at = None
