"""The memory store: every method of the store protocol, and the worker registry, under one lock."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from typing import Self
from uuid import UUID

from tidewheel.core.clock import Clock, SystemClock, seconds_to_microseconds
from tidewheel.core.clock_guard import ClockGuard
from tidewheel.core.conditions import is_counted
from tidewheel.core.full_job import FullJob
from tidewheel.core.model import (
    ActionResult,
    Claim,
    Claimed,
    ClaimRequest,
    Count,
    Dependents,
    Document,
    Enqueued,
    JobFilter,
    JobRecord,
    Lease,
    NewDocument,
    NewJob,
    Page,
    Report,
    RescueResult,
    Settlement,
    State,
    StepRecord,
    TopicHead,
    WorkerRecord,
)
from tidewheel.core.reports import (
    DuplicateJobs,
    FailureGroups,
    HealthFinding,
    LaneDurations,
    Stats,
    TaskStats,
    TopicDepth,
    TopicStats,
)
from tidewheel.core.topic_limits import BlockedTopic, TopicLimits
from tidewheel.errors import ConfigurationError, NotOpen, WrongState
from tidewheel.stores.bounds import (
    MAX_BATCH,
    MAX_COUNT,
    MAX_DEPENDENTS,
    MAX_ENQUEUE_BATCH,
    MAX_GROUPS,
    MAX_WORKERS,
    WORKERS_KEPT_SECONDS,
    StoreLimits,
    check_batch,
)
from tidewheel.stores.documents import check_documents
from tidewheel.stores.external_transaction import UncommittedEnqueue
from tidewheel.stores.memory import (
    admin,
    claims,
    dependencies,
    job_queries,
    maintenance,
    pull,
    topic_limits,
    transfer,
)
from tidewheel.stores.memory import documents as document_rows
from tidewheel.stores.memory import enqueue as enqueue_writes
from tidewheel.stores.memory import reports as report_queries
from tidewheel.stores.memory import settlements as settlement_writes
from tidewheel.stores.memory.job_table import JobTable
from tidewheel.stores.protocol import HandlerTransaction, OnRescued, Wakeups
from tidewheel.stores.reports import find_overdue_pruning
from tidewheel.stores.terminal_errors import notify_rescued


def deregister_worker(table: JobTable, name: str, started_at: int) -> None:
    worker = table.workers.get(name)
    if worker is not None and worker.started_at == started_at:
        del table.workers[name]


def list_workers(table: JobTable) -> list[WorkerRecord]:
    newest = sorted(table.workers.values(), key=lambda worker: (-worker.seen_at, worker.name))
    return sorted(newest[:MAX_WORKERS], key=lambda worker: worker.name)


def remove_vanished_workers(table: JobTable, now: int) -> None:
    """Drop those that vanished too long ago to be news."""
    oldest = now - seconds_to_microseconds(WORKERS_KEPT_SECONDS)
    table.workers = {name: worker for name, worker in table.workers.items() if worker.seen_at > oldest}


_PREFIX = "memory://"
_tables_by_name: dict[str, JobTable] = {}
_tables_lock = threading.Lock()


class MemoryStore:
    """Jobs in this process's memory: the reference for what every verb means, and gone with the process.

    ``memory://`` is private to the instance and its siblings; ``memory://name`` is shared by every store of
    that name in the process. Siblings may be used from other threads and event loops.
    """

    def __init__(
        self, url: str = _PREFIX, *, clock: Clock | None = None, limits: StoreLimits | None = None
    ) -> None:
        if not url.startswith(_PREFIX):
            raise ConfigurationError(f"{url!r} is no memory store; use memory:// or memory://name")
        self.url = url
        self._clock = clock or SystemClock()
        self._limits = limits or StoreLimits()
        self._table = _job_table_of(url.removeprefix(_PREFIX))
        self._guard = ClockGuard(self._clock)
        self._open = False
        self.on_rescued: OnRescued | None = None

    # -- life -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        self._guard.record(self._clock.now())
        self._open = True

    async def close(self) -> None:
        """Jobs stay for the siblings, and for this store if it is opened again."""
        self._open = False

    def sibling(self) -> Self:
        other = type(self)(self.url, clock=self._clock, limits=self._limits)
        other._table = self._table
        other.on_rescued = self.on_rescued
        return other

    async def migrate(self, *, rls: bool = False) -> list[str]:
        if rls:
            raise ConfigurationError(
                f"{self.url} keeps jobs in memory, where there are no roles; row-level security needs a "
                "postgresql:// URL"
            )
        with self._verb():
            return []

    async def pending_migrations(self) -> list[str]:
        with self._verb():
            return []

    async def check(self) -> list[str]:
        with self._verb() as table:
            return table.find_inconsistencies()

    async def now(self) -> int:
        return self._clock.now()

    def describe(self) -> dict[str, str]:
        return {"store": "memory", "python": platform.python_version()}

    async def health(self) -> list[HealthFinding]:
        with self._verb() as table:  # what it stands on is this process, but for what nobody removes
            now = self._clock.now()
            job = table.finished.first_until(now)
            return find_overdue_pruning(job.prune_at if job is not None else None, now)

    @property
    def notifications_down(self) -> bool:
        return False

    @property
    def clock_step_seconds(self) -> float:
        return self._guard.step_seconds

    # -- writing ----------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        check_batch("jobs", len(jobs), MAX_ENQUEUE_BATCH)
        with self._verb() as table:
            return enqueue_writes.enqueue(table, jobs, self._limits, self._clock.now())

    async def claim(self, request: ClaimRequest) -> Claim:
        with self._verb() as table:
            return claims.claim(table, request, self._clock.now())

    async def claim_job(
        self, job_id: UUID, *, worker: str, lease_seconds: float, tenant: str | None = None
    ) -> Claimed | None:
        with self._verb() as table:
            return pull.claim_job(table, job_id, tenant, worker, lease_seconds, self._clock.now())

    async def mark_started(
        self, leases: Sequence[Lease], *, run_seconds: Sequence[float] = (), alone: bool = True
    ) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        with self._verb() as table:
            now = self._clock.now()
            jobs = [table.job_under_lease(lease, now) for lease in leases]
            for job, seconds in zip(jobs, run_seconds or [0.0] * len(leases), strict=True):
                if job is not None:
                    job.record_start(now - seconds_to_microseconds(seconds))
                    job.counts_if_lost |= alone
            return [job is not None for job in jobs]

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        with self._verb() as table:
            now = self._clock.now()
            jobs = [table.job_under_lease(lease, now) for lease in leases]
            for job in jobs:
                if job is not None:
                    table.lease(job, now + seconds_to_microseconds(lease_seconds))
            return [job is not None for job in jobs]

    async def touch(self, leases: Sequence[Lease], lease_seconds: float) -> list[float | None]:
        check_batch("leases", len(leases), MAX_BATCH)
        with self._verb() as table:
            now = self._clock.now()
            touched = {lease: pull.touch(table, lease, lease_seconds, now) for lease in set(leases)}
            return [touched[lease] for lease in leases]

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        check_batch("settlements", len(settlements), MAX_BATCH)
        with self._verb() as table:
            now = self._clock.now()
            answers = [settlement_writes.settle(table, settlement, now) for settlement in settlements]
            dependencies.release_dependents(table, now)
            return answers

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        check_batch("reports", len(reports), MAX_BATCH)
        with self._verb() as table:
            now = self._clock.now()
            answers = []
            for report in reports:
                job = table.job_under_lease(report.lease, now)
                answers.append(job is not None)
                if job is not None:
                    job.apply_report(report, now)
            return answers

    async def finished_steps(self, lease: Lease) -> tuple[StepRecord, ...] | None:
        with self._verb() as table:
            job = table.job_under_lease(lease, self._clock.now())
            return tuple(job.steps.values()) if job is not None else None

    async def cancel_requests(self, leases: Sequence[Lease]) -> list[Lease]:
        check_batch("leases", len(leases), MAX_BATCH)
        with self._verb() as table:
            now = self._clock.now()
            held = [(lease, table.job_under_lease(lease, now)) for lease in leases]
            return [lease for lease, job in held if job is not None and job.cancel_requested]

    async def begin_transaction(
        self,
        lease: Lease,  # noqa: ARG002 - like those of the stores that have a database
        *,
        lease_seconds: float,  # noqa: ARG002
        seconds: float,  # noqa: ARG002
        tenant: str,  # noqa: ARG002
        on_timeout: Callable[[], None],  # noqa: ARG002
        run_seconds: float = 0.0,  # noqa: ARG002
    ) -> HandlerTransaction:
        raise WrongState(
            "ctx.transaction needs a database, and this store is memory; use sqlite:///… or postgresql://…, "
            "also in tests of such a task"
        )

    # -- operating --------------------------------------------------------------------------------------

    async def requeue(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        with self._verb() as table:
            now = self._clock.now()
            return admin.requeue(table, job_ids, tenant, now)

    async def cancel(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        with self._verb() as table:
            now = self._clock.now()
            verdicts = [admin.cancel(table, job_id, tenant, now) for job_id in job_ids]
            dependencies.release_dependents(table, now)
            return verdicts

    async def take_back(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        with self._verb() as table:
            now = self._clock.now()
            verdicts = [admin.take_back(table, job_id, tenant, now) for job_id in job_ids]
            dependencies.release_dependents(table, now)
            return verdicts

    async def delete(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        with self._verb() as table:
            verdicts = [admin.delete(table, job_id, tenant) for job_id in job_ids]
            dependencies.release_dependents(table, self._clock.now())
            return verdicts

    async def kick(
        self, topic: str, limit: int, *, tenant: str | None = None, failed_only: bool = False
    ) -> int:
        check_batch("jobs", limit, MAX_BATCH)
        with self._verb() as table:
            return pull.kick(table, topic, limit, tenant, self._clock.now(), failed_only=failed_only)

    async def kick_jobs(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        with self._verb() as table:
            now = self._clock.now()
            return pull.kick_jobs(table, job_ids, tenant, now)

    async def rescue(self, limit: int = MAX_BATCH) -> RescueResult:
        with self._verb() as table:
            return maintenance.rescue(table, self._clock.now(), limit)

    async def prune(self, limit: int = MAX_BATCH) -> dict[State, int]:
        with self._verb() as table:
            now = self._guard.confirmed_time(self._clock.now())
            remove_vanished_workers(table, now)
            document_rows.remove_expired(table, limit, now)
            topic_limits.remove_idle_meters(table, limit, now)
            return maintenance.prune(table, limit, now)

    async def pause(self, topic: str, until: int | None) -> None:
        with self._verb() as table:
            if until is None:
                table.pauses.pop(topic, None)
            else:
                table.pauses[topic] = until
            # Also a pause is news: it may end sooner than the one it takes the place of.
            table.ready_topics.add(topic)

    async def set_limits(self, topic: str, limits: TopicLimits | None) -> bool:
        with self._verb() as table:
            return topic_limits.set_limits(table, topic, limits, self._clock.now())

    async def limits(self) -> dict[str, TopicLimits]:
        with self._verb() as table:
            return dict(sorted(table.limits.items()))

    async def blocked_by_limits(self) -> list[BlockedTopic]:
        with self._verb() as table:
            return topic_limits.find_blocked_topics(table, self._clock.now())

    async def topics(self, *, tenant: str | None = None) -> list[TopicStats]:
        with self._verb() as table:
            return list(report_queries.topics(table, tenant, self._clock.now()))

    # -- workers ----------------------------------------------------------------------------------------

    async def heartbeat(self, worker: WorkerRecord) -> None:
        with self._verb() as table:
            table.workers[worker.name] = replace(worker, seen_at=self._clock.now())

    async def deregister_worker(self, name: str, started_at: int) -> None:
        with self._verb() as table:
            deregister_worker(table, name, started_at)

    async def workers(self) -> list[WorkerRecord]:
        with self._verb() as table:
            return list_workers(table)

    # -- documents --------------------------------------------------------------------------------------

    async def write_documents(self, documents: Sequence[NewDocument]) -> list[int | None]:
        check_documents(documents)
        with self._verb() as table:
            now = self._clock.now()
            return [document_rows.write(table, document, now) for document in documents]

    async def enqueue_with_document(
        self, document: NewDocument, jobs: Sequence[NewJob]
    ) -> list[Enqueued] | None:
        check_documents([document])
        check_batch("jobs", len(jobs), MAX_ENQUEUE_BATCH)
        with self._verb() as table:
            return enqueue_writes.enqueue_with(table, document, jobs, self._limits, self._clock.now())

    async def document(self, kind: str, document_id: str) -> Document | None:
        with self._verb() as table:
            return document_rows.read(table, kind, document_id, self._clock.now())

    async def documents(
        self, kind: str, *, limit: int, before: tuple[int, str] | None = None
    ) -> list[Document]:
        with self._verb() as table:
            return document_rows.list_documents(table, kind, limit, before, self._clock.now())

    async def remove_document(self, kind: str, document_id: str) -> bool:
        with self._verb() as table:
            return document_rows.remove(table, kind, document_id, self._clock.now())

    # -- reading ----------------------------------------------------------------------------------------

    def notify_on_commit(self, uncommitted: UncommittedEnqueue) -> None:
        """There are no such transactions."""

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        with self._verb() as table:
            job = table.find(job_id, tenant)
            return job_queries.record(table, job) if job is not None else None

    async def dependents(
        self, job_id: UUID, *, limit: int = MAX_DEPENDENTS, tenant: str | None = None
    ) -> Dependents:
        with self._verb() as table:
            return dependencies.dependents(table, job_id, limit, tenant)

    async def job_ids(self, numbers: Sequence[int], *, tenant: str | None = None) -> list[UUID | None]:
        check_batch("numbers", len(numbers), MAX_BATCH)
        with self._verb() as table:
            jobs = [table.find_number(number, tenant) for number in numbers]
            return [job.id if job is not None else None for job in jobs]

    async def peek(self, topic: str, head: TopicHead, *, tenant: str | None = None) -> JobRecord | None:
        with self._verb() as table:
            job = pull.peek(table, topic, head, tenant, self._clock.now())
            return job_queries.record(table, job) if job is not None else None

    async def topic_depths(
        self, topics: Sequence[str] | None = None, *, tenant: str | None = None
    ) -> list[TopicDepth]:
        check_batch("topics", len(topics or ()), MAX_BATCH)
        with self._verb() as table:
            return pull.depths(table, topics, tenant, self._clock.now())

    async def states(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[State | None]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        with self._verb() as table:
            jobs = [table.find(job_id, tenant) for job_id in job_ids]
            return [job.state if job is not None else None for job in jobs]

    async def list_jobs(
        self, where: JobFilter, *, limit: int, cursor: int | None = None, offset: int = 0
    ) -> Page:
        with self._verb() as table:
            scan = job_queries.JobSearch(table, where, self._clock, before=cursor)
            return job_queries.page(scan, limit=limit, offset=offset)

    async def count(self, where: JobFilter, *, exact: bool = False) -> Count:
        limit = None if exact and is_counted(where) else MAX_COUNT
        with self._verb() as table:
            return job_queries.count(job_queries.JobSearch(table, where, self._clock), limit)

    async def stats(self, *, window_seconds: float, tenant: str | None = None) -> Stats:
        with self._verb() as table:
            return report_queries.stats(table, window_seconds, tenant, self._clock.now())

    # -- answering --------------------------------------------------------------------------------------

    async def lanes(self, *, window_seconds: float, tenant: str | None = None) -> list[TaskStats]:
        with self._verb() as table:
            return report_queries.lanes(table, window_seconds, tenant, self._clock.now())

    async def durations(self, *, tenant: str | None = None) -> list[LaneDurations]:
        with self._verb() as table:
            return report_queries.durations(table, tenant)

    async def failures(
        self, where: JobFilter, *, window_seconds: float, limit: int = MAX_GROUPS
    ) -> FailureGroups:
        with self._verb() as table:
            return report_queries.failures(
                table, where, self._clock, window_seconds=window_seconds, limit=limit
            )

    async def duplicate_jobs(self, *, limit: int = MAX_GROUPS, tenant: str | None = None) -> DuplicateJobs:
        with self._verb() as table:
            return report_queries.duplicate_jobs(table, limit, tenant)

    async def longest_running(self, limit: int, *, tenant: str | None = None) -> list[JobRecord]:
        with self._verb() as table:
            return report_queries.longest_running(table, limit, tenant)

    # -- moving to another store ------------------------------------------------------------------------

    async def export_jobs(self, *, limit: int, before: int | None = None) -> list[FullJob]:
        check_batch("jobs", limit, MAX_BATCH)
        with self._verb() as table:
            return transfer.export_jobs(table, limit, before)

    async def import_jobs(self, jobs: Sequence[FullJob]) -> list[bool]:
        check_batch("jobs", len(jobs), MAX_BATCH)
        with self._verb() as table:
            return transfer.import_jobs(table, jobs, self._clock.now())

    # -- hints ------------------------------------------------------------------------------------------

    def wakeups(
        self, *, topics: Collection[str] | None = (), finished: bool = False
    ) -> AbstractAsyncContextManager[Wakeups]:
        return self._table.hub.subscribe(topics=topics, finished=finished)

    @contextmanager
    def _verb(self) -> Iterator[JobTable]:
        """Lock the table, and send hints afterwards for jobs that became due or ended."""
        if not self._open:
            raise NotOpen(f"store {self.url} is not open; call open() first")
        table = self._table
        with table.lock:
            table.guard = self._guard
            yield table
            ready, table.ready_topics = table.ready_topics, set()
            ended, table.has_ended_parents = table.has_ended_parents, False
            rescued = table.rescued
            if rescued:
                table.rescued = []
        if rescued:
            notify_rescued(self.on_rescued, rescued)
        if ready:
            table.hub.notify_ready(ready)
        if ended:
            table.hub.notify_finished()


def _job_table_of(name: str) -> JobTable:
    if not name:
        return JobTable()
    with _tables_lock:
        return _tables_by_name.setdefault(name, JobTable())
