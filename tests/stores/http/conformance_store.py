"""A store over HTTP, together with what happens where the server is.

The conformance suite sets its scenes with verbs that are no part of the API: a server rescues and prunes by
itself. Those go to the server's own store here; all others are requests.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidewheel.core.model import ROOT_TENANT, Enqueued, NewJob, RescueResult, State
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.http import HttpStore
from tidewheel.stores.protocol import Store


class StoreWithServer(HttpStore):
    """What a server does by itself is done there; what cannot be said over HTTP is said there."""

    server: Store
    tasks: frozenset[str]
    allowed: frozenset[str] = frozenset()

    async def rescue(self, limit: int = MAX_BATCH) -> RescueResult:
        return await self.server.rescue(limit)

    async def prune(self, limit: int = MAX_BATCH) -> dict[State, int]:
        return await self.server.prune(limit)

    async def check(self) -> list[str]:
        return await self.server.check()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if all(self._can_be_said(job) for job in jobs) and not _one_after_another(jobs):
            return await super().enqueue(jobs)
        return await self.server.enqueue(jobs)

    def _can_be_said(self, job: NewJob) -> bool:
        """Payloads of tasks are checked there: they have to be objects."""
        # Scenes of the suite have numbers, which go on with every store that is tried in this process, beyond
        # the topics that a server can be told of.
        numbered = job.tenant != ROOT_TENANT or job.topic.startswith("topic-")
        plain = job.topic in self.allowed or not numbered
        return plain and (not job.task or (job.task in self.tasks and job.payload.startswith(b"{")))


def _one_after_another(jobs: Sequence[NewJob]) -> bool:
    """Of jobs whose ids the server has yet to make, none can be named."""
    return any(
        job.after and not {earlier.id for earlier in jobs[:place]}.isdisjoint(job.after)
        for place, job in enumerate(jobs)
    )
