"""Data that every part of Tidewheel uses: jobs, leases, outcomes, filters, records. Frozen, without I/O.

Times are microseconds since 1970 (see ``clock``); durations are seconds as floats.
Values that are made once per job in a worker are msgspec Structs: ten times cheaper to make than a frozen
dataclass, and as frozen. An outcome says how an attempt ended: the worker decides it, and the store records
it under the lease.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from msgspec import Struct

if TYPE_CHECKING:
    from tidewheel.core.conditions import Condition


DEFAULT_PAGE: Final = 50
MAX_PAGE: Final = 200
"""Larger limits are cut to this."""
MAX_OFFSET: Final = 2**31 - 1
MAX_HTTP_CURSOR: Final = 2**160 - 1
"""Over HTTP a cursor is the server's own, sealed; elsewhere it is the number of a job."""


ROOT_TENANT: Final = "root"
"""The tenant of jobs that belong to no one in particular."""

EXPLICIT: Final = 150
"""Priority of work somebody asked for and waits for."""
DISCOVERED: Final = 100
"""Priority of work the system found for itself."""
BACKFILL: Final = 30
"""Priority of work that may take its time."""


URGENT_ABOVE: Final = -1024
"""Ready jobs of a higher priority count as urgent, as they do on the beanstalkd wire."""


class State(StrEnum):
    """What is stored. ``completed``, ``failed`` and ``cancelled`` are final."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in FINAL_STATES


FINAL_STATES: Final = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class DerivedState(StrEnum):
    """States that are derived, never stored: a finer view on ``pending`` and ``running``."""

    DELAYED = "delayed"
    """pending, due in the future"""
    RETRYING = "retrying"
    """pending after at least one counted attempt"""
    BLOCKED = "blocked"
    """pending, waiting for other jobs"""
    CLAIMED = "claimed"
    """running by lease, but its handler has not been seen to start"""


class BodyFormat(StrEnum):
    JSON = "json"
    BYTES = "bytes"


class KeyLifetime(StrEnum):
    """How long a key keeps other jobs out."""

    PRUNED = "pruned"
    """as long as the job's row exists, finished or not"""
    FINISHED = "finished"
    """while the job is pending or running"""


class OnDuplicate(StrEnum):
    """What to do when the key is taken."""

    KEEP = "keep"
    """return the job that holds it, unchanged"""
    REPLACE = "replace"
    """overwrite payload, priority and due time of that job if it has not been started"""


class TopicHead(StrEnum):
    """Of which of a topic's jobs somebody wants to see the first one."""

    READY = "ready"
    """due: the one a claim would grant first, were the topic not paused"""
    DELAYED = "delayed"
    """pending and not yet due: the one that is due next"""
    FAILED = "failed"
    """the one that failed first, and is kicked first"""


class FailureOrigin(StrEnum):
    """Who ended a job as failed; buried jobs are kept until somebody kicks them."""

    ATTEMPT = "attempt"
    BURIED = "buried"


@dataclass(frozen=True, slots=True)
class JobError:
    """Why an attempt errored: a code for programs, a message for people, details for the curious."""

    code: str
    message: str
    retryable: bool = True
    details: Mapping[str, Any] | None = None
    traceback: str | None = None


class Lease(Struct, frozen=True, gc=False):
    """The right to settle one claimed job. Given by claim; ended by settle or by time."""

    job_id: UUID
    fence: int  # grows on every claim, so a slow worker cannot settle a newer one


