"""``app.remote``: the verbs of workers that reach this process and not the store, each under its lease.

``RemoteWorkService`` holds the state that one event loop needs to serve them, next to its store.
``StepCounts`` enforces the limit of steps per job, because the process that runs the job may not count.
``StoreTime`` returns the store's clock, read at most once a second, because that request needs no key.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tidewheel.client.visibility import visible_states
from tidewheel.core.clock import Clock, seconds_to_microseconds
from tidewheel.core.model import (
    FINAL_STATES,
    ClaimRequest,
    Failed,
    JobError,
    Lease,
    Outcome,
    Report,
    Retried,
    Settlement,
    State,
    StepRecord,
    WorkerRecord,
)
from tidewheel.core.security_context import effective_tenant, require_system_context
from tidewheel.errors import LimitExceeded, TaskError
from tidewheel.pull.job_returner import JobReturner
from tidewheel.remote.background_services import BackgroundServices
from tidewheel.remote.dispatcher import ClaimDispatcher
from tidewheel.remote.duplicate_settlements import was_accepted
from tidewheel.remote.reserve_requests import ReserveRequests
from tidewheel.stores.bounds import MAX_STEPS
from tidewheel.stores.protocol import Store
from tidewheel.worker.outcomes import retry_delay

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.client.connections import LoopConnections
    from tidewheel.remote.dispatcher import Grant
    from tidewheel.stores.protocol import Store

MAX_COUNTED: Final = 10_000
"""Runs whose counts are remembered; those that reported nothing for longest give way."""


class StepCounts:
    """What the store has is read once for each run, and counted on from there: it is read with all outputs.

    Steps that another server is told of meanwhile are missed here: behind several of them a job may have that
    many times the limit, at most.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._max_tracked: dict[Lease, int] = {}  # no run has more than this, those of other servers aside

    async def check(self, lease: Lease, new: set[str]) -> None:
        """``LimitExceeded`` when these names would be too many."""
        most = self._max_tracked.pop(lease, None)
        if most is None or most + len(new) > MAX_STEPS:  # some of them may be repeats, which count once
            known = {step.name for step in await self._store.finished_steps(lease) or ()}
            if new - known and len(known | new) > MAX_STEPS:
                raise LimitExceeded(
                    f"step {max(new - known)!r} would be one too many; the limit is {MAX_STEPS:,} steps a job"
                )
            most = len(known - new)
        self._max_tracked[lease] = most + len(new)
        if len(self._max_tracked) > MAX_COUNTED:
            del self._max_tracked[next(iter(self._max_tracked))]


CACHE_SECONDS: Final = 1.0
"""How long one look at the store's clock stands, counted on from there: nobody can make the store busy by
asking for the time, which needs no key."""


