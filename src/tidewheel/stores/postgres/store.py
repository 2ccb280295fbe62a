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
from tidewheel.core.full_job import WholeJob
from tidewheel.core.model import (
    Claim,
    Claimed,
    ClaimRequest,
    Count,
    Dependents,
    Document,
    Enqueued,
    Head,
    JobFilter,
    JobRecord,
    Lease,
    NewDocument,
    NewJob,
    Page,
    Released,
    Report,
    Rescued,
    RescuedJob,
    Retried,
    Settlement,
    State,
    Stats,
    StepRecord,
    TopicDepth,
    TopicStats,
    Verdict,
    WorkerRecord,
)
from tidewheel.core.reports import Ailment, Failures, LaneDurations, Repeats, TaskStats
from tidewheel.core.topic_limits import HeldBack, TopicLimits
from tidewheel.errors import LeaseLost, StoreUnavailable
from tidewheel.stores.documents import check_documents, could_be
from tidewheel.stores.external_transaction import Untold, places_of
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
from tidewheel.stores.postgres.claims import WORDS, Claimer
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.dependencies import Freed
from tidewheel.stores.postgres.enqueue import Writer
from tidewheel.stores.postgres.handler_transaction import LentTransaction
from tidewheel.stores.postgres.location import parse_url
from tidewheel.stores.postgres.maintenance import (
    PRUNES_TOGETHER,
    RELEASES_A_RESCUE,
    Folding,
    Releasing,
    prune,
)
from tidewheel.stores.postgres.schema import migrate, missing_steps
from tidewheel.stores.postgres.settlements import answers_of
from tidewheel.stores.postgres.wakeups import ANYWHERE, Herald, Hint, Listener, Notifier
from tidewheel.stores.protocol import (
    MAX_BATCH,
    MAX_DEPENDENTS,
    MAX_ENQUEUE_BATCH,
    MAX_GROUPS,
    OnRescued,
    StoreLimits,
    Wakeups,
)
from tidewheel.stores.sql_files import Queries
from tidewheel.stores.terminal_errors import (
    CANCELLED_ON_REQUEST,
    check_batch,
    summarise_error,
    tell_rescued,
)
from tidewheel.stores.transfer import were_placed
from tidewheel.stores.wakeups import WakeupHub

MOST_UNSURE: Final = 20_000
"""Settlements without an answer that are remembered."""

_WAITING_AGAIN: Final = frozenset({Retried, Released})