@dataclass(frozen=True, slots=True)
class Lane:
    """What a worker is able to run: the jobs of one task in one topic.

    ``task=""`` means jobs enqueued by a bare name, without a task; ``None`` means every job of the topic.
    """

    topic: str
    task: str | None = None


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    """A validated job on its way into a store. Every default has been filled in by the app."""

    id: UUID
    topic: str
    task: str = ""  # "" = enqueued by a bare name
    payload: bytes = b"{}"
    format: BodyFormat = BodyFormat.JSON
    tenant: str = ROOT_TENANT
    priority: int = 0
    run_at: int | None = None  # None = now plus delay, by the store's clock; a past one means now
    delay: float = 0.0
    max_attempts: int | None = 3  # None = unlimited
    timeout: float | None = None  # None = no timeout
    retry: str | None = None  # a policy of this job's own, see ``retry``; None = the task's
    lease_seconds: float | None = None  # None = the worker's
    key: str | None = None
    key_until: KeyLifetime = KeyLifetime.PRUNED
    on_duplicate: OnDuplicate = OnDuplicate.KEEP
    expires_at: int | None = None
    expires_in: float | None = None  # relative to the store's clock; used when expires_at is None
    retention: float | None = None  # seconds to keep the finished job; None = for ever
    retention_failed: float | None = None
    correlation_id: str | None = None
    user_id: str | None = None
    service_id: str | None = None
    limit_key: str | None = None  # jobs of a topic and tenant with the same one may be limited together
    headers: str | None = None  # a JSON object of texts that travel along: trace context, context variables
    after: tuple[UUID, ...] = ()  # jobs of the same tenant that must have ended before it begins, each once
    after_any: bool = False  # however they ended; otherwise it is cancelled unless all completed
    row_filter: Any = None  # a ``Condition``: its maker meets no other jobs by key or ``after``; never stored


class Enqueued(Struct, frozen=True, gc=False):
    """What became of one new job."""

    job_id: UUID  # of the job that already holds the key, when duplicate
    number: int
    created_at: int
    run_at: int
    duplicate: bool = False
    replaced: bool = False  # duplicate, and on_duplicate="replace" took effect
    holder: JobRecord | None = None  # what is known of that job, where not everybody may look at it


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a worker asks for. ``topic_limits`` caps how many jobs of a topic this claim may take.

    A claim that is not ``durable`` may be forgotten when the power fails: whoever holds its leases is a
    process that ends with it, and nothing but the claim was promised to anybody. Where all users of a store
    are on one machine, that saves a sync; elsewhere a claim is always lasting.
    ``free_slots``: how many jobs could start at once, None: all; strict limits allow no more than that.
    ``reports_starts``: losses count only after ``start``; otherwise the only job of a claim has started.
    """

    worker: str
    lanes: tuple[Lane, ...]
    limit: int
    lease_seconds: float
    topic_limits: Mapping[str, int] = field(default_factory=dict)
    durable: bool = True
    free_slots: int | None = None
    reports_starts: bool = False


class Claimed(Struct, frozen=True, gc=False):
    """A job in a worker's hands, with everything its handler needs."""

    lease: Lease
    topic: str
    task: str
    tenant: str
    priority: int
    attempt: int  # numbered from 1, this one included
    max_attempts: int | None
    timeout: float | None
    retry: str | None
    lease_seconds: float
    payload: bytes
    format: BodyFormat
    checkpoint: bytes | None
    number: int
    created_at: int
    run_at: int
    key: str | None
    correlation_id: str | None
    user_id: str | None
    service_id: str | None
    headers: str | None
    losses: int = 0  # workers lost with it; above 0 it is a suspect, and is granted alone

    @property
    def last_attempt(self) -> bool:
        return self.max_attempts is not None and self.attempt >= self.max_attempts


class Claim(Struct, frozen=True, gc=False):
    """The answer to a claim: jobs, and when it is worth asking again (None = wait to be woken).

    ``needs_more_slots``: there may be more for a worker with more ``free``.
    """

    jobs: tuple[Claimed, ...]
    next_due_in: float | None = None
    needs_more_slots: bool = False


