"""What a store is: the job verbs, batch-first. The only way down for everything above.

A store knows rows and time. It knows no handlers, no retry policy, no HTTP and no logging policy.

Rules every implementation keeps (the conformance suite in ``tidewheel.testing`` tries each of them):

* **Order.** Within a topic: higher priority first, then lower number. Across lanes: the highest head first,
  then the lowest number. A job that comes back (retry, release, rescue, requeue) keeps its number.
* **Time** is the store's own (see ``clock``). A job is due when ``run_at <= now``. A lease holds while
  ``now < leased_until``; at ``leased_until`` it has ended.
* **Leases.** ``extend``, ``touch``, ``settle``, ``start`` and ``report`` act only under a lease that holds:
  same job, same fence, still running, not past its end. Otherwise they answer False (``touch``: None) for it
  and change nothing. ``steps`` reads under one, and answers None otherwise.
* **Fences** come from one store-wide sequence: no two grants of any job ever share one, and they only grow.
* **Batches** are all or nothing against failures of the database, item by item against their content: one
  stale lease does not spoil its neighbours.
* **Attempts.** A grant counts one. Release, and a rescue that could not tell that the handler had started,
  take it back.
* **Limits** of a topic (``core/topic_limits.py``) are applied by ``claim`` alone, which counts running jobs:
  no slot can leak. A job that waits for a limit stays due. ``grant`` by id ignores limits, but its jobs count
  as running. A key belongs to one tenant, and a job without a key is not limited by key.
* **Tenant** arguments narrow the result to one tenant; None means all tenants.

The last part of the module is for stores whose database belongs to a server with limits of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self, runtime_checkable
from uuid import UUID

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
    Failed,
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
from tidewheel.stores.bounds import MAX_BATCH, MAX_DEPENDENTS, MAX_GROUPS
from tidewheel.stores.external_transaction import UncommittedEnqueue

OnRescued = Callable[[Sequence[RescuedJob]], None]


class Wakeups(Protocol):
    """A subscription to hints. A hint may come late, twice or never; polling underneath is the caller's.

    Trouble with the store is never raised here: a subscription that hears nothing for a while is what polling
    is for, and it heals by itself.
    """

    async def wait(self, timeout: float) -> bool:
        """True once something relevant was hinted since the last call, False after ``timeout`` seconds."""

    def nudge(self) -> None:
        """Make the current or next ``wait`` return True. Safe from any thread."""


class HandlerTransaction(Protocol):
    """A transaction of the store's own database, lent to the handler of one job; see
    ``Store.begin_transaction``.

    It ends with ``complete``, with ``roll_back``, or by itself when its time is over; later calls raise. What
    a statement raises comes out as the driver raised it. For the event loop that began it.
    """

    @property
    def connection(self) -> Any:
        """The driver's own connection, inside the transaction. ``WrongState`` where it cannot be shared."""

    async def execute(self, statement: str, values: Sequence[Any]) -> int:
        """Run a statement; how many rows it changed."""

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each row of values."""

    async def fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """The rows of a query, each readable by position and by name."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As ``Store.enqueue``; the jobs exist once the transaction is committed."""

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        """As ``Store.get``, as seen from inside."""

    async def complete(self, settlement: Settlement, reports: Sequence[Report]) -> bool:
        """End the lease as told, with what was reported before, and commit: all of it, or nothing.

        False when the lease is no longer held; then everything is rolled back. After an error it is, too; one
        that leaves that open says so.
        """

    async def roll_back(self) -> None:
        """Undo everything. Harmless when it is over."""


