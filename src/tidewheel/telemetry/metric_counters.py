"""Counters of one process, in memory.

Everything is counted a batch at a time under one lock: from the worker's event loop, from threads that
enqueue, from a store that tells whom it rescued. By hand instead of with a client library: that takes a lock
and looks a label up for each increment, and knows no batches.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import (
    Cancelled,
    Completed,
    Enqueued,
    Failed,
    NewJob,
    RescuedJob,
    Retried,
    Settlement,
    State,
)
from tidewheel.telemetry import samples as catalogue
from tidewheel.telemetry.samples import BUCKETS, OTHER, Sample, make_sample

if TYPE_CHECKING:
    from tidewheel.worker.active_jobs import ActiveJob

MAX_TASKS: Final = 200
"""Tasks that have series of their own; those that come later are counted together, as ``other``."""
MAX_TASK_TOPIC_PAIRS: Final = 500
"""The same for pairs of task and topic."""


FIRST_BUCKET_SECONDS: Final = BUCKETS[0]

_log = logging.getLogger("tidewheel.telemetry")


class RunListener(Protocol):
    """Whoever wants to hear of each run, beside those who look at sums."""

    def __call__(self, task: str, run_seconds: float, wait_seconds: float) -> None: ...


class MetricCounters:
    """What happened in this process so far. A forked child begins with nothing."""

    def __init__(self) -> None:
        self.run_listeners: tuple[RunListener, ...] = ()
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """Begin again."""
        self._lock = threading.Lock()
        self._submitted: dict[tuple[str, str], int] = {}
        self._tasks: dict[str, _TaskCounters] = {}
        self._leases_lost = 0
        self._pruned: dict[str, int] = {}

    # -- what happens -------------------------------------------------------------------------------------

    def count_submitted(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """These were written; those that found their key taken are not counted."""
        with self._lock:
            counts = self._submitted
            for job, answer in zip(jobs, answers, strict=True):
                if not answer.duplicate:
                    pair = job.task or job.topic, job.topic
                    if pair not in counts and len(counts) >= MAX_TASK_TOPIC_PAIRS:
                        pair = OTHER, OTHER
                    counts[pair] = counts.get(pair, 0) + 1

    def count_settled(
        self, batch: Iterable[tuple[ActiveJob, Settlement]], answers: Iterable[bool], clock_offset: float
    ) -> None:
        """The store has taken how these attempts ended, where the answer is yes.

        ``ahead``: seconds from the clock that never jumps, by which they began, to the one they were due by.
        """
        listens = bool(self.run_listeners)
        runs: list[tuple[str, float, float]] = []
        with self._lock:
            last = of = None
            for (held, settlement), accepted in zip(batch, answers, strict=True):
                if accepted:
                    task = held.task
                    if task is not last or of is None:
                        last, of = task, self._counters_of(task.name)
                        ran, waited = of.ran, of.waited
                    if type(settlement.outcome) is Completed:
                        of.completed += 1
                    else:
                        of.count(settlement.outcome)
                    seconds, started = settlement.run_seconds, held.started
                    if seconds is not None and started is not None:
                        wait = started + clock_offset - held.job.run_at / MICROSECONDS
                        if wait < 0.0:  # noqa: PLR1730 - a call costs more; the store's clock may be ahead
                            wait = 0.0
                        # Mostly the first bucket: not worth looking for.
                        ran[0 if seconds <= FIRST_BUCKET_SECONDS else bisect_left(BUCKETS, seconds)] += 1
                        waited[bisect_left(BUCKETS, wait)] += 1
                        of.ran_seconds += seconds
                        of.waited_seconds += wait
                        if listens:
                            runs.append((task.name, seconds, wait))
        for tell in self.run_listeners if runs else ():
            _notify_listener(tell, runs)

    def count_rescued(self, jobs: Iterable[RescuedJob]) -> None:
        """Leases that ended, and jobs that ended with them or were not started in time."""
        with self._lock:
            for job in jobs:
                self._leases_lost += job.worker is not None
                if job.state.final:
                    self._counters_of(job.task or job.topic).end(job.state)

    def count_pruned(self, removed: Mapping[State, int]) -> None:
        with self._lock:
            for state, number in removed.items():
                self._pruned[state] = self._pruned.get(state, 0) + number

    def _counters_of(self, name: str) -> _TaskCounters:
        if name not in self._tasks and len(self._tasks) >= MAX_TASKS:
            name = OTHER
        return self._tasks.setdefault(name, _TaskCounters())

    # -- what is told -------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """As of now; from any thread."""
        with self._lock:
            return list(self._samples())

    def _samples(self) -> Iterator[Sample]:
        for pair, number in self._submitted.items():
            yield make_sample(catalogue.SUBMITTED, number, *pair)
        for name, of in self._tasks.items():
            for state in (State.COMPLETED, State.FAILED, State.CANCELLED):
                yield make_sample(catalogue.COMPLETED, getattr(of, state), name, state)
            yield make_sample(catalogue.RETRIES, of.retried, name)
            yield Sample(catalogue.DURATION.name, (name,), (*of.ran, of.ran_seconds))
            yield Sample(catalogue.WAIT.name, (name,), (*of.waited, of.waited_seconds))
        yield make_sample(catalogue.LEASES_LOST, self._leases_lost)
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED):
            yield make_sample(catalogue.PRUNED, self._pruned.get(state, 0), state)


class _TaskCounters:
    """The figures of one task."""

    __slots__ = (
        *("cancelled", "completed", "failed", "ran", "ran_seconds", "retried", "waited", "waited_seconds"),
    )

    def __init__(self) -> None:
        self.completed = 0
        self.failed = 0
        self.cancelled = 0
        self.retried = 0
        self.ran = [0] * (len(BUCKETS) + 1)
        self.ran_seconds = 0.0
        self.waited = [0] * (len(BUCKETS) + 1)
        self.waited_seconds = 0.0

    def count(self, outcome: object) -> None:
        if isinstance(outcome, Retried):
            self.retried += 1
        elif isinstance(outcome, Failed):
            self.failed += 1
        elif isinstance(outcome, Cancelled):
            self.cancelled += 1

    def end(self, state: State) -> None:
        setattr(self, state, getattr(self, state) + 1)


def _notify_listener(listener: RunListener, runs: Iterable[tuple[str, float, float]]) -> None:
    try:
        for name, seconds, wait in runs:
            listener(name, seconds, wait)
    except Exception:  # of somebody else's library: what was settled is settled, and the worker goes on
        _log.exception("runs could not be told to whoever measures them")


_all: weakref.WeakSet[MetricCounters] = weakref.WeakSet()


def _reset_in_child() -> None:
    """In a forked child: what the parent counted is the parent's, and so is whoever held a lock."""
    for metrics in list(_all):
        metrics.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
