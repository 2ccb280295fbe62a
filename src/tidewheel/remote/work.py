"""``app.remote``: the verbs of workers that reach this process and not the store, each under its lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from tidewheel.errors import TaskError
from tidewheel.model import (
    FINAL_STATES,
    ClaimRequest,
    JobError,
    Lease,
    Report,
    Settlement,
    State,
    StepRecord,
    WorkerRecord,
)
from tidewheel.outcome import Failed, Outcome, Retried
from tidewheel.remote.desk import Desk
from tidewheel.remote.recognising import was_accepted
from tidewheel.security import system_only, tenant_in_question
from tidewheel.visibility import states_of

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.connections import Connections
    from tidewheel.remote.room import Grant


class RemoteWork:
    """For a server: what it was asked is checked already. Made by ``app.remote``."""

    def __init__(self, app: Tidewheel, connections: Connections) -> None:
        self._app = app
        self._connections = connections

    @property
    def waiting(self) -> int:
        """How many workers elsewhere wait for jobs, on the running event loop."""
        return self._desk.room.waiting

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
        system_only("work for others")
        desk = self._desk
        desk.housekeeping.asked()
        await desk.housekeeping.declared()
        return await desk.reserving.reserve(request, seconds, name, check)

    def has_granted(self, name: Hashable | None) -> bool:
        """Whether the request of this name was granted jobs, lately."""
        return self._desk.reserving.has_granted(name)

    def not_told(self, name: Hashable | None, grant: Grant) -> None:
        """Who was to be told of these jobs had gone: they are others', unless it repeats its request soon."""
        self._desk.reserving.not_told(name, grant)

    async def start(
        self, leases: Sequence[Lease], run_seconds: Sequence[float] = (), *, alone: bool = True
    ) -> list[bool]:
        """Record that handlers began, so long ago each; False where the lease is not held any more."""
        return await self._app.store.start(leases, run_seconds=run_seconds, alone=alone)

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        """Make each lease last so long from now."""
        self._desk.housekeeping.asked()
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
            await self._desk.step_counts.check(lease, new)
        return await self._app.store.report(reports)

    async def steps(self, lease: Lease) -> tuple[StepRecord, ...] | None:
        """The finished steps of a job; None when the lease is not held any more."""
        return await self._app.store.steps(lease)

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
        from tidewheel.worker.deciding import delay_after

        record = await self._app.store.get(lease.job_id)
        if record is None or not error.retryable:
            return Failed(error)  # of a job that is gone nothing is written in any case
        task = self._app.registry.resolve(record.topic, record.task)
        cause = TaskError(error.message, code=error.code)
        policy = None if task is None else task.retry
        return Retried(delay_after(record.retry, policy, record.attempt, cause, f"job {record.id}"), error)

    async def states(self, job_ids: Sequence[UUID], seconds: float) -> list[State | None]:
        """The states of these jobs, once one of them is final or after so long; None where there is none."""
        tenant = tenant_in_question(uuids=self._app.settings.tenant_uuids)
        states = await states_of(self._app.store, job_ids, tenant)
        waited_for = [job_id for job_id, state in zip(job_ids, states, strict=True) if state is not None]
        if not seconds or len(waited_for) < len(states) or any(state in FINAL_STATES for state in states):
            return states
        connection = self._connections.current()
        await connection.results.wait_for_any(waited_for, seconds, tenant)
        return await states_of(self._app.store, job_ids, tenant)

    async def now(self) -> int:
        """The store's time."""
        return await self._desk.store_time.now()

    async def beat(self, worker: WorkerRecord) -> None:
        """Keep a worker on the list."""
        self._desk.housekeeping.asked()
        await self._app.store.beat(worker)

    async def leave(self, name: str, started_at: int) -> None:
        """Take it off the list."""
        await self._app.store.leave(name, started_at)

    @property
    def _desk(self) -> Desk:
        connection = self._connections.current()
        if connection.desk is None:
            connection.desk = Desk(self._app, connection.store)
        return connection.desk
