"""Who is told of what a worker does: the log of jobs' lives, the metrics. Nobody, where neither is wanted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from tidewheel.clock import MICROSECONDS, Clock
from tidewheel.model import Claimed, Settlement, State
from tidewheel.settings import Settings
from tidewheel.worker.held import Held
from tidewheel.worker.journal import Journal

if TYPE_CHECKING:
    from tidewheel.telemetry.counting import Metrics
    from tidewheel.telemetry.telemetry import Telemetry


class Observers:
    """Told a batch at a time, once the store has answered."""

    def __init__(self, journal: Journal | None, metrics: Metrics | None, clock: Clock) -> None:
        self._journal = journal
        self._metrics = metrics
        self._clock = clock

    def claimed(self, jobs: Sequence[Claimed]) -> None:
        if self._journal is not None:
            self._journal.claimed(jobs)

    def settled(self, batch: Collection[tuple[Held, Settlement]], answers: list[bool]) -> None:
        if self._journal is not None:
            self._journal.settled(batch, answers)
        if self._metrics is not None:
            ahead = self._clock.now() / MICROSECONDS - self._clock.monotonic()
            self._metrics.settled(batch, answers, ahead)

    def pruned(self, removed: Mapping[State, int]) -> None:
        if self._metrics is not None:
            self._metrics.pruned(removed)


def observers_of(
    worker: str, settings: Settings, clock: Clock, telemetry: Telemetry | None
) -> Observers | None:
    """Those of a worker that is being made."""
    journal = Journal(worker) if settings.log_jobs else None
    metrics = telemetry.metrics if telemetry is not None else None
    return None if journal is None and metrics is None else Observers(journal, metrics, clock)
