"""Report claims, settlements and pruning of a worker to its job log and its metrics.

The job log is written if the setting ``log_jobs`` is on. A worker with neither log nor metrics has no
observers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidewheel.core.clock import MICROSECONDS, Clock
from tidewheel.core.model import Claimed, Settlement, State
from tidewheel.settings import Settings
from tidewheel.telemetry import job_log
from tidewheel.worker.active_jobs import ActiveJob

if TYPE_CHECKING:
    from tidewheel.telemetry.metric_counters import MetricCounters
    from tidewheel.telemetry.telemetry import Telemetry


class JobLogger:
    """That a lost worker's job came back is told by the store, which knows first (``lifecycle.rescued``)."""

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def on_claimed(self, jobs: Sequence[Claimed]) -> None:
        for job in jobs:
            job_log.log_claimed(job, self._worker)

    def on_settled(self, batch: Iterable[tuple[ActiveJob, Settlement]], answers: list[bool]) -> None:
        for (active, settlement), accepted in zip(batch, answers, strict=True):
            if accepted:
                job_log.log_settled(active.job, settlement, self._worker)


class Observers:
    """Told a batch at a time, once the store has answered."""

    def __init__(self, journal: JobLogger | None, metrics: MetricCounters | None, clock: Clock) -> None:
        self._journal = journal
        self._metrics = metrics
        self._clock = clock

    def on_claimed(self, jobs: Sequence[Claimed]) -> None:
        if self._journal is not None:
            self._journal.on_claimed(jobs)

    def on_settled(self, batch: Collection[tuple[ActiveJob, Settlement]], answers: list[bool]) -> None:
        if self._journal is not None:
            self._journal.on_settled(batch, answers)
        if self._metrics is not None:
            ahead = self._clock.now() / MICROSECONDS - self._clock.monotonic()
            self._metrics.count_settled(batch, answers, ahead)

    def on_pruned(self, removed: Mapping[State, int]) -> None:
        if self._metrics is not None:
            self._metrics.count_pruned(removed)


def make_observers(
    worker: str, settings: Settings, clock: Clock, telemetry: Telemetry | None
) -> Observers | None:
    """Those of a worker that is being made."""
    journal = JobLogger(worker) if settings.log_jobs else None
    metrics = telemetry.metrics if telemetry is not None else None
    return None if journal is None and metrics is None else Observers(journal, metrics, clock)