class StoreTime:
    """The store's clock, seen from one event loop."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._last_time = 0
        self._last_read_at = float("-inf")
        self._looking = asyncio.Lock()

    async def now(self) -> int:
        """Microseconds since 1970."""
        async with self._looking:
            if self._clock.monotonic() - self._last_read_at >= CACHE_SECONDS:
                self._last_time = await self._store.now()
                self._last_read_at = self._clock.monotonic()
            return self._last_time + seconds_to_microseconds(self._clock.monotonic() - self._last_read_at)


class RemoteWorkService:
    """Made when the first of them comes."""

    def __init__(self, app: Tidewheel, store: Store) -> None:
        self._job_returner = JobReturner(store, app.clock)
        self.dispatcher = ClaimDispatcher(store, app.settings, app.clock, self._job_returner)
        self.reserve_requests = ReserveRequests(self.dispatcher, store, app.clock, self._job_returner)
        self.background = BackgroundServices(app)
        self.step_counts = StepCounts(store)
        self.store_time = StoreTime(store, app.clock)

    async def close(self) -> None:
        """Let go, and give back what nobody has seen."""
        await self.background.close()
        await self.dispatcher.close()
        self.reserve_requests.close()
        await self._job_returner.close()


class RemoteWorkApi:
    """For a server: what it was asked is checked already. Made by ``app.remote``."""

    def __init__(self, app: Tidewheel, connections: LoopConnections) -> None:
        self._app = app
        self._connections = connections

    @property
    def waiting(self) -> int:
        """How many workers elsewhere wait for jobs, on the running event loop."""
        return self._service.dispatcher.waiting

    async def reserve(
        self,
        request: ClaimRequest,
        seconds: float,
        name: Hashable | None = None,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[Grant, bool]:
        """Jobs, waiting for them so long; and whether it is a repeat of the request of this name.

        ``check`` is asked before it is told of any, and raises when it may not have them: they are others'
        then, as if nobody had had them.
        """
        require_system_context("work for others")
        desk = self._service
        desk.background.record_request()
        await desk.background.wait_until_declared()
        return await desk.reserve_requests.reserve(request, seconds, name, check)

    def has_granted(self, name: Hashable | None) -> bool:
        """Whether the request of this name was granted jobs, lately."""
        return self._service.reserve_requests.has_granted(name)

    def report_undelivered(self, name: Hashable | None, grant: Grant) -> None:
        """Who was to be told of these jobs had gone: they are others', unless it repeats its request soon."""
        self._service.reserve_requests.report_undelivered(name, grant)

    async def start(
        self, leases: Sequence[Lease], run_seconds: Sequence[float] = (), *, alone: bool = True
    ) -> list[bool]:
        """Record that handlers began, so long ago each; False where the lease is not held any more."""
        return await self._app.store.mark_started(leases, run_seconds=run_seconds, alone=alone)

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        """Make each lease last so long from now."""
        self._service.background.record_request()
        return await self._app.store.extend(leases, lease_seconds)

    async def cancel_requests(self, leases: Sequence[Lease]) -> list[bool]:
        """Whether somebody wants these jobs to stop."""
        asked = frozenset(await self._app.store.cancel_requests(leases))
        return [lease in asked for lease in leases]

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        """Remember progress, checkpoints and finished steps; ``LimitExceeded`` for a step too many."""
        names: defaultdict[Lease, set[str]] = defaultdict(set)
        for report in reports:
            if report.step is not None:
                names[report.lease].add(report.step.name)
        for lease, new in names.items():
            await self._service.step_counts.check(lease, new)
        return await self._app.store.report(reports)

    async def steps(self, lease: Lease) -> tuple[StepRecord, ...] | None:
        """The finished steps of a job; None when the lease is not held any more."""
        return await self._app.store.finished_steps(lease)

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """End each lease as told.

        One that was accepted before, and ended its job, is accepted again: its first answer may have been
        lost, with a server that has ended since.
        """
        answers = list(await self._app.store.settle(settlements))
        for index, (settlement, accepted) in enumerate(zip(settlements, answers, strict=True)):
            if not accepted:
                answers[index] = await was_accepted(self._app.store, settlement)
        return answers

    async def after_error(self, lease: Lease, error: JobError) -> Outcome:
        """How an attempt ends that errored: by the job's own policy, or by its task's."""
        record = await self._app.store.get(lease.job_id)
        if record is None or not error.retryable:
            return Failed(error)  # of a job that is gone nothing is written in any case
        task = self._app.registry.resolve(record.topic, record.task)
        cause = TaskError(error.message, code=error.code)
        policy = None if task is None else task.retry
        return Retried(retry_delay(record.retry, policy, record.attempt, cause, f"job {record.id}"), error)

    async def states(self, job_ids: Sequence[UUID], seconds: float) -> list[State | None]:
        """The states of these jobs, once one of them is final or after so long; None where there is none."""
        tenant = effective_tenant(uuids=self._app.settings.tenant_uuids)
        states = await visible_states(self._app.store, job_ids, tenant)
        waited_for = [job_id for job_id, state in zip(job_ids, states, strict=True) if state is not None]
        if not seconds or len(waited_for) < len(states) or any(state in FINAL_STATES for state in states):
            return states
        connection = self._connections.current()
        await connection.results.wait_for_any(waited_for, seconds, tenant)
        return await visible_states(self._app.store, job_ids, tenant)

    async def now(self) -> int:
        """The store's time."""
        return await self._service.store_time.now()

    async def heartbeat(self, worker: WorkerRecord) -> None:
        """Keep a worker on the list."""
        self._service.background.record_request()
        await self._app.store.heartbeat(worker)

    async def deregister_worker(self, name: str, started_at: int) -> None:
        """Take it off the list."""
        await self._app.store.deregister_worker(name, started_at)

    @property
    def _service(self) -> RemoteWorkService:
        return self._connections.current().service("desk", lambda store: RemoteWorkService(self._app, store))
