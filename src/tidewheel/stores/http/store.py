"""A store over HTTP: its jobs are another Tidewheel's, and each verb is a request to that one's API.

There is no database here and no clock: time is the server's, and so are limits, pruning and rescuing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Self
from uuid import UUID

from tidewheel.core.clock import Clock
from tidewheel.core.model import (
    ActionResult,
    Claim,
    ClaimRequest,
    Count,
    Dependents,
    Enqueued,
    JobFilter,
    JobRecord,
    Lease,
    NewJob,
    Page,
    Report,
    RescueResult,
    Settlement,
    State,
    StepRecord,
    WorkerRecord,
)
from tidewheel.core.reports import HealthFinding, Stats, TaskStats, TopicStats
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.stores.bounds import MAX_BATCH, MAX_DEPENDENTS, StoreLimits, check_batch
from tidewheel.stores.http import enqueue as enqueue_requests
from tidewheel.stores.http import reports as report_queries
from tidewheel.stores.http.admin import AdminRequests
from tidewheel.stores.http.api_client import ApiClient
from tidewheel.stores.http.claims import ClaimPool
from tidewheel.stores.http.job_queries import JobQueries
from tidewheel.stores.http.location import parse_url
from tidewheel.stores.http.settlements import LeaseRequests
from tidewheel.stores.http.unsupported_verbs import UnsupportedVerbs
from tidewheel.stores.http.wakeups import StateWatch, finished_wakeups, no_wakeups, ready_wakeups
from tidewheel.stores.protocol import OnRescued, Wakeups

MAX_RUNNING_LISTED: Final = 1000
"""Running jobs among which those are looked for that have run longest."""


class HttpStore(UnsupportedVerbs):
    """A handle on the jobs of a server, for one event loop once it is open."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        clock: Clock | None = None,
        limits: StoreLimits | None = None,
    ) -> None:
        del clock, limits  # both are the server's
        self.url = url
        self.on_rescued: OnRescued | None = None  # never told: the server rescues, and tells its own log
        self._location = parse_url(url, token)
        self._client = ApiClient(self._location)
        self._reading = JobQueries(self._client)
        self._managing = AdminRequests(self._client, self._reading)
        self._working = LeaseRequests(self._client)
        self._claim_pool = ClaimPool(self._client, self._working)
        self._state_watch = StateWatch(self._reading)

    def __repr__(self) -> str:
        return f"<HttpStore {self._client.shown}>"

    # -- life -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Check that a Tidewheel server answers. The token is checked by the first verb that uses it."""
        self._client.open()
        try:
            await self._reading.now()
        except BaseException:
            await self._client.close()
            raise
        self._client.confirm_server()

    async def close(self) -> None:
        self._state_watch.stop()
        try:
            await self._claim_pool.close()
        finally:
            await self._client.close()

    def sibling(self) -> Self:
        other = type(self)(self.url, token=self._location.token)
        other.on_rescued = self.on_rescued
        return other

    async def now(self) -> int:
        return await self._reading.now()

    def describe(self) -> dict[str, str]:
        return {"store": "http", "server": self._client.shown}

    async def health(self) -> list[HealthFinding]:
        """What ails the database is known where that is."""
        return []

    @property
    def notifications_down(self) -> bool:
        """A request that waits at the server is all there is to hear with, and it does."""
        return False

    @property
    def clock_step_seconds(self) -> float:
        """The server prunes and cancels, and watches its clock."""
        return 0.0

    # -- writing ----------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await enqueue_requests.enqueue(self._client, jobs, self._reading.now)

    async def enqueue_atomically(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await enqueue_requests.enqueue_atomically(self._client, jobs, self._reading.now)

    async def claim(self, request: ClaimRequest) -> Claim:
        return await self._claim_pool.claim(request)

    async def mark_started(
        self, leases: Sequence[Lease], *, run_seconds: Sequence[float] = (), alone: bool = True
    ) -> list[bool]:
        return await self._working.mark_started(leases, run_seconds, alone=alone)

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        return await self._working.extend(leases, lease_seconds)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        return await self._working.settle(settlements)

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        return await self._working.report(reports)

    async def finished_steps(self, lease: Lease) -> tuple[StepRecord, ...] | None:
        return await self._working.finished_steps(lease)

    async def cancel_requests(self, leases: Sequence[Lease]) -> list[Lease]:
        return await self._working.cancel_requests(leases)

    # -- operating --------------------------------------------------------------------------------------

    async def requeue(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        return await self._managing.change_jobs("requeue", job_ids, tenant)

    async def cancel(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        return await self._managing.change_jobs("cancel", job_ids, tenant)

    async def take_back(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        return await self._managing.change_jobs("take-back", job_ids, tenant)

    async def delete(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        return await self._managing.change_jobs("delete", job_ids, tenant)

    async def kick(
        self, topic: str, limit: int, *, tenant: str | None = None, failed_only: bool = False
    ) -> int:
        return await self._managing.kick(topic, limit, tenant, failed_only=failed_only)

    async def rescue(self, limit: int = MAX_BATCH) -> RescueResult:
        """Nothing to do: the server does it, and every claim there does. Workers ask twice a second."""
        del limit
        return RescueResult()

    async def prune(self, limit: int = MAX_BATCH) -> dict[State, int]:
        """Likewise: the server prunes, or workers beside the database."""
        del limit
        return {}

    async def pause(self, topic: str, until: int | None) -> None:
        await self._managing.pause(topic, until)

    async def set_limits(self, topic: str, limits: TopicLimits | None) -> bool:
        return await self._managing.set_limits(topic, limits)

    async def limits(self) -> dict[str, TopicLimits]:
        return await self._managing.limits()

    async def topics(self, *, tenant: str | None = None) -> list[TopicStats]:
        return await report_queries.topics(self._client, tenant)

    # -- workers ----------------------------------------------------------------------------------------

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._working.heartbeat(worker)

    async def deregister_worker(self, name: str, started_at: int) -> None:
        await self._working.deregister_worker(name, started_at)

    async def workers(self) -> list[WorkerRecord]:
        return await report_queries.workers(self._client)

    # -- reading ----------------------------------------------------------------------------------------

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        return await self._reading.get(job_id, tenant)

    async def dependents(
        self, job_id: UUID, *, limit: int = MAX_DEPENDENTS, tenant: str | None = None
    ) -> Dependents:
        return await self._reading.dependents(job_id, limit, tenant)

    async def states(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[State | None]:
        check_batch("job ids", len(job_ids), MAX_BATCH)
        return await self._state_watch.states(job_ids, tenant)

    async def list_jobs(
        self, where: JobFilter, *, limit: int, cursor: int | None = None, offset: int = 0
    ) -> Page:
        return await self._reading.list_jobs(where, limit, cursor, offset)

    async def count(self, where: JobFilter, *, exact: bool = False) -> Count:
        """``beyond`` the limit nothing is counted: the server's own counting ends there."""
        del exact
        return await self._reading.count(where)

    async def stats(self, *, window_seconds: float, tenant: str | None = None) -> Stats:
        return await report_queries.stats(self._client, window_seconds, tenant)

    async def lanes(self, *, window_seconds: float, tenant: str | None = None) -> list[TaskStats]:
        return await report_queries.lanes(self._client, window_seconds, tenant)

    async def longest_running(self, limit: int, *, tenant: str | None = None) -> list[JobRecord]:
        """Of the newest running jobs those that were claimed longest ago."""
        where = JobFilter(state=State.RUNNING, tenant=tenant)
        page = await self._reading.list_jobs(where, MAX_RUNNING_LISTED, None, 0)
        return sorted(page.items, key=lambda job: (job.claimed_at or 0, job.id))[:limit]

    # -- hints ------------------------------------------------------------------------------------------

    def wakeups(
        self, *, topics: Collection[str] | None = (), finished: bool = False
    ) -> AbstractAsyncContextManager[Wakeups]:
        """A claim that waits at the server, or a look at states that does; not both at a time."""
        if finished and not topics and topics is not None:
            return finished_wakeups(self._state_watch)
        if topics and not finished:
            return ready_wakeups(self._claim_pool, topics)
        return no_wakeups()