class Settlement(Struct, frozen=True, gc=False):
    """The end of one lease: how the attempt went and how long its handler ran."""

    lease: Lease
    outcome: Outcome
    run_seconds: float | None = None  # None = the handler never started


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running job says it is."""

    percent: float
    message: str | None = None
    stage: str | None = None
    updated_at: int = 0  # filled in by the store


class NewStep(Struct, frozen=True, gc=False):
    """A step whose function has returned, on its way into a store."""

    name: str
    output: bytes
    run_seconds: float  # until the store's present: that is when it began, by the store's clock


class StepRecord(Struct, frozen=True, gc=False):
    """A finished step of a job."""

    name: str
    output: bytes
    attempt: int  # in which it ran
    worker: str | None
    started_at: int
    finished_at: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a running handler wants remembered: progress, a checkpoint, a finished step."""

    lease: Lease
    progress: Progress | None = None
    checkpoint: bytes | None = None
    step: NewStep | None = None
    run_seconds: float = 0.0  # since the handler began, for a job whose start is not recorded yet


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt that did not complete. The completing one is in the job itself."""

    attempt: int
    worker: str | None
    started_at: int | None
    ended_at: int
    error: JobError


class Relative(Struct, frozen=True, gc=False):
    """A job that another one runs after, or that runs after it, as the other one sees it."""

    job_id: UUID
    state: State | None  # as it is now; None = it was deleted
    waits: bool = False  # the later of the two still waits for the earlier one


@dataclass(frozen=True, slots=True)
class Dependents:
    """Jobs that run after one: the first of them by number, and how many there are."""

    jobs: tuple[Relative, ...]
    total: Count


class JobRecord(Struct, frozen=True, kw_only=True, gc=False):
    """A job as a store shows it. Lists leave the last block empty; ``get`` fills it."""

    id: UUID
    number: int  # store-wide, in enqueue order; also the id on the beanstalkd wire
    tenant: str
    topic: str
    task: str
    state: State
    priority: int
    attempt: int
    max_attempts: int | None
    created_at: int
    run_at: int
    claimed_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    leased_until: int | None = None
    fence: int = 0
    worker: str | None = None
    timeout: float | None = None
    key: str | None = None
    correlation_id: str | None = None
    user_id: str | None = None
    service_id: str | None = None
    blocked: int = 0  # how many jobs it waits for
    cancel_requested: bool = False
    error_summary: str | None = None  # "code: message", shortened, of the newest error
    progress: Progress | None = None
    limit_key: str | None = None

    format: BodyFormat = BodyFormat.JSON
    retry: str | None = None  # a policy of its own, as ``NewJob`` has it
    headers: str | None = None  # what travels along, likewise
    lease_seconds: float | None = None  # of its own, likewise
    payload: bytes | None = None
    result: bytes | None = None
    checkpoint: bytes | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    reserves: int = 0  # how often it was granted
    timeouts: int = 0  # how often a lease of it ran out
    releases: int = 0  # how often it was given back
    buries: int = 0  # how often it was put away by a verb
    kicks: int = 0  # how often somebody brought it back
    touches: int = 0  # how often its lease was made longer by a verb; a worker's extensions do not count
    after: tuple[Relative, ...] = ()  # the jobs it runs after, in the order in which they were named
    after_any: bool = False  # however those end

    @property
    def newest_error(self) -> JobError | None:
        """Why the job errored, was cancelled or expired, whatever came last; None when nothing did."""
        if self.error_summary is None:
            return None
        if self.attempts:
            newest = self.attempts[-1].error
            if f"{newest.code}: {newest.message}".startswith(self.error_summary):
                return newest
        code, _, message = self.error_summary.partition(": ")
        # Ended without an attempt of its own, by an operator or by time: the summary is all there is.
        return JobError(code, message, retryable=False)

    def shown_state(self, now: int) -> str:
        """The finest name for this job's state at ``now``."""
        if self.state is State.PENDING:
            if self.blocked:
                return DerivedState.BLOCKED
            if self.run_at > now and not self.attempt:
                return DerivedState.DELAYED
            return DerivedState.RETRYING if self.attempt else State.PENDING
        if self.state is State.RUNNING and self.started_at is None:
            return DerivedState.CLAIMED
        return self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a list, a count or a bulk action means. Empty = all; conditions are ANDed."""

    topic: str | None = None
    task: str | None = None
    state: State | DerivedState | None = None
    tenant: str | None = None
    key: str | None = None
    correlation_id: str | None = None
    created_after: int | None = None  # inclusive
    created_before: int | None = None  # exclusive
    text: str | None = None  # a substring of the payload or of an error, scanned newest first
    condition: Condition | None = None  # anything else, scanned newest first, see ``conditions``


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs, newest first. ``cursor`` continues; None means there is nothing further."""

    items: tuple[JobRecord, ...]
    cursor: int | None = None
    partial: bool = False  # a search ran out of its second; cursor continues it
    searched_back_to: int | None = None  # created_at of the oldest job looked at, when partial


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs match; ``exact`` is False when counting stopped at the limit."""

    total: int
    exact: bool = True


class ActionResult(Enum):
    """What became of one job of a management verb."""

    DONE = "done"
    REQUESTED = "requested"  # cancel of a running job: its worker has been asked
    NOT_FOUND = "not_found"
    WRONG_STATE = "wrong_state"
    KEY_TAKEN = "key_taken"  # requeue, while another job holds the key


@dataclass(frozen=True, slots=True)
class RescueResult:
    """What one rescue pass did about leases that ran out and jobs that expired unstarted."""

    returned: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0

    @property
    def total(self) -> int:
        return self.returned + self.failed + self.cancelled + self.expired


class RescuedJob(NamedTuple):
    """One job that a rescue pass dealt with, also one that was part of a claim."""

    job_id: UUID
    topic: str
    task: str
    tenant: str
    correlation_id: str | None
    attempt: int  # the one that was lost, as its claim counted it; 0 of a job that never began
    worker: str | None  # who lost it
    state: State  # from then on
    code: str  # why: worker_lost, job_canceled, expired


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """A worker, as it last told about itself."""

    name: str
    host: str
    pid: int
    version: str
    started_at: int  # by the store's clock, asked once; tells a restarted worker from its predecessor
    seen_at: int = 0  # filled in by the store
    lanes: tuple[Lane, ...] = ()
    more_lanes: int = 0  # lanes beyond those listed
    concurrency: int = 0
    running: int = 0  # handlers at work
    claimed: int = 0  # jobs at hand that have not started
    stuck: int = 0  # slots held by what was told to stop and goes on
    loop_lag_seconds: float = 0.0  # the longest its event loop let anything wait since the beat before
    polling: bool = False  # no hints come through to it
    clock_step_seconds: float = 0.0  # by how much it saw the store's clock step ahead, while it doubts that
    ran: int = 0  # attempts settled since it started
    completed: int = 0
    failed: int = 0
    lost: int = 0  # leases that ended before their outcome was written


@dataclass(frozen=True, slots=True)
class NewDocument:
    """Something small to be kept beside the jobs, on its way into a store."""

    kind: str
    id: str
    body: bytes = field(repr=False)  # JSON; it may hold secrets, or hashes of them
    expires_at: int | None = None  # None = kept until removed
    expected_version: int | None = None  # the one to write over; 0 = only where there is none, None = any


@dataclass(frozen=True, slots=True)
class Document:
    """Something small that is kept beside the jobs: a key, a user, a line of the audit log."""

    kind: str
    id: str
    body: bytes = field(repr=False)
    created_at: int
    updated_at: int
    expires_at: int | None
    version: int  # counts from 1; every write adds one


FOREVER: Final = 253_402_300_800_000_000 - 1
"""The last microsecond of the year 9999, for pauses without an end."""


class Completed(Struct, frozen=True, gc=False):
    """The handler returned. ``result`` is encoded JSON; None when it returned nothing."""

    result: bytes | None = None


class Retried(Struct, frozen=True, gc=False):
    """The attempt errored and counts; the job is due again in ``delay`` seconds by the store's clock."""

    delay: float
    error: JobError


class Failed(Struct, frozen=True, gc=False):
    """The attempt errored and was the last."""

    error: JobError
    origin: FailureOrigin = FailureOrigin.ATTEMPT
    priority: int | None = None  # for when it is brought back; None = as before


class Released(Struct, frozen=True, gc=False):
    """Given back: not counted as an attempt, due again in ``delay`` seconds."""

    delay: float = 0.0
    priority: int | None = None  # None = as before
    counted: bool = True  # among the job's releases; False where nobody asked for it: its holder went away
    taken: bool = True  # False: nobody has had it, and its grant is not counted among its reserves


class Cancelled(Struct, frozen=True, gc=False):
    """Ended on request."""

    error: JobError


Outcome = Completed | Retried | Failed | Released | Cancelled

RELEASED_UNSEEN: Final = Released(counted=False, taken=False)
"""How a job is given back that was granted to somebody who has not seen it, and never will."""
