"""The PostgreSQL store: verbs on the outside, functions of the schema on the server's side."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

import msgspec

from tidewheel.core.clock import Clock, SystemClock
from tidewheel.core.clock_guard import ClockGuard
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
    Released,
    Report,
    RescuedJob,
    RescueResult,
    Retried,
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
from tidewheel.errors import LeaseLost, StoreUnavailable
from tidewheel.stores.bounds import (
    MAX_BATCH,
    MAX_DEPENDENTS,
    MAX_ENQUEUE_BATCH,
    MAX_GROUPS,
    StoreLimits,
    check_batch,
)
from tidewheel.stores.documents import check_documents, is_valid_document_id
from tidewheel.stores.external_transaction import UncommittedEnqueue, lowest_numbers_by_topic
from tidewheel.stores.postgres import (
    dependencies,
    health,
    job_queries,
    pull,
    topic_limits,
    transfer,
    worker_registry,
)
from tidewheel.stores.postgres import (
    documents as document_rows,
)
from tidewheel.stores.postgres import (
    reports as report_queries,
)
from tidewheel.stores.postgres import (
    settlements as settlement_writes,
)
from tidewheel.stores.postgres.claims import ERROR_MESSAGES, Claimer
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.dependencies import ReleaseResult
from tidewheel.stores.postgres.enqueue import EnqueueBatcher
from tidewheel.stores.postgres.handler_transaction import PostgresHandlerTransaction
from tidewheel.stores.postgres.location import parse_url
from tidewheel.stores.postgres.maintenance import (
    PRUNES_PER_CLEANUP,
    RELEASES_PER_RESCUE,
    CounterRollup,
    DeferredReleases,
    prune,
)
from tidewheel.stores.postgres.schema import migrate, pending_migrations
from tidewheel.stores.postgres.settlements import held_flags
from tidewheel.stores.postgres.wakeups import ANY_NUMBER, CommitWatcher, Listener, Notifier, ReadyHint
from tidewheel.stores.protocol import OnRescued, Wakeups
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.terminal_errors import CANCELLED_ON_REQUEST, notify_rescued, summarise_error
from tidewheel.stores.transfer import mark_imported
from tidewheel.stores.wakeups import WakeupHub

MAX_UNCERTAIN_SETTLEMENTS: Final = 20_000
"""Settlements without an answer that are remembered."""

_RETURNED_OUTCOMES: Final = frozenset({Retried, Released})

_sql = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")
_log = logging.getLogger("tidewheel.postgres")


class PostgresStore:
    """Jobs in one schema of a PostgreSQL database. Any number of machines may share it."""

    def __init__(self, url: str, *, clock: Clock | None = None, limits: StoreLimits | None = None) -> None:
        self.url = url
        self._clock = clock or SystemClock()
        self._limits = limits or StoreLimits()
        self._database = Database(parse_url(url), self._clock)
        self._hub = WakeupHub()
        self._notifier = Notifier(self._database)
        self._guard = ClockGuard(self._clock)
        self._claimer = Claimer(
            self._database, self._tell_rescued, self._notifier.change_freed_slots, self._guard
        )
        self._writer = EnqueueBatcher(self._database, self._limits, self._after_enqueue)
        self._listener = Listener(self._database, self._notifier.sender, self._handle_hint)
        self._uncertain_settlements: dict[
            Lease, None
        ] = {}  # settled without an answer: the next one must be looked up
        self._commit_watcher = CommitWatcher(self._database, self._notify_ready)
        self._prune_count = 0
        self._counter_rollup = CounterRollup(self._database)
        self.on_rescued: OnRescued | None = None
        self._deferred_releases = DeferredReleases(self._database, self._notify_ready, self._notify_finished)

    # -- life -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._database.open()
        self._commit_watcher.open()

    async def close(self) -> None:
        if self._database.forked:
            return  # tasks and connections of the parent, which goes on using them
        await self._listener.close()
        await self._writer.close()
        self._commit_watcher.close()
        await self._notifier.close()
        self._counter_rollup.close()
        self._deferred_releases.close()
        await self._database.close()

    def sibling(self) -> PostgresStore:
        other = PostgresStore(self.url, clock=self._clock, limits=self._limits)
        other.on_rescued = self.on_rescued
        return other

    async def migrate(self, *, rls: bool = False) -> list[str]:
        return await migrate(self._database, rls=rls)

    async def pending_migrations(self) -> list[str]:
        return await pending_migrations(self._database)

    async def check(self) -> list[str]:
        return await health.check_integrity(self._database)

    async def now(self) -> int:
        return int(await self._database.fetchval(_sql["now"], self._database.now))

    def describe(self) -> dict[str, str]:
        return {
            "store": "postgresql",
            "database": self._database.location.shown,
            "postgresql": self._database.version or "not open",
            "connection": "pooled" if self._database.pooled else "direct",
        }

    async def health(self) -> list[HealthFinding]:
        return await health.find_health_problems(self._database)

    @property
    def notifications_down(self) -> bool:
        return self._listener.notifications_down

    @property
    def clock_step_seconds(self) -> float:
        return self._guard.step_seconds

    # -- writing ----------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        check_batch("jobs", len(jobs), MAX_ENQUEUE_BATCH)
        return await self._writer.enqueue(jobs) if jobs else []

    async def claim(self, request: ClaimRequest) -> Claim:
        claim = await self._claimer.claim(request)
        if claim.jobs:
            self._counter_rollup.count_written(len(claim.jobs))
        return claim

    async def claim_job(
        self, job_id: UUID, *, worker: str, lease_seconds: float, tenant: str | None = None
    ) -> Claimed | None:
        await self._run_maintenance()
        claimed = await self._claimer.claim_job(job_id, tenant, worker, lease_seconds)
        if claimed is not None:
            self._counter_rollup.count_written(1)
        return claimed

    async def mark_started(
        self, leases: Sequence[Lease], *, run_seconds: Sequence[float] = (), alone: bool = True
    ) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        return held_flags(
            leases, await settlement_writes.mark_started(self._database, leases, run_seconds, alone=alone)
        )

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        held = (
            await settlement_writes.extend_leases(self._database, leases, lease_seconds) if leases else set()
        )
        return held_flags(leases, held)

    async def touch(self, leases: Sequence[Lease], lease_seconds: float) -> list[float | None]:
        check_batch("leases", len(leases), MAX_BATCH)
        return await pull.touch(self._database, leases, lease_seconds) if leases else []

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        check_batch("settlements", len(settlements), MAX_BATCH)
        if not settlements:
            return []
        freed = ReleaseResult()
        try:
            answers = await settlement_writes.settle_jobs(self._database, settlements, freed)
            if self._uncertain_settlements and not all(answers):
                answers = await self._confirm_settlements(settlements, answers)
        except (StoreUnavailable, asyncio.CancelledError):
            # The reply may have been lost after the commit. The caller will try again, and must not be told
            # then that somebody else has taken the job.
            self._uncertain_settlements.update(
                dict.fromkeys([settlement.lease for settlement in settlements])
            )
            while (
                len(self._uncertain_settlements) > MAX_UNCERTAIN_SETTLEMENTS
            ):  # given up by their workers long ago
                del self._uncertain_settlements[next(iter(self._uncertain_settlements))]
            raise
        if self._uncertain_settlements:
            for settlement in settlements:
                self._uncertain_settlements.pop(settlement.lease, None)
        self._after_settle(settlements, answers, freed)
        return answers

    async def _confirm_settlements(
        self, settlements: Sequence[Settlement], answers: list[bool]
    ) -> list[bool]:
        """What was refused may have been written by an earlier try, whose answer was lost."""
        held = {item.lease for item, accepted in zip(settlements, answers, strict=True) if accepted}
        refused = [
            item
            for item in settlements
            if item.lease not in held and item.lease in self._uncertain_settlements
        ]
        if refused:
            held |= await settlement_writes.find_settled(self._database, refused)
        return settlement_writes.held_flags_once([item.lease for item in settlements], held)

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        check_batch("reports", len(reports), MAX_BATCH)
        held = await settlement_writes.save_reports(self._database, reports) if reports else set()
        return held_flags([item.lease for item in reports], held)

    async def finished_steps(self, lease: Lease) -> tuple[StepRecord, ...] | None:
        return await settlement_writes.finished_steps(self._database, lease)

    async def cancel_requests(self, leases: Sequence[Lease]) -> list[Lease]:
        check_batch("leases", len(leases), MAX_BATCH)
        asked = await settlement_writes.cancel_requests(self._database, leases) if leases else set()
        return [lease for lease in leases if lease in asked]

    async def begin_transaction(
        self,
        lease: Lease,
        *,
        lease_seconds: float,
        seconds: float,
        tenant: str,
        on_timeout: Callable[[], None],
        run_seconds: float = 0.0,
    ) -> PostgresHandlerTransaction:
        # Gives a job in a batch a row of its own: the others of its batch must not wait for the end of this.
        if not (await self.mark_started([lease], run_seconds=[run_seconds], alone=False))[0]:
            raise LeaseLost(
                f"job {lease.job_id} is no longer held by this run (fence {lease.fence}); "
                "no transaction was begun"
            )
        lent = PostgresHandlerTransaction(
            self._database,
            lease,
            # Rows that it locks may be those of jobs whose leases have to be extended.
            seconds=min(seconds, lease_seconds / 3),
            lease_seconds=lease_seconds,
            on_timeout=on_timeout,
            limit_problem=self._writer.limit_problem,
            on_enqueued=self._after_enqueue,
            on_settled=self._after_settle,
        )
        await lent.open(tenant)
        return lent

    # -- operating --------------------------------------------------------------------------------------

    async def requeue(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        rows = await pull.change(self._database, "requeue", job_ids, tenant)
        self._counter_rollup.count_written(len(rows))
        await self._tell({topic: ANY_NUMBER for _, _, topic in rows if topic is not None})
        return [ActionResult(verdict) for _, verdict, _ in sorted(rows)]

    async def cancel(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        summary = summarise_error(CANCELLED_ON_REQUEST)
        rows = await self._database.fetch_for(
            tenant, _sql["cancel"], self._database.now, list(job_ids), tenant, summary
        )
        freed = ReleaseResult()
        verdicts = [ActionResult(verdict) for _, verdict in sorted(freed.split_rows(rows))]
        if ActionResult.DONE in verdicts:
            self._notify_finished()
            await self._wake_limited_topics()
        self._counter_rollup.count_written(len(rows))
        self._deferred_releases.schedule(freed)
        return verdicts

    async def take_back(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        freed = ReleaseResult()
        verdicts, topics = await pull.take_back(self._database, job_ids, tenant, freed)
        if len(topics) < verdicts.count(ActionResult.DONE):  # the others ended as cancelled
            self._notify_finished()
            await self._wake_limited_topics()
        self._counter_rollup.count_written(len(verdicts))
        self._deferred_releases.schedule(freed)
        await self._tell(dict.fromkeys(topics, ANY_NUMBER))
        return verdicts

    async def delete(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        rows = await pull.change(self._database, "remove", job_ids, tenant)
        self._counter_rollup.count_written(len(rows))
        freed = ReleaseResult()
        verdicts = [ActionResult(verdict) for _, verdict in sorted(freed.split_rows(rows))]
        if freed.unfinished:
            # What was kept for those that are gone now need not be kept any longer.
            freed.unfinished = await self._deferred_releases.run(1)
        self._deferred_releases.schedule(freed)
        if ActionResult.DONE in verdicts:
            await self._wake_limited_topics()
        return verdicts

    async def kick(
        self, topic: str, limit: int, *, tenant: str | None = None, failed_only: bool = False
    ) -> int:
        check_batch("jobs", limit, MAX_BATCH)
        if limit <= 0:
            return 0
        kicked = await pull.kick(self._database, topic, limit, tenant, failed_only=failed_only)
        if kicked:
            self._counter_rollup.count_written(kicked)
            await self._tell({topic: ANY_NUMBER})
        return kicked

    async def kick_jobs(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        rows = await pull.change(self._database, "kick_jobs", job_ids, tenant) if job_ids else []
        self._counter_rollup.count_written(len(rows))
        await self._tell({topic: ANY_NUMBER for _, _, topic in rows if topic is not None})
        return [ActionResult(verdict) for _, verdict, _ in sorted(rows)]

    async def rescue(self, limit: int = MAX_BATCH) -> RescueResult:
        await self._deferred_releases.run(RELEASES_PER_RESCUE)
        latest = await self._claimer.latest_trusted_time()
        row = await self._database.fetchrow(
            _sql["rescue"],
            self._database.now,
            limit,
            self._claimer.maintained_until(),
            ERROR_MESSAGES,
            latest,
        )
        rescued = self._rescued(row) if row is not None else RescueResult()
        if rescued.total > rescued.returned:
            await self._wake_limited_topics()
        return rescued

    def _rescued(self, row: Sequence[Any]) -> RescueResult:
        returned, failed, cancelled, expired, topics, told = row
        if told:
            self._tell_rescued(told)
        if topics:
            self._notify_ready(dict.fromkeys(topics, ANY_NUMBER))
        if failed or cancelled or expired:
            self._notify_finished()
        return RescueResult(returned, failed, cancelled, expired)

    def _tell_rescued(self, told: Sequence[str]) -> None:
        if self.on_rescued is not None:
            notify_rescued(self.on_rescued, [msgspec.json.decode(one, type=RescuedJob) for one in told])

    async def _run_maintenance(self) -> None:
        """What a claim does before it chooses, for those who look at single jobs."""
        if self._database.sees_one_tenant:
            return  # who sees one tenant leaves it to those who see all
        row = await self._database.fetchrow(
            _sql["run_maintenance"],
            self._database.now,
            self._claimer.maintained_until(),
            ERROR_MESSAGES,
            await self._claimer.latest_trusted_time(),
        )
        if row is not None:
            *rescued, promoted = row
            self._rescued(rescued)
            if promoted:
                self._claimer.notify_ready(None)

    async def prune(self, limit: int = MAX_BATCH) -> dict[State, int]:
        now = self._guard.confirmed_time(await self.now())
        await self._deferred_releases.wait()
        await self._deferred_releases.run(1)  # what need not be kept for others any longer
        pruned = await prune(self._database, limit, now)
        await self._deferred_releases.run(1)
        await worker_registry.remove_vanished_workers(self._database, now)
        self._prune_count += 1
        if sum(pruned.values()) < limit or self._prune_count % PRUNES_PER_CLEANUP == 0:
            await document_rows.remove_expired(self._database, limit, now)
            await topic_limits.remove_idle_meters(self._database, limit, now)
            await self._counter_rollup.run()
        return pruned

    async def pause(self, topic: str, until: int | None) -> None:
        await topic_limits.pause(self._database, topic, until)
        await self._tell({topic: ANY_NUMBER})

    async def set_limits(self, topic: str, limits: TopicLimits | None) -> bool:
        if done := await topic_limits.set_limits(self._database, topic, limits):
            await self._tell({topic: ANY_NUMBER})
        return done

    async def limits(self) -> dict[str, TopicLimits]:
        return await topic_limits.limits(self._database)

    async def blocked_by_limits(self) -> list[BlockedTopic]:
        return await topic_limits.find_blocked_topics(self._database)

    async def _wake_limited_topics(self) -> None:
        """Jobs ended, it is not known of which topics: whoever waits for a limit is to look again."""
        # Who sees one tenant sees no limits; whoever waits looks again by itself, a second later at most.
        if not self._database.sees_one_tenant:
            self._notify_ready(dict.fromkeys(await topic_limits.limited_topics(self._database), ANY_NUMBER))

    async def topics(self, *, tenant: str | None = None) -> list[TopicStats]:
        return await report_queries.topics(self._database, tenant)

    # -- workers ----------------------------------------------------------------------------------------

    async def heartbeat(self, worker: WorkerRecord) -> None:
        await worker_registry.record_heartbeat(self._database, worker)

    async def deregister_worker(self, name: str, started_at: int) -> None:
        await worker_registry.deregister_worker(self._database, name, started_at)

    async def workers(self) -> list[WorkerRecord]:
        return await worker_registry.list_workers(self._database)

    # -- documents --------------------------------------------------------------------------------------

    async def write_documents(self, documents: Sequence[NewDocument]) -> list[int | None]:
        check_documents(documents)
        return await document_rows.write_documents(self._database, documents) if documents else []

    async def enqueue_with_document(
        self, document: NewDocument, jobs: Sequence[NewJob]
    ) -> list[Enqueued] | None:
        check_documents([document])
        check_batch("jobs", len(jobs), MAX_ENQUEUE_BATCH)
        answers = await self._writer.enqueue_with_document(document, jobs)
        if answers:
            await self._after_enqueue(jobs, answers)
        return answers

    async def document(self, kind: str, document_id: str) -> Document | None:
        if not is_valid_document_id(kind, document_id):
            return None
        return await document_rows.read(self._database, kind, document_id)

    async def documents(
        self, kind: str, *, limit: int, before: tuple[int, str] | None = None
    ) -> list[Document]:
        return await document_rows.list_documents(self._database, kind, limit, before)

    async def remove_document(self, kind: str, document_id: str) -> bool:
        return is_valid_document_id(kind, document_id) and await document_rows.remove(
            self._database, kind, document_id
        )

    # -- reading ----------------------------------------------------------------------------------------

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        return await job_queries.get(self._database, job_id, tenant)

    async def dependents(
        self, job_id: UUID, *, limit: int = MAX_DEPENDENTS, tenant: str | None = None
    ) -> Dependents:
        return await dependencies.dependents(self._database, job_id, limit, tenant)

    async def job_ids(self, numbers: Sequence[int], *, tenant: str | None = None) -> list[UUID | None]:
        check_batch("numbers", len(numbers), MAX_BATCH)
        return await pull.job_ids(self._database, numbers, tenant) if numbers else []

    async def peek(self, topic: str, head: TopicHead, *, tenant: str | None = None) -> JobRecord | None:
        await self._run_maintenance()
        return await pull.peek(self._database, topic, head, tenant)

    async def topic_depths(
        self, topics: Sequence[str] | None = None, *, tenant: str | None = None
    ) -> list[TopicDepth]:
        check_batch("topics", len(topics or ()), MAX_BATCH)
        return await pull.depths(self._database, topics, tenant)

    async def states(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[State | None]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        return await job_queries.states(self._database, job_ids, tenant)

    async def list_jobs(
        self, where: JobFilter, *, limit: int, cursor: int | None = None, offset: int = 0
    ) -> Page:
        return await job_queries.list_jobs(self._database, where, limit=limit, cursor=cursor, offset=offset)

    async def count(self, where: JobFilter, *, exact: bool = False) -> Count:
        return await job_queries.count(self._database, where, beyond=exact)

    async def stats(self, *, window_seconds: float, tenant: str | None = None) -> Stats:
        return await report_queries.stats(self._database, window_seconds, tenant)

    # -- answering --------------------------------------------------------------------------------------

    async def lanes(self, *, window_seconds: float, tenant: str | None = None) -> list[TaskStats]:
        return await report_queries.lanes(self._database, window_seconds, tenant)

    async def durations(self, *, tenant: str | None = None) -> list[LaneDurations]:
        return await report_queries.durations(self._database, tenant)

    async def failures(
        self, where: JobFilter, *, window_seconds: float, limit: int = MAX_GROUPS
    ) -> FailureGroups:
        return await report_queries.failures(
            self._database, where, window_seconds=window_seconds, limit=limit
        )

    async def duplicate_jobs(self, *, limit: int = MAX_GROUPS, tenant: str | None = None) -> DuplicateJobs:
        return await report_queries.duplicate_jobs(self._database, limit, tenant)

    async def longest_running(self, limit: int, *, tenant: str | None = None) -> list[JobRecord]:
        return await report_queries.longest_running(self._database, limit, tenant)

    # -- moving to another store ------------------------------------------------------------------------

    async def export_jobs(self, *, limit: int, before: int | None = None) -> list[FullJob]:
        check_batch("jobs", limit, MAX_BATCH)
        return await transfer.export_jobs(self._database, limit, before)

    async def import_jobs(self, jobs: Sequence[FullJob]) -> list[bool]:
        check_batch("jobs", len(jobs), MAX_BATCH)
        if not jobs:
            return []
        placed = await transfer.import_jobs(self._database, jobs, await self.now())
        self._counter_rollup.count_written(len(placed))
        await self._tell({job.record.topic: ANY_NUMBER for job in placed})
        return mark_imported(jobs, placed)

    # -- hints ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def wakeups(
        self, *, topics: Collection[str] | None = (), finished: bool = False
    ) -> AsyncIterator[Wakeups]:
        async with self._hub.subscribe(topics=topics, finished=finished) as subscription:
            channels = self._notifier.channels
            wanted = [channels.ready] if topics is None or topics else []
            await self._listener.start(*wanted, *([channels.finished] if finished else []))
            yield subscription

    def notify_on_commit(self, uncommitted: UncommittedEnqueue) -> None:
        self._commit_watcher.watch(uncommitted)

    async def _after_enqueue(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        self._counter_rollup.count_written(len(jobs))
        # A sleeping worker must learn of delayed jobs, too.
        await self._tell(lowest_numbers_by_topic(jobs, answers))

    def _after_settle(
        self, settlements: Sequence[Settlement], answers: Sequence[bool], released: ReleaseResult
    ) -> None:
        kinds = {type(item.outcome) for item, accepted in zip(settlements, answers, strict=True) if accepted}
        if not kinds.isdisjoint(_RETURNED_OUTCOMES):
            # Which topics they were of is not known here, and does not matter: this is rare.
            self._notify_ready_locally(None)
            self._notifier.notify_ready_anywhere()
        if not kinds <= _RETURNED_OUTCOMES:
            self._notify_finished()
        if self._claimer.limited_grants:
            room = self._claimer.freed_slots(settlements)
            self._notify_ready_locally(dict.fromkeys(room, ANY_NUMBER))
            self._notifier.change_freed_slots(room)
        self._counter_rollup.count_written(len(settlements))
        self._deferred_releases.schedule(released)

    async def _tell(self, places: Mapping[str, int]) -> None:
        """Announce ready jobs as ``_notify_ready`` does, before the caller goes on: it may block the event
        loop.
        """
        if places:
            self._notify_ready_locally(places)
            await self._notifier.notify_ready_and_wait(places)

    def _notify_ready(self, places: Mapping[str, int]) -> None:
        """Jobs of these topics became ready, none with a number below the one given."""
        if places:
            self._notify_ready_locally(places)
            self._notifier.notify_ready(places)

    def _notify_ready_locally(self, places: Mapping[str, int] | None) -> None:
        """Likewise, without a word to other processes. None: in any topic."""
        self._claimer.notify_ready(places)
        self._hub.notify_ready(places)

    def _notify_finished(self) -> None:
        self._hub.notify_finished()
        self._notifier.notify_finished()

    def _handle_hint(self, hint: ReadyHint) -> None:
        if hint.lowest_numbers is None or hint.lowest_numbers:
            self._notify_ready_locally(hint.lowest_numbers)
        if hint.finished:
            self._hub.notify_finished()
