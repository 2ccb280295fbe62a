"""What a worker logs of its jobs' lives, where the setting ``log_jobs`` asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidewheel import lifecycle
from tidewheel.model import Claimed, Settlement
from tidewheel.worker.held import Held


class Journal:
    """That a lost worker's job came back is told by the store, which knows first (``lifecycle.rescued``)."""

    def __init__(self, worker: str) -> None:
        self._worker = worker

    def claimed(self, jobs: Sequence[Claimed]) -> None:
        for job in jobs:
            lifecycle.claimed(job, self._worker)

    def settled(self, batch: Iterable[tuple[Held, Settlement]], answers: list[bool]) -> None:
        for (held, settlement), accepted in zip(batch, answers, strict=True):
            if accepted:
                lifecycle.settled(held.job, settlement, self._worker)
