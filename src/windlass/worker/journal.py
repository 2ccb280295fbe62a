"""What a worker logs of its jobs' lives, where the setting ``log_jobs`` asks for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from windlass import lifecycle
from windlass.errors import StoreError
from windlass.model import Claimed, JobRecord, Settlement
from windlass.stores.protocol import Store
from windlass.worker.held import Held

_log = logging.getLogger("windlass.worker")


class Journal:
    """``background`` runs what has to ask the store first, so that no job waits for a log line."""

    def __init__(
        self, worker: str, store: Store, background: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self._worker = worker
        self._store = store
        self._background = background

    def claimed(self, jobs: Sequence[Claimed]) -> None:
        for job in jobs:
            lifecycle.claimed(job, self._worker)
        again = [job for job in jobs if job.attempt > 1 or job.alone]
        if again:
            self._background(self._reclaimed(again))

    def settled(self, batch: Iterable[tuple[Held, Settlement]], answers: list[bool]) -> None:
        for (held, settlement), accepted in zip(batch, answers, strict=True):
            if accepted:
                lifecycle.settled(held.job, settlement, self._worker)

    async def _reclaimed(self, jobs: Sequence[Claimed]) -> None:
        """Those that a lost worker had before. A claim does not tell which; their attempts do."""
        for job in jobs:
            try:
                record = None if job.alone else await self._store.get(job.lease.job_id)
            except StoreError as error:
                _log.info("whether job %s was a lost worker's is not logged: %s", job.lease.job_id, error)
                return
            if job.alone or (record is not None and _was_lost(record, job.attempt - 1)):
                lifecycle.reclaimed(job, self._worker)


def _was_lost(record: JobRecord, attempt: int) -> bool:
    return any(one.attempt == attempt and one.error.code == "worker_lost" for one in record.attempts)