class Store(Protocol):
    """Where jobs live. Every method may raise ``StoreError``; then nothing of that call happened."""

    url: str
    on_rescued: OnRescued | None
    """Told of every job that this handle rescued, by whichever verb, once that is written; a sibling inherits
    it. Called on any thread, before the verb answers: it must not take long. What it raises is logged."""

    # -- life -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect. Does not migrate."""

    async def close(self) -> None:
        """Finish what was accepted, let go of every resource. Idempotent."""

    def sibling(self) -> Self:
        """Another handle on the same jobs with connections of its own, not yet open.

        For another thread with another event loop: the lease keeper, the blocking API.
        """

    async def migrate(self, *, rls: bool = False) -> list[str]:
        """Bring the schema up to date under a lock; the names of the steps taken. Refuses a newer schema.

        ``rls``: then let the database itself keep tenants apart, by row-level security. A store whose
        database knows no roles raises ``ConfigurationError``.
        """

    async def pending_migrations(self) -> list[str]:
        """What ``migrate`` would do now, by the same names; nothing is changed. Refuses a newer schema."""

    async def check(self) -> list[str]:
        """Problems found in the store itself: damage, broken invariants, counters that do not add up."""

    async def now(self) -> int:
        """The store's time."""

    def describe(self) -> dict[str, str]:
        """Names and versions for people: what runs underneath."""

    async def health(self) -> list[HealthFinding]:
        """What is wrong with what this stands on: settings, disk, log, other sessions.

        Of jobs only the one is looked at that should have been pruned first. Costs a few milliseconds, and a
        second or two where a database does not answer. What could not be looked at is an ailment of its own;
        nothing is raised for it, not even where nothing can be reached.
        """

    @property
    def notifications_down(self) -> bool:
        """Whether hints of other processes do not come through now, so that jobs are found by polling."""

    @property
    def clock_step_seconds(self) -> float:
        """By how much the clock stepped ahead, while nothing is deleted or cancelled by it; or 0.0."""

    # -- writing ----------------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write these jobs durably, all or none, and answer in their order.

        A job whose key is taken is not written; its answer names the holder and says duplicate. That also
        holds for two jobs of one call. With ``on_duplicate=REPLACE`` a holder that is pending with no counted
        attempt takes over payload, format, priority, due time and expiry from the new job instead, unless
        an uncounted run or one before a requeue left a checkpoint or a step: those belong to its payload.
        Raises ``LimitExceeded`` when a topic limit would be passed.

        A job with ``after`` waits until all of those have ended (``blocked`` counts them). ``ParentNotFound``
        when its tenant has no such job and none stands earlier in this call. One that has failed or was
        cancelled already cancels it at once (``parent_failed``), and so does one that ends so later, unless
        ``after_any``. A duplicate's ``after`` is ignored; a holder that is replaced keeps its own.

        A job with ``only``: ``KeyInUse`` when its key is held by a job that does not meet the condition,
        ``ParentNotFound`` when it is to run after one. That is decided in the transaction of the write,
        before it, and nobody can change a holder in between that is replaced.
        """

    async def claim(self, request: ClaimRequest) -> Claim:
        """Grant up to ``limit`` due jobs of these lanes to the worker, best first.

        Before choosing, leases that ran out are rescued and expired jobs cancelled (as ``rescue`` does), so
        no worker is told "empty" while an orphan waits. Paused topics are passed over. A job marked to be
        granted alone is granted in a claim of its own: it is the only one when it comes first, and ends the
        claim before it otherwise. A job's own ``lease_seconds`` overrides the request's.

        Of a topic with limits only what has room is granted, and of strict limits no more than ``free``:
        those without room are passed over, whichever is the first one with room is next. In strict order a
        job has room when no job of its key with a lower number runs, is due, or waits again after it was
        granted. Fair: inside a priority the tenant comes first that runs the least for its weight. A store
        looks at the first ``MAX_SCANNED_PER_LANE`` due jobs of a lane and at the first jobs of
        ``MAX_SCANNED_KEYS`` keys at least.
        """

    async def claim_job(
        self, job_id: UUID, *, worker: str, lease_seconds: float, tenant: str | None = None
    ) -> Claimed | None:
        """Grant just this job, as a claim that finds nothing else would: alone, after ended leases and
        expired jobs were dealt with.

        Due or delayed, which makes it due now; or failed, which first is requeued, but counts as no kick.
        Whether its topic is paused does not matter. None when there is no such job, or it is in another
        state, waits for other jobs, or is failed while another job holds its key.
        """

    async def mark_started(
        self, leases: Sequence[Lease], *, run_seconds: Sequence[float] = (), alone: bool = True
    ) -> list[bool]:
        """Record when handlers began, once; and that each is alone in its worker: then its loss counts."""

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        """Make each lease last ``lease_seconds`` from now."""

    async def touch(self, leases: Sequence[Lease], lease_seconds: float) -> list[float | None]:
        """Extend by hand for the granted length, the job's own or ``lease_seconds``: it, or None if lost."""
        # Counted in ``touches``. A lease that is named twice is touched once.

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """End each lease as told. False where the lease is no longer held; that job is left alone.
        ``SettleResult`` (``stores/protocol.py``) where something was written in the place of what was told.

        Retried and Released jobs with a cancel request end as cancelled. A job that is Retried after its last
        attempt ends as failed, whoever thought otherwise. Errors are kept as attempts.
        """

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        """Remember progress, checkpoints and finished steps. What reports has begun: its start is recorded.

        Steps keep the order in which they were reported. Of two with one name the first stands: the second is
        a report whose answer was lost, and is answered True.
        """

    async def finished_steps(self, lease: Lease) -> tuple[StepRecord, ...] | None:
        """What runs of this job have finished, in order; None when the lease is no longer held."""

    async def cancel_requests(self, leases: Sequence[Lease]) -> list[Lease]:
        """Those among these held leases whose job somebody asked to cancel."""

    async def begin_transaction(
        self,
        lease: Lease,
        *,
        lease_seconds: float,
        seconds: float,
        tenant: str,
        on_timeout: Callable[[], None],
        run_seconds: float = 0.0,
    ) -> HandlerTransaction:
        """Open a transaction that ends with this lease, for at most ``seconds``.

        Then it is rolled back and ``on_timeout`` is called, on the event loop. Where there are row-level
        policies they see the ``tenant``. ``LeaseLost`` when the lease does not hold; ``WrongState`` where
        there is no database.
        """

    # -- operating --------------------------------------------------------------------------------------

    async def requeue(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        """Failed and cancelled jobs become pending, due now, attempts back to 0, history kept.

        Checkpoint and finished steps stay, so that the next run goes on where the last one ended. Progress
        and result are forgotten.
        A job that runs after others waits again for those that have not ended by now; those that have are
        over, however they ended. Jobs that were cancelled because this one failed stay cancelled.
        KEY_TAKEN when another job holds the job's key.
        """

    async def cancel(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        """Pending jobs end as cancelled (DONE); running ones get a request (REQUESTED)."""

    async def take_back(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        """End the leases of running jobs, whoever holds them: the jobs are pending, as if their holders had
        released them. WRONG_STATE for jobs that do not run.

        The attempt is not counted. From then on every write under the old lease is refused. A job that was
        asked to cancel ends as cancelled.
        """

    async def delete(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        """Remove jobs that are not running, with their key, body, steps and history.

        For jobs that wait for one that had not ended, it was cancelled.
        """

    async def kick(
        self, topic: str, limit: int, *, tenant: str | None = None, failed_only: bool = False
    ) -> int:
        """Bring back up to ``limit`` failed jobs of this topic as ``requeue`` does, those that failed first
        first; only where none can come back, and not with ``failed_only``, make as many delayed ones due now,
        those due next first. How many.

        At most ``MAX_BATCH`` at a time. A failed job whose key another one holds is passed over; after
        ``MAX_SCANNED_JOBS`` of those a store may stop looking. Attempts of a delayed job stay as they are.
        """

    async def kick_jobs(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        """The same for single jobs, failed or delayed; WRONG_STATE for others, those already due included.
        KEY_TAKEN as in ``requeue``.
        """

    async def rescue(self, limit: int = MAX_BATCH) -> RescueResult:
        """Deal with leases that have ended and pending jobs past ``expires_at`` (cancelled, ``expired``).

        A lease that ended with a cancel request: cancelled (``job_canceled``). Otherwise, if the handler's
        start was recorded or the job had been granted alone, the attempt counts: an error ``worker_lost`` is
        kept, and the job fails when no attempt is left. If not counted, its next grant is alone. A job whose
        next attempt would be its last is granted alone, too, so that it cannot take neighbours with it.

        Also goes on with jobs whose parents have ended, where those were more than
        ``MAX_RELEASED_DEPENDENTS``.
        """

    async def prune(self, limit: int = MAX_BATCH) -> dict[State, int]:
        """Remove up to ``limit`` finished jobs whose retention is over; how many of each state.

        A job that others were to run after stays until they are gone, whatever its retention.
        The longest overdue first. Fewer where it would keep others from writing; none when none is overdue.
        Forgets workers that were not seen for ``WORKERS_KEPT_SECONDS``, too, and up to ``limit`` documents
        that have expired and as many meters of rates that are back at zero.
        """

    async def pause(self, topic: str, until: int | None) -> None:
        """Grant nothing of this topic until then (``FOREVER`` without an end); None resumes."""

    async def set_limits(self, topic: str, limits: TopicLimits | None) -> bool:
        """Limit what is granted of this topic from now on; None ends that. Whether it was done.

        False for limits that come from code where an operator has set others: those stand until they are
        removed. Meters of rates go on as they are, but for those that this rate could never have brought so
        far. Claims under way may not know yet; what they grant counts.
        """

    async def limits(self) -> dict[str, TopicLimits]:
        """The topics that have limits, by name; at most ``MAX_LIMITED_TOPICS``."""

    async def blocked_by_limits(self) -> list[BlockedTopic]:
        """The topics with limits of which jobs are ready and a claim would be granted none, by name; and why,
        told of the job that comes first. Of those with ready jobs ``MAX_BLOCKED_TOPICS`` are looked at, and
        none that is paused.
        """

    async def topics(self, *, tenant: str | None = None) -> list[TopicStats]:
        """Every topic that has jobs or is paused, by name; of a tenant those that have jobs of it."""

    # -- workers ----------------------------------------------------------------------------------------

    async def heartbeat(self, worker: WorkerRecord) -> None:
        """List this worker, or renew what is known of it; ``seen_at`` becomes the store's time.

        The name is what tells workers apart: of two with one name the last to beat is listed.
        """

    async def deregister_worker(self, name: str, started_at: int) -> None:
        """Take a worker off the list, unless another one has beaten under its name since."""

    async def workers(self) -> list[WorkerRecord]:
        """The workers by name, at most ``MAX_WORKERS``: then those seen last, of equals the first names."""

    # -- documents --------------------------------------------------------------------------------------

    async def write_documents(self, documents: Sequence[NewDocument]) -> list[int | None]:
        """Keep these, in the place of those with the same kind and id; the version of each.

        None where ``expected_version`` did not let it: that document is left alone. One that has expired
        counts as gone: what is written there is new, with version 1. No two of one call may have the same
        kind and id. Documents are nobody's in particular: they have no tenant, and hold what no caller may
        read.
        """

    async def enqueue_with_document(
        self, document: NewDocument, jobs: Sequence[NewJob]
    ) -> list[Enqueued] | None:
        """Write this document and these jobs in one transaction: both are there, or neither.

        None when ``expected_version`` did not let the document be written: then no job was, either. Otherwise
        as ``enqueue``, and what that raises keeps the document out. Who was not answered asks again with the
        same ``expected_version``: None means then that somebody has written it, perhaps the first try.
        """

    async def document(self, kind: str, document_id: str) -> Document | None:
        """One that has not expired."""

    async def documents(
        self, kind: str, *, limit: int, before: tuple[int, str] | None = None
    ) -> list[Document]:
        """Those of a kind that have not expired, newest first, of equal age the highest id.

        ``before``: go on below this ``created_at`` and id, those of the last one of the page before.
        """

    async def remove_document(self, kind: str, document_id: str) -> bool:
        """Forget one; whether there was one that had not expired."""

    # -- reading ----------------------------------------------------------------------------------------

    def notify_on_commit(self, uncommitted: UncommittedEnqueue) -> None:
        """Jobs were written in a transaction of somebody else's: tell who waits once it has committed.

        May be called from any thread.
        """

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        """One job with its bodies, attempts and steps."""

    async def dependents(
        self, job_id: UUID, *, limit: int = MAX_DEPENDENTS, tenant: str | None = None
    ) -> Dependents:
        """The jobs that run after this one, lowest number first, and how many; also if it was deleted.

        At most ``MAX_DEPENDENTS`` are told; the count is exact up to ``MAX_COUNT``.
        """

    async def job_ids(self, numbers: Sequence[int], *, tenant: str | None = None) -> list[UUID | None]:
        """The ids of the jobs with these numbers; None where there is none, whatever the number."""

    async def peek(self, topic: str, head: TopicHead, *, tenant: str | None = None) -> JobRecord | None:
        """The first job of this kind in the topic, as ``get`` shows it; None when there is none.

        Ended leases are dealt with and delayed jobs that are due let in before, as by a claim. Not by callers
        whom a database lets see one tenant only: they are shown what is there.
        """

    async def topic_depths(
        self, topics: Sequence[str] | None = None, *, tenant: str | None = None
    ) -> list[TopicDepth]:
        """These topics in this order, or all that have jobs or are paused, by name. Cheap at a million rows.

        Of a tenant those that have jobs of it, unless they are named. Delayed jobs that are due count as
        ready, at most ``MAX_SCANNED_JOBS`` of those that nobody has promoted yet; blocked ones as neither.
        """

    async def states(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[State | None]:
        """Only the states, cheaply; for those who wait for results."""

    async def list_jobs(
        self, where: JobFilter, *, limit: int, cursor: int | None = None, offset: int = 0
    ) -> Page:
        """Matching jobs, newest (highest number) first, without bodies.

        A text or a condition is looked for during ``SEARCH_SECONDS``, one on columns alone during
        ``COLUMN_SEARCH_SECONDS``; then the page is partial.
        """

    async def count(self, where: JobFilter, *, exact: bool = False) -> Count:
        """How many match, exact up to ``MAX_COUNT``, and as far as ``SEARCH_SECONDS`` reach.

        ``beyond``: exact however many there are, where counters are kept of just this (``is_counted``).
        """

    async def stats(self, *, window_seconds: float, tenant: str | None = None) -> Stats:
        """Counts, times and series; cheap at a million rows."""

    # -- answering --------------------------------------------------------------------------------------

    async def lanes(self, *, window_seconds: float, tenant: str | None = None) -> list[TaskStats]:
        """The lanes that have jobs or had something happen in the window, by topic and task.

        At most ``MAX_LANES``, with the series of ``MAX_LANE_SERIES``. Minutes go back
        ``LANE_MINUTES_KEPT_SECONDS`` and are of all tenants: a tenant is told counts of its own jobs only.
        ``due`` counts at most ``MAX_SCANNED_JOBS`` jobs that were delayed and that nobody has promoted yet.
        """

    async def durations(self, *, tenant: str | None = None) -> list[LaneDurations]:
        """How long the newest ``MAX_SCANNED_JOBS`` completed jobs took, by topic and task.

        Of a tenant other than root those among its newest ``MAX_SCANNED_JOBS`` jobs that completed.
        """

    async def failures(
        self, where: JobFilter, *, window_seconds: float, limit: int = MAX_GROUPS
    ) -> FailureGroups:
        """The newest ``MAX_SCANNED_JOBS`` failed jobs that match, grouped by lane and error, the largest
        groups first. ``where.state`` does not matter. The trend is of the last ``window_seconds``.
        """

    async def duplicate_jobs(self, *, limit: int = MAX_GROUPS, tenant: str | None = None) -> DuplicateJobs:
        """Jobs that look like another: of the newest ``MAX_SCANNED_JOBS`` those that share tenant, task (or
        topic of jobs without one) and key, and of as many pending ones those that share tenant, lane and
        payload.

        Payloads of more than ``MAX_COMPARED_PAYLOAD_BYTES`` are not compared. Of a tenant other than root the
        pending ones among its newest ``MAX_SCANNED_JOBS`` jobs are looked at.
        """

    async def longest_running(self, limit: int, *, tenant: str | None = None) -> list[JobRecord]:
        """Running jobs without bodies, those claimed longest ago first."""

    # -- moving to another store ------------------------------------------------------------------------

    async def export_jobs(self, *, limit: int, before: int | None = None) -> list[FullJob]:
        """Jobs of all tenants with everything that is kept of them, newest (highest number) first.

        ``before``: only below this number. At most ``MAX_BATCH``, and fewer when they are large
        (``MAX_EXPORT_BYTES``): there are no more only when there is none. Refused where a database lets the
        caller see one tenant only.
        """

    async def import_jobs(self, jobs: Sequence[FullJob]) -> list[bool]:
        """Write jobs of another store as they are: ids, numbers, states, leases, history; all or none.

        False for one whose id is there already: that job is left alone, whatever it looks like. Numbers and
        fences that are given out from then on are higher. Limits on topics do not hold them, and as they did
        not happen here, nothing but the counts of jobs changes. ``WrongState`` when another job has the
        number of one of them, or holds its key.
        """

    # -- hints ------------------------------------------------------------------------------------------

    def wakeups(
        self, *, topics: Collection[str] | None = (), finished: bool = False
    ) -> AbstractAsyncContextManager[Wakeups]:
        """Hints that jobs of ``topics`` (None = any) may be due, or, with ``finished``, that jobs ended."""


@runtime_checkable
class SplitsBatches(Protocol):
    """A store whose ``enqueue`` may write a batch in parts, each of them whole."""

    async def enqueue_atomically(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write all of these or none; ``LimitExceeded`` where there are too many for that."""


class SettleResult(list[bool]):
    """What ``settle`` answers. ``replaced_outcomes``: how jobs ended that were told to be complete, by their
    places.
    """

    def __init__(
        self, accepted: Iterable[bool] = (), replaced_outcomes: Mapping[int, Failed] | None = None
    ) -> None:
        super().__init__(accepted)
        self.replaced_outcomes = dict(replaced_outcomes or {})
