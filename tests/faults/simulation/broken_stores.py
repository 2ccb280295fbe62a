"""Stores that break their promises, each in one way: what a checker that is worth its name must find."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

from tidewheel.core.clock import Clock, seconds_to_microseconds
from tidewheel.core.model import (
    Claim,
    ClaimRequest,
    Enqueued,
    JobFilter,
    Lease,
    NewJob,
    Page,
    RescueResult,
    State,
)
from tidewheel.errors import StoreUnavailable
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.memory import MemoryStore, claims, maintenance
from tidewheel.stores.memory.job_rows import JobRow
from tidewheel.stores.memory.job_table import JobTable

SECOND = 1_000_000


class Broken(MemoryStore):
    """With dice of its own, which fall the same way in every run."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.chance = random.Random(7)
        self._table = self.make_table()

    def make_table(self) -> JobTable:
        return JobTable()


class AcksBeforeCommit(Broken):
    """A job is acknowledged before it is durable, and now and then gone."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        answers = await super().enqueue(jobs)
        if self.chance.random() < 0.1:
            for answer in answers:
                if not answer.duplicate:
                    self._table.remove(self._table.jobs[answer.job_id])
        return answers


class TearsBatches(Broken):
    """Of jobs that were enqueued together some are written and others are not."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        answers = await super().enqueue(jobs)
        if len(jobs) > 1 and not answers[-1].duplicate and self.chance.random() < 0.5:
            self._table.remove(self._table.jobs[answers[-1].job_id])
        return answers


class _Fenceless(JobTable):
    def job_under_lease(self, lease: Lease, now: int) -> JobRow | None:
        job = self.jobs.get(lease.job_id)
        return job if job is not None and job.leased_until is not None and now < job.leased_until else None


class HasNoFence(Broken):
    """Whoever once had the job may write as long as somebody has it."""

    def make_table(self) -> JobTable:
        return _Fenceless()


class _NumberedByAttempt(JobTable):
    def grant(self, job: JobRow, worker: str, leased_until: int, now: int) -> None:
        super().grant(job, worker, leased_until, now)
        job.fence = job.attempt


class FencesByAttempt(Broken):
    """The number of the attempt is the fence; an attempt that is taken back gives it out again."""

    def make_table(self) -> JobTable:
        return _NumberedByAttempt()


class _Endless(JobTable):
    def job_under_lease(self, lease: Lease, now: int) -> JobRow | None:  # noqa: ARG002 - which is the bug
        job = self.jobs.get(lease.job_id)
        return job if job is not None and job.leased_until is not None and job.fence == lease.fence else None


class ExpiresAtClaimOnly(Broken):
    """A lease that has ended is good until somebody looks for ended ones."""

    def make_table(self) -> JobTable:
        return _Endless()


class RescuesFromSnapshot(Broken):
    """Who is to be rescued is decided from what was read a while ago, and not looked at again."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._read_at = 0
        self._snapshot: list[tuple[JobRow, int, int]] = []

    def _rescue_stale(self) -> None:
        now = self._clock.now()
        for job, fence, until in self._snapshot:
            if until <= now and job.fence == fence and job.state is State.RUNNING:
                self._table.lease(job, now)
        if now - self._read_at > SECOND:
            self._read_at = now
            self._snapshot = [(job, job.fence, job.leased_until or 0) for job in self._table.leases]

    async def claim(self, request: ClaimRequest) -> Claim:
        self._rescue_stale()
        return await super().claim(request)

    async def rescue(self, limit: int = MAX_BATCH) -> RescueResult:
        self._rescue_stale()
        return await super().rescue(limit)


class ExtendsWithoutFence(Broken):
    """Extensions are granted to everybody who once had the job, at the cost of who has it now."""

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        now = self._clock.now()
        answers = []
        for lease in leases:
            job = self._table.jobs.get(lease.job_id)
            held = job is not None and job.leased_until is not None and now < job.leased_until
            answers.append(held)
            if held and job is not None:
                self._table.lease(job, now + seconds_to_microseconds(lease_seconds))
        return answers


class ForgetsKeys(Broken):
    """Two enqueues with one key that come at the wrong moment both get in."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if self.chance.random() < 0.3:
            self._table.keys.clear()
        return await super().enqueue(jobs)


class RunsEarly(Broken):
    """A job is due a little before its time."""

    async def claim(self, request: ClaimRequest) -> Claim:
        self._table.promote(self._clock.now() + SECOND // 4)
        return await super().claim(request)


class LeaksTenants(Broken):
    """Who asks for the jobs of one tenant is shown those of all."""

    async def list_jobs(
        self,
        where: JobFilter,  # noqa: ARG002 - which is the bug
        *,
        limit: int,
        cursor: int | None = None,
        offset: int = 0,
    ) -> Page:
        return await super().list_jobs(JobFilter(), limit=limit, cursor=cursor, offset=offset)


class NeverCountsCrashes(Broken):
    """A job that kills its worker is as good as new afterwards."""

    async def claim(self, request: ClaimRequest) -> Claim:
        self._absolve()
        return await super().claim(request)

    async def rescue(self, limit: int = MAX_BATCH) -> RescueResult:
        self._absolve()
        return await super().rescue(limit)

    def _absolve(self) -> None:
        now = self._clock.now()
        for job in list(self._table.leases):
            if job.leased_until is not None and job.leased_until <= now:
                job.started_at, job.counts_if_lost = None, False


class UsesWorkersClocks(Broken):
    """What is due and which lease has ended is told by the clock of whoever asks."""

    async def claim(self, request: ClaimRequest) -> Claim:
        wrong_by = zlib.crc32(request.worker.encode()) % (6 * SECOND) - 3 * SECOND
        with self._verb() as table:
            return claims.claim(table, request, self._clock.now() + wrong_by)


class RescuesLate(Broken):
    """Claims leave ended leases to others, who take their time."""

    async def claim(self, request: ClaimRequest) -> Claim:
        leases, self._table.leases = self._table.leases, type(self._table.leases)()
        try:
            return await super().claim(request)
        finally:
            for job in list(self._table.leases):
                leases.push(job, job.leased_until or 0)
            self._table.leases = leases

    async def rescue(self, limit: int = MAX_BATCH) -> RescueResult:
        with self._verb() as table:
            return maintenance.rescue(table, self._clock.now() - 3 * SECOND, limit)


class RefusesExtensions(Broken):
    """No bug, but an outage of one verb that never ends: every handler that takes long loses its lease."""

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        raise StoreUnavailable(f"{len(leases)} leases cannot be made to last {lease_seconds} s just now")


BUGS: dict[type[Broken], str] = {
    AcksBeforeCommit: "acknowledged",
    TearsBatches: "whole",
    HasNoFence: "fenced",
    FencesByAttempt: "leases",
    ExpiresAtClaimOnly: "fenced",
    RescuesFromSnapshot: "leases",
    ExtendsWithoutFence: "fenced",
    ForgetsKeys: "acknowledged",
    RunsEarly: "attempts",
    LeaksTenants: "whole",
    NeverCountsCrashes: "attempts",
    UsesWorkersClocks: "leases",
    RescuesLate: "recovered",
}
"""Each with the rule that it breaks."""