_sql = Queries("tidewheel.stores.postgres", "sql/functions.sql")
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
        self._claimer = Claimer(self._database, self._tell_rescued, self._notifier.room, self._guard)
        self._writer = Writer(self._database, self._limits, self._written)
        self._listener = Listener(self._database, self._notifier.sender, self._heard)
        self._unsure: dict[Lease, None] = {}  # settled without an answer: the next one must be looked up
        self._herald = Herald(self._database, self._ready)
        self._prunes = 0
        self._folding = Folding(self._database)
        self.on_rescued: OnRescued | None = None
        self._releasing = Releasing(self._database, self._ready, self._finished)

    # -- life -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self._database.open()
        self._herald.open()

    async def close(self) -> None:
        if self._database.foreign:
            return  # tasks and connections of the parent, which goes on using them
        await self._listener.close()
        await self._writer.close()
        self._herald.close()
        await self._notifier.close()
        self._folding.close()
        self._releasing.close()
        await self._database.close()

    def sibling(self) -> PostgresStore:
        other = PostgresStore(self.url, clock=self._clock, limits=self._limits)
        other.on_rescued = self.on_rescued
        return other

    async def migrate(self, *, rls: bool = False) -> list[str]:
        return await migrate(self._database, rls=rls)

    async def missing_steps(self) -> list[str]:
        return await missing_steps(self._database)

    async def check(self) -> list[str]:
        return await health.check(self._database)

    async def now(self) -> int:
        return int(await self._database.fetchval(_sql["now"], self._database.now))

    def describe(self) -> dict[str, str]:
        return {
            "store": "postgresql",
            "database": self._database.location.shown,
            "postgresql": self._database.version or "not open",
            "connection": "pooled" if self._database.pooled else "direct",
        }

    async def ailments(self) -> list[Ailment]:
        return await health.ailments(self._database)

    @property
    def deaf(self) -> bool:
        return self._listener.deaf

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
            self._folding.wrote(len(claim.jobs))
        return claim

    async def grant(
        self, job_id: UUID, *, worker: str, lease_seconds: float, tenant: str | None = None
    ) -> Claimed | None:
        await self._tend()
        claimed = await self._claimer.grant(job_id, tenant, worker, lease_seconds)
        if claimed is not None:
            self._folding.wrote(1)
        return claimed

    async def start(
        self, leases: Sequence[Lease], *, run_seconds: Sequence[float] = (), alone: bool = True
    ) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        return answers_of(
            leases, await settlement_writes.start(self._database, leases, run_seconds, alone=alone)
        )

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        held = await settlement_writes.extend(self._database, leases, lease_seconds) if leases else set()
        return answers_of(leases, held)

    async def touch(self, leases: Sequence[Lease], lease_seconds: float) -> list[float | None]:
        check_batch("leases", len(leases), MAX_BATCH)
        return await pull.touch(self._database, leases, lease_seconds) if leases else []

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        check_batch("settlements", len(settlements), MAX_BATCH)
        if not settlements:
            return []
        freed = Freed()
        try:
            answers = await settlement_writes.settle(self._database, settlements, freed)
            if self._unsure and not all(answers):
                answers = await self._look_up(settlements, answers)
        except (StoreUnavailable, asyncio.CancelledError):
            # The reply may have been lost after the commit. The caller will try again, and must not be told
            # then that somebody else has taken the job.
            self._unsure.update(dict.fromkeys([settlement.lease for settlement in settlements]))
            while len(self._unsure) > MOST_UNSURE:  # given up by their workers long ago
                del self._unsure[next(iter(self._unsure))]
            raise
        if self._unsure:
            for settlement in settlements:
                self._unsure.pop(settlement.lease, None)
        self._settled(settlements, answers, freed)
        return answers

    async def _look_up(self, settlements: Sequence[Settlement], answers: list[bool]) -> list[bool]:
        """What was refused may have been written by an earlier try, whose answer was lost."""
        held = {item.lease for item, accepted in zip(settlements, answers, strict=True) if accepted}
        refused = [item for item in settlements if item.lease not in held and item.lease in self._unsure]
        if refused:
            held |= await settlement_writes.settled(self._database, refused)
        return settlement_writes.told_once([item.lease for item in settlements], held)

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        check_batch("reports", len(reports), MAX_BATCH)
        held = await settlement_writes.report(self._database, reports) if reports else set()
        return answers_of([item.lease for item in reports], held)

    async def steps(self, lease: Lease) -> tuple[StepRecord, ...] | None:
        return await settlement_writes.steps(self._database, lease)

    async def cancel_requests(self, leases: Sequence[Lease]) -> list[Lease]:
        check_batch("leases", len(leases), MAX_BATCH)
        asked = await settlement_writes.cancel_requests(self._database, leases) if leases else set()
        return [lease for lease in leases if lease in asked]

    async def begin(
        self,
        lease: Lease,
        *,
        lease_seconds: float,
        seconds: float,
        tenant: str,
        on_timeout: Callable[[], None],
        run_seconds: float = 0.0,
    ) -> LentTransaction:
        # Gives a job in a batch a row of its own: the others of its batch must not wait for the end of this.
        if not (await self.start([lease], run_seconds=[run_seconds], alone=False))[0]:
            raise LeaseLost(
                f"job {lease.job_id} is no longer held by this run (fence {lease.fence}); "
                "no transaction was begun"
            )
        lent = LentTransaction(
            self._database,
            lease,
            # Rows that it locks may be those of jobs whose leases have to be extended.
            seconds=min(seconds, lease_seconds / 3),
            lease_seconds=lease_seconds,
            on_timeout=on_timeout,
            limit_problem=self._writer.limit_problem,
            on_written=self._written,
            on_settled=self._settled,
        )
        await lent.open(tenant)
        return lent

    # -- operating --------------------------------------------------------------------------------------

    async def requeue(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[Verdict]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        rows = await pull.change(self._database, "requeue", job_ids, tenant)
        self._folding.wrote(len(rows))
        await self._tell({topic: ANYWHERE for _, _, topic in rows if topic is not None})
        return [Verdict(verdict) for _, verdict, _ in sorted(rows)]

    async def cancel(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[Verdict]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        summary = summarise_error(CANCELLED_ON_REQUEST)
        rows = await self._database.fetch_for(
            tenant, _sql["cancel"], self._database.now, list(job_ids), tenant, summary
        )
        freed = Freed()
        verdicts = [Verdict(verdict) for _, verdict in sorted(freed.told(rows))]
        if Verdict.DONE in verdicts:
            self._finished()
            await self._hint_rooms()
        self._folding.wrote(len(rows))
        self._releasing.after(freed)
        return verdicts

    async def take_back(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[Verdict]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        freed = Freed()
        verdicts, topics = await pull.take_back(self._database, job_ids, tenant, freed)
        if len(topics) < verdicts.count(Verdict.DONE):  # the others ended as cancelled
            self._finished()
            await self._hint_rooms()
        self._folding.wrote(len(verdicts))
        self._releasing.after(freed)
        await self._tell(dict.fromkeys(topics, ANYWHERE))
        return verdicts

    async def delete(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[Verdict]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        rows = await pull.change(self._database, "remove", job_ids, tenant)
        self._folding.wrote(len(rows))
        freed = Freed()
        verdicts = [Verdict(verdict) for _, verdict in sorted(freed.told(rows))]
        if freed.unfinished:
            # What was kept for those that are gone now need not be kept any longer.
            freed.unfinished = await self._releasing.go_on(1)
        self._releasing.after(freed)
        if Verdict.DONE in verdicts:
            await self._hint_rooms()
        return verdicts

    async def kick(
        self, topic: str, limit: int, *, tenant: str | None = None, failed_only: bool = False
    ) -> int:
        check_batch("jobs", limit, MAX_BATCH)
        if limit <= 0:
            return 0
        kicked = await pull.kick(self._database, topic, limit, tenant, failed_only=failed_only)
        if kicked:
            self._folding.wrote(kicked)
            await self._tell({topic: ANYWHERE})
        return kicked

    async def kick_jobs(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[Verdict]:
        check_batch("jobs", len(job_ids), MAX_BATCH)
        rows = await pull.change(self._database, "kick_jobs", job_ids, tenant) if job_ids else []
        self._folding.wrote(len(rows))
        await self._tell({topic: ANYWHERE for _, _, topic in rows if topic is not None})
        return [Verdict(verdict) for _, verdict, _ in sorted(rows)]

    async def rescue(self, limit: int = MAX_BATCH) -> Rescued:
        await self._releasing.go_on(RELEASES_A_RESCUE)
        latest = await self._claimer.latest()
        row = await self._database.fetchrow(
            _sql["rescue"], self._database.now, limit, self._claimer.tended_to(), WORDS, latest
        )
        rescued = self._rescued(row) if row is not None else Rescued()
        if rescued.total > rescued.returned:
            await self._hint_rooms()
        return rescued

    def _rescued(self, row: Sequence[Any]) -> Rescued:
        returned, failed, cancelled, expired, topics, told = row
        if told:
            self._tell_rescued(told)
        if topics:
            self._ready(dict.fromkeys(topics, ANYWHERE))
        if failed or cancelled or expired:
            self._finished()
        return Rescued(returned, failed, cancelled, expired)

    def _tell_rescued(self, told: Sequence[str]) -> None:
        if self.on_rescued is not None:
            tell_rescued(self.on_rescued, [msgspec.json.decode(one, type=RescuedJob) for one in told])

    async def _tend(self) -> None:
        """What a claim does before it chooses, for those who look at single jobs."""
        if self._database.scoped:
            return  # who sees one tenant leaves it to those who see all
        row = await self._database.fetchrow(
            _sql["run_maintenance"],
            self._database.now,
            self._claimer.tended_to(),
            WORDS,
            await self._claimer.latest(),
        )
        if row is not None:
            *rescued, promoted = row
            self._rescued(rescued)
            if promoted:
                self._claimer.ready(None)

    async def prune(self, limit: int = MAX_BATCH) -> dict[State, int]:
        now = self._guard.judge(await self.now())
        await self._releasing.done()
        await self._releasing.go_on(1)  # what need not be kept for others any longer
        pruned = await prune(self._database, limit, now)
        await self._releasing.go_on(1)
        await worker_registry.forget(self._database, now)
        self._prunes += 1
        if sum(pruned.values()) < limit or self._prunes % PRUNES_TOGETHER == 0:
            await document_rows.forget(self._database, limit, now)
            await topic_limits.forget_meters(self._database, limit, now)
            await self._folding.fold()
        return pruned

    async def pause(self, topic: str, until: int | None) -> None:
        await topic_limits.pause(self._database, topic, until)
        await self._tell({topic: ANYWHERE})

    async def set_limits(self, topic: str, limits: TopicLimits | None) -> bool:
        if done := await topic_limits.set_limits(self._database, topic, limits):
            await self._tell({topic: ANYWHERE})
        return done

    async def limits(self) -> dict[str, TopicLimits]:
        return await topic_limits.limits(self._database)

    async def held_back(self) -> list[HeldBack]:
        return await topic_limits.find_held_back(self._database)

    async def _hint_rooms(self) -> None:
        """Jobs ended, it is not known of which topics: whoever waits for a limit is to look again."""
        # Who sees one tenant sees no limits; whoever waits looks again by itself, a second later at most.
        if not self._database.scoped:
            self._ready(dict.fromkeys(await topic_limits.limited_topics(self._database), ANYWHERE))

    async def topics(self, *, tenant: str | None = None) -> list[TopicStats]:
        return await report_queries.topics(self._database, tenant)

    # -- workers ----------------------------------------------------------------------------------------

    async def beat(self, worker: WorkerRecord) -> None:
        await worker_registry.beat(self._database, worker)

    async def leave(self, name: str, started_at: int) -> None:
        await worker_registry.leave(self._database, name, started_at)

    async def workers(self) -> list[WorkerRecord]:
        return await worker_registry.workers(self._database)

    # -- documents --------------------------------------------------------------------------------------

    async def write_documents(self, documents: Sequence[NewDocument]) -> list[int | None]:
        check_documents(documents)
        return await document_rows.write(self._database, documents) if documents else []

    async def enqueue_with(self, document: NewDocument, jobs: Sequence[NewJob]) -> list[Enqueued] | None:
        check_documents([document])
        check_batch("jobs", len(jobs), MAX_ENQUEUE_BATCH)
        answers = await self._writer.enqueue_with(document, jobs)
        if answers:
            await self._written(jobs, answers)
        return answers

    async def document(self, kind: str, document_id: str) -> Document | None:
        if not could_be(kind, document_id):
            return None
        return await document_rows.read(self._database, kind, document_id)

    async def documents(
        self, kind: str, *, limit: int, before: tuple[int, str] | None = None
    ) -> list[Document]:
        return await document_rows.listed(self._database, kind, limit, before)

    async def remove_document(self, kind: str, document_id: str) -> bool:
        return could_be(kind, document_id) and await document_rows.remove(self._database, kind, document_id)

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

    async def peek(self, topic: str, head: Head, *, tenant: str | None = None) -> JobRecord | None:
        await self._tend()
        return await pull.peek(self._database, topic, head, tenant)

    async def depths(
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

    async def count(self, where: JobFilter, *, beyond: bool = False) -> Count:
        return await job_queries.count(self._database, where, beyond=beyond)

    async def stats(self, *, window_seconds: float, tenant: str | None = None) -> Stats:
        return await report_queries.stats(self._database, window_seconds, tenant)

    # -- answering --------------------------------------------------------------------------------------

    async def lanes(self, *, window_seconds: float, tenant: str | None = None) -> list[TaskStats]:
        return await report_queries.lanes(self._database, window_seconds, tenant)

    async def durations(self, *, tenant: str | None = None) -> list[LaneDurations]:
        return await report_queries.durations(self._database, tenant)

    async def failures(self, where: JobFilter, *, window_seconds: float, limit: int = MAX_GROUPS) -> Failures:
        return await report_queries.find_failures(
            self._database, where, window_seconds=window_seconds, limit=limit
        )

    async def repeats(self, *, limit: int = MAX_GROUPS, tenant: str | None = None) -> Repeats:
        return await report_queries.repeats(self._database, limit, tenant)

    async def longest_running(self, limit: int, *, tenant: str | None = None) -> list[JobRecord]:
        return await report_queries.longest_running(self._database, limit, tenant)

    # -- moving to another store ------------------------------------------------------------------------

    async def whole_jobs(self, *, limit: int, before: int | None = None) -> list[WholeJob]:
        check_batch("jobs", limit, MAX_BATCH)
        return await transfer.whole_jobs(self._database, limit, before)

    async def place_jobs(self, jobs: Sequence[WholeJob]) -> list[bool]:
        check_batch("jobs", len(jobs), MAX_BATCH)
        if not jobs:
            return []
        placed = await transfer.place(self._database, jobs, await self.now())
        self._folding.wrote(len(placed))
        await self._tell({job.record.topic: ANYWHERE for job in placed})
        return were_placed(jobs, placed)

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

    def expect(self, untold: Untold) -> None:
        self._herald.expect(untold)

    async def _written(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        self._folding.wrote(len(jobs))
        await self._tell(places_of(jobs, answers))  # a sleeping worker must learn of delayed jobs, too

    def _settled(self, settlements: Sequence[Settlement], answers: Sequence[bool], freed: Freed) -> None:
        kinds = {type(item.outcome) for item, accepted in zip(settlements, answers, strict=True) if accepted}
        if not kinds.isdisjoint(_WAITING_AGAIN):
            # Which topics they were of is not known here, and does not matter: this is rare.
            self._ready_here(None)
            self._notifier.ready_anywhere()
        if not kinds <= _WAITING_AGAIN:
            self._finished()
        if self._claimer.limited_grants:
            room = self._claimer.room_after(settlements)
            self._ready_here(dict.fromkeys(room, ANYWHERE))
            self._notifier.room(room)
        self._folding.wrote(len(settlements))
        self._releasing.after(freed)

    async def _tell(self, places: Mapping[str, int]) -> None:
        """Announce ready jobs as ``_ready`` does, before the caller goes on: it may block the event loop."""
        if places:
            self._ready_here(places)
            await self._notifier.tell(places)

    def _ready(self, places: Mapping[str, int]) -> None:
        """Jobs of these topics became ready, none with a number below the one given."""
        if places:
            self._ready_here(places)
            self._notifier.ready(places)

    def _ready_here(self, places: Mapping[str, int] | None) -> None:
        """Likewise, without a word to other processes. None: in any topic."""
        self._claimer.ready(places)
        self._hub.ready(places)

    def _finished(self) -> None:
        self._hub.finished()
        self._notifier.finished()

    def _heard(self, hint: Hint) -> None:
        if hint.places is None or hint.places:
            self._ready_here(hint.places)
        if hint.finished:
            self._hub.finished()
