"""The SQLite store: verbs on the outside, a writer thread and reader threads inside."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from tidewheel.core.clock import Clock, SystemClock
from tidewheel.core.full_job import FullJob
from tidewheel.core.model import (
    RELEASED_UNSEEN,
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
    RescuedJob,
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
from tidewheel.errors import ConfigurationError, NotOpen, StoreError, StoreUnavailable
from tidewheel.stores.bounds import (
    MAX_BATCH,
    MAX_DEPENDENTS,
    MAX_ENQUEUE_BATCH,
    MAX_GROUPS,
    StoreLimits,
    check_batch,
)
from tidewheel.stores.documents import check_documents, is_valid_document_id
from tidewheel.stores.external_transaction import UncommittedEnqueue
from tidewheel.stores.protocol import OnRescued, Wakeups
from tidewheel.stores.sqlite import (
    admin,
    claims,
    dependencies,
    health,
    job_queries,
    maintenance,
    pull,
    topic_limits,
    transfer,
    worker_registry,
)
from tidewheel.stores.sqlite import (
    documents as document_rows,
)
from tidewheel.stores.sqlite import (
    enqueue as enqueue_writes,
)
from tidewheel.stores.sqlite import (
    reports as report_queries,
)
from tidewheel.stores.sqlite import (
    settlements as settlement_writes,
)
from tidewheel.stores.sqlite import (
    wakeups as process_wakeup,
)
from tidewheel.stores.sqlite.claims import maintenance_due
from tidewheel.stores.sqlite.connection import connect
from tidewheel.stores.sqlite.file_identity import check_shared_wal
from tidewheel.stores.sqlite.handler_transaction import SqliteHandlerTransaction
from tidewheel.stores.sqlite.health import check_integrity
from tidewheel.stores.sqlite.location import check_location, parse_url
from tidewheel.stores.sqlite.reader import ReadCoalescer, Reader
from tidewheel.stores.sqlite.reports import stats, topics
from tidewheel.stores.sqlite.schema import migrate, pending_migrations
from tidewheel.stores.sqlite.wakeups import Listener, ProcessWakeup
from tidewheel.stores.sqlite.write_transaction import WriteTransaction
from tidewheel.stores.sqlite.writer import Writer, one_by_one
from tidewheel.stores.terminal_errors import notify_rescued
from tidewheel.stores.wakeups import WakeupHub

R = TypeVar("R")

_log = logging.getLogger("tidewheel.sqlite")


class SqliteStore:
    """Jobs in one SQLite file. Several processes of one machine may share it."""

    def __init__(self, url: str, *, clock: Clock | None = None, limits: StoreLimits | None = None) -> None:
        self.url = url
        self._location = parse_url(url)
        self._clock = clock or SystemClock()
        self._limits = limits or StoreLimits()
        self._hub = WakeupHub()
        self._process_wakeup = ProcessWakeup(self._hub, self._refresh_registration)
        self._open: tuple[Writer, Reader, ReadCoalescer] | None = None
        self.on_rescued: OnRescued | None = None

    # -- life -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._open is not None:
            return
        await asyncio.to_thread(check_location, self._location)
        await asyncio.to_thread(check_shared_wal, self._location)
        loop = asyncio.get_running_loop()
        writer = await asyncio.to_thread(
            Writer,
            self._location,
            self._clock,
            self._limits,
            self._process_wakeup,
            loop,
            self._tell_rescued,
            _release,
        )
        reader = Reader(self._location, writer.file_identity)
        self._open = (writer, reader, ReadCoalescer(reader))

    async def close(self) -> None:
        if self._open is None:
            return
        writer, reader, _ = self._open
        try:
            port = await asyncio.to_thread(self._process_wakeup.stop_listening)
            if port is not None:
                await writer.run(_unregister, port)
        except (StoreError, OSError) as error:
            # Others drop the port by themselves after a while.
            _log.warning("this process is still listed for wake-ups: %s", error)
        self._open = None
        await asyncio.to_thread(reader.close)
        await asyncio.to_thread(writer.close)
        self._process_wakeup.close()

    def _tell_rescued(self, jobs: Sequence[RescuedJob]) -> None:
        notify_rescued(self.on_rescued, jobs)

    def sibling(self) -> SqliteStore:
        other = SqliteStore(self.url, clock=self._clock, limits=self._limits)
        if self._open is not None:
            other._location = replace(self._location, create=False)
        other.on_rescued = self.on_rescued
        return other

    async def migrate(self, *, rls: bool = False) -> list[str]:
        if rls:
            raise ConfigurationError(
                f"{self._location.path} is a SQLite file, which knows no roles; row-level security needs a "
                "postgresql:// URL"
            )
        return await asyncio.to_thread(self._migrate)

    async def pending_migrations(self) -> list[str]:
        return await self._reader.run(lambda connection: pending_migrations(connection, self._location))

    async def check(self) -> list[str]:
        return await self._reader.run(lambda connection: check_integrity(connection, self._location))

    async def now(self) -> int:
        return self._clock.now()

    def describe(self) -> dict[str, str]:
        return {
            "store": "sqlite",
            "file": self._location.path,
            "sqlite": sqlite3.sqlite_version,
            "synchronous": self._location.synchronous.lower(),
        }

    async def health(self) -> list[HealthFinding]:
        now = self._clock.now()
        return await self._reader.run(
            lambda connection: health.find_health_problems(connection, self._location, now)
        )

    @property
    def notifications_down(self) -> bool:
        return False  # a doorbell that does not ring is rung again by itself, see ``wakeups``

    @property
    def clock_step_seconds(self) -> float:
        return 0.0 if self._open is None else self._open[0].guard.step_seconds

    # -- writing ----------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        check_batch("jobs", len(jobs), MAX_ENQUEUE_BATCH)
        return await self._writer.run(enqueue_writes.enqueue, jobs, coalesce=True) if jobs else []

    async def claim(self, request: ClaimRequest) -> Claim:
        claim = self._writer.run(_claim, request, durable=request.durable)
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            # The writing thread goes on. What it grants to somebody who has left is free again at once.
            claim.add_done_callback(lambda done: self._release_unclaimed(_result_or(done, Claim(())).jobs))
            raise

    async def claim_job(
        self, job_id: UUID, *, worker: str, lease_seconds: float, tenant: str | None = None
    ) -> Claimed | None:
        granting = self._writer.run(_grant, pull.ClaimJobRequest(job_id, tenant, worker, lease_seconds))
        try:
            return await asyncio.shield(granting)
        except asyncio.CancelledError:  # likewise
            granting.add_done_callback(lambda done: self._release_unclaimed([_result_or(done, None)]))
            raise

    def _release_unclaimed(self, jobs: Sequence[Claimed | None]) -> None:
        settlements = [Settlement(job.lease, RELEASED_UNSEEN) for job in jobs if job is not None]
        if settlements and self._open is not None:
            self._open[0].post(_settle, settlements)

    async def mark_started(
        self, leases: Sequence[Lease], *, run_seconds: Sequence[float] = (), alone: bool = True
    ) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        return await self._writer.run(_start, (leases, run_seconds, alone)) if leases else []

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        return await self._writer.run(_extend, (leases, lease_seconds)) if leases else []

    async def touch(self, leases: Sequence[Lease], lease_seconds: float) -> list[float | None]:
        check_batch("leases", len(leases), MAX_BATCH)
        return await self._writer.run(_touch, (leases, lease_seconds)) if leases else []

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        check_batch("settlements", len(settlements), MAX_BATCH)
        return await self._writer.run(_settle, settlements) if settlements else []

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        check_batch("reports", len(reports), MAX_BATCH)
        return await self._writer.run(_report, reports) if reports else []

    async def finished_steps(self, lease: Lease) -> tuple[StepRecord, ...] | None:
        now = self._clock.now()
        return await self._reader.run(lambda connection: job_queries.finished_steps(connection, lease, now))

    async def cancel_requests(self, leases: Sequence[Lease]) -> list[Lease]:
        check_batch("leases", len(leases), MAX_BATCH)
        now = self._clock.now()
        return await self._reader.run(lambda connection: job_queries.cancel_requests(connection, leases, now))

    async def begin_transaction(
        self,
        lease: Lease,
        *,
        lease_seconds: float,
        seconds: float,
        tenant: str,  # noqa: ARG002 - there are no row-level policies to tell it to
        on_timeout: Callable[[], None],
        run_seconds: float = 0.0,  # noqa: ARG002 - begins without recording a start
    ) -> SqliteHandlerTransaction:
        # Nobody can extend a lease meanwhile, so two thirds of each must be left when it is over.
        seconds = min(seconds, lease_seconds / 3)
        lent = SqliteHandlerTransaction(
            self._location, lease, lease_seconds=lease_seconds, seconds=seconds, on_timeout=on_timeout
        )
        self._writer.run_handler_transaction(lent)
        await lent.open()
        return lent

    # -- operating --------------------------------------------------------------------------------------

    async def requeue(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        return await self._writer.run(_requeue, (job_ids, tenant)) if job_ids else []

    async def cancel(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        return await self._writer.run(_cancel, (job_ids, tenant)) if job_ids else []

    async def take_back(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        return await self._writer.run(_take_back, (job_ids, tenant)) if job_ids else []

    async def delete(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        return await self._writer.run(_delete, (job_ids, tenant)) if job_ids else []

    async def kick(
        self, topic: str, limit: int, *, tenant: str | None = None, failed_only: bool = False
    ) -> int:
        check_batch("jobs", limit, MAX_BATCH)
        return await self._writer.run(_kick, (topic, limit, tenant, failed_only)) if limit > 0 else 0

    async def kick_jobs(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        return await self._writer.run(_kick_jobs, (job_ids, tenant)) if job_ids else []

    async def rescue(self, limit: int = MAX_BATCH) -> RescueResult:
        return await self._writer.run(_rescue, limit)

    async def prune(self, limit: int = MAX_BATCH) -> dict[State, int]:
        return await self._writer.run(_prune, limit, durable=False)  # undone by a power cut, it is done again

    async def pause(self, topic: str, until: int | None) -> None:
        await self._writer.run(_pause, (topic, until))

    async def set_limits(self, topic: str, limits: TopicLimits | None) -> bool:
        return await self._writer.run(_set_limits, (topic, limits))

    async def limits(self) -> dict[str, TopicLimits]:
        return await self._reader.run(topic_limits.limits)

    async def blocked_by_limits(self) -> list[BlockedTopic]:
        now = self._clock.now()
        return await self._reader.run(lambda connection: topic_limits.find_blocked_topics(connection, now))

    async def topics(self, *, tenant: str | None = None) -> list[TopicStats]:
        now = self._clock.now()
        return await self._reader.run(lambda connection: topics(connection, now, tenant))

    # -- workers ----------------------------------------------------------------------------------------

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await self._writer.run(_beat, worker)

    async def deregister_worker(self, name: str, started_at: int) -> None:
        await self._writer.run(_leave, (name, started_at))

    async def workers(self) -> list[WorkerRecord]:
        return await self._reader.run(worker_registry.list_workers)

    # -- documents --------------------------------------------------------------------------------------

    async def write_documents(self, documents: Sequence[NewDocument]) -> list[int | None]:
        check_documents(documents)
        return await self._writer.run(_write_documents, documents) if documents else []

    async def enqueue_with_document(
        self, document: NewDocument, jobs: Sequence[NewJob]
    ) -> list[Enqueued] | None:
        check_documents([document])
        check_batch("jobs", len(jobs), MAX_ENQUEUE_BATCH)
        return await self._writer.run(_enqueue_with, (document, jobs))

    async def document(self, kind: str, document_id: str) -> Document | None:
        if not is_valid_document_id(kind, document_id):
            return None
        now = self._clock.now()
        return await self._reader.run(
            lambda connection: document_rows.read(connection, kind, document_id, now)
        )

    async def documents(
        self, kind: str, *, limit: int, before: tuple[int, str] | None = None
    ) -> list[Document]:
        now = self._clock.now()
        return await self._reader.run(
            lambda connection: document_rows.list_documents(connection, kind, limit, before, now)
        )

    async def remove_document(self, kind: str, document_id: str) -> bool:
        return is_valid_document_id(kind, document_id) and await self._writer.run(
            _remove_document, (kind, document_id)
        )

    # -- reading ----------------------------------------------------------------------------------------

    def notify_on_commit(self, uncommitted: UncommittedEnqueue) -> None:
        """The doorbell rings by itself there."""

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        if self._open is None:
            raise NotOpen(f"the store {self.url} is not open")
        return await self._open[2].get(job_id, tenant)

    async def dependents(
        self, job_id: UUID, *, limit: int = MAX_DEPENDENTS, tenant: str | None = None
    ) -> Dependents:
        return await self._reader.run(
            lambda connection: dependencies.dependents(connection, job_id, limit, tenant)
        )

    async def job_ids(self, numbers: Sequence[int], *, tenant: str | None = None) -> list[UUID | None]:
        check_batch("numbers", len(numbers), MAX_BATCH)
        return await self._reader.run(lambda connection: pull.job_ids(connection, numbers, tenant))

    async def peek(self, topic: str, head: TopicHead, *, tenant: str | None = None) -> JobRecord | None:
        now = self._clock.now()
        if await self._reader.run(lambda connection: maintenance_due(connection, now)):
            await self._writer.run(_tend, None)
        return await self._reader.run(lambda connection: pull.peek(connection, topic, head, tenant, now))

    async def topic_depths(
        self, topics: Sequence[str] | None = None, *, tenant: str | None = None
    ) -> list[TopicDepth]:
        check_batch("topics", len(topics or ()), MAX_BATCH)
        now = self._clock.now()
        return await self._reader.run(lambda connection: pull.depths(connection, topics, tenant, now))

    async def states(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[State | None]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        return await self._reader.run(lambda connection: job_queries.states(connection, job_ids, tenant))

    async def list_jobs(
        self, where: JobFilter, *, limit: int, cursor: int | None = None, offset: int = 0
    ) -> Page:
        now = self._clock.now()
        return await self._reader.run(
            lambda connection: job_queries.list_jobs(
                connection, where, limit=limit, cursor=cursor, offset=offset, now=now
            )
        )

    async def count(self, where: JobFilter, *, exact: bool = False) -> Count:
        now = self._clock.now()
        return await self._reader.run(
            lambda connection: job_queries.count(connection, where, now, beyond=exact)
        )

    async def stats(self, *, window_seconds: float, tenant: str | None = None) -> Stats:
        now = self._clock.now()
        return await self._reader.run(lambda connection: stats(connection, now, window_seconds, tenant))

    # -- answering --------------------------------------------------------------------------------------

    async def lanes(self, *, window_seconds: float, tenant: str | None = None) -> list[TaskStats]:
        now = self._clock.now()
        return await self._reader.run(
            lambda connection: report_queries.lanes(connection, now, window_seconds, tenant)
        )

    async def durations(self, *, tenant: str | None = None) -> list[LaneDurations]:
        return await self._reader.run(lambda connection: report_queries.durations(connection, tenant))

    async def failures(
        self, where: JobFilter, *, window_seconds: float, limit: int = MAX_GROUPS
    ) -> FailureGroups:
        now = self._clock.now()
        return await self._reader.run(
            lambda connection: report_queries.failures(
                connection, where, now, window_seconds=window_seconds, limit=limit
            )
        )

    async def duplicate_jobs(self, *, limit: int = MAX_GROUPS, tenant: str | None = None) -> DuplicateJobs:
        return await self._reader.run(
            lambda connection: report_queries.duplicate_jobs(connection, limit, tenant)
        )

    async def longest_running(self, limit: int, *, tenant: str | None = None) -> list[JobRecord]:
        return await self._reader.run(
            lambda connection: report_queries.longest_running(connection, limit, tenant)
        )

    # -- moving to another store ------------------------------------------------------------------------

    async def export_jobs(self, *, limit: int, before: int | None = None) -> list[FullJob]:
        check_batch("jobs", limit, MAX_BATCH)
        return await self._reader.run(lambda connection: transfer.export_jobs(connection, limit, before))

    async def import_jobs(self, jobs: Sequence[FullJob]) -> list[bool]:
        check_batch("jobs", len(jobs), MAX_BATCH)
        return await self._writer.run(_place, jobs) if jobs else []

    # -- hints ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def wakeups(
        self, *, topics: Collection[str] | None = (), finished: bool = False
    ) -> AsyncIterator[Wakeups]:
        async with self._hub.subscribe(topics=topics, finished=finished) as subscription:
            ready = topics is None or bool(topics)
            registration = self._process_wakeup.listen(ready=ready, finished=finished)
            if registration is not None:
                try:
                    await self._writer.run(_register, registration)
                    self._process_wakeup.confirm_registration(registration)
                except StoreUnavailable as error:
                    # A hint that cannot be ordered now is no reason not to start; it is tried again later.
                    _log.warning("wake-ups are not registered, polling until they are: %s", error)
            yield subscription

    # -- inside -----------------------------------------------------------------------------------------

    @property
    def _writer(self) -> Writer:
        if self._open is None:
            raise NotOpen(f"the store {self.url} is not open")
        return self._open[0]

    @property
    def _reader(self) -> Reader:
        if self._open is None:
            raise NotOpen(f"the store {self.url} is not open")
        return self._open[1]

    def _migrate(self) -> list[str]:
        connection = connect(self._location)
        try:
            return migrate(connection, self._location, self._clock.now())
        finally:
            connection.close()

    def _refresh_registration(self, registration: Listener) -> None:
        if self._open is not None:
            self._open[0].post(_register, registration)


def _register_listener(transaction: WriteTransaction, listener: Listener) -> None:
    process_wakeup.register(transaction.connection, listener, transaction.now)


def _unregister_listener(transaction: WriteTransaction, port: int) -> None:
    process_wakeup.unregister(transaction.connection, port)


def _result_or(future: asyncio.Future[R], otherwise: R) -> R:
    """What it came to, unless it came to nothing."""
    return otherwise if future.cancelled() or future.exception() is not None else future.result()


_claim = one_by_one(claims.claim)
_grant = one_by_one(pull.claim_job)
_start = one_by_one(settlement_writes.mark_started)
_extend = one_by_one(settlement_writes.extend_leases)
_touch = one_by_one(pull.touch)
_settle = one_by_one(dependencies.then_release_dependents(settlement_writes.settle))
_report = one_by_one(settlement_writes.save_reports)
_requeue = one_by_one(admin.requeue)
_cancel = one_by_one(dependencies.then_release_dependents(admin.cancel))
_take_back = one_by_one(dependencies.then_release_dependents(admin.take_back))
_delete = one_by_one(dependencies.then_release_dependents(admin.delete))
_kick = one_by_one(pull.kick)
_kick_jobs = one_by_one(pull.kick_jobs)
_tend = one_by_one(pull.run_maintenance)
_release = one_by_one(dependencies.release_dependents)
_rescue = one_by_one(maintenance.rescue_jobs)
_prune = one_by_one(maintenance.prune)
_pause = one_by_one(admin.pause)
_set_limits = one_by_one(topic_limits.set_limits)
_place = one_by_one(transfer.import_jobs)
_beat = one_by_one(worker_registry.record_heartbeat)
_leave = one_by_one(worker_registry.deregister_worker)
_write_documents = one_by_one(document_rows.write_documents)
_enqueue_with = one_by_one(enqueue_writes.enqueue_with_document)
_remove_document = one_by_one(document_rows.remove)
_register = one_by_one(_register_listener)
_unregister = one_by_one(_unregister_listener)
