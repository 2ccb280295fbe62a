"""Rows of the memory store, and the heaps that order them.

``JobRow`` is the only mutable job object and never leaves the store. ``JobHeap`` orders jobs by a number and
removes any of them in O(log n). ``TopicQueues`` keeps the same order for each topic.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

from msgspec import structs

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import (
    AttemptRecord,
    BodyFormat,
    Claimed,
    FailureOrigin,
    JobError,
    JobRecord,
    KeyLifetime,
    Lease,
    NewJob,
    Progress,
    Report,
    State,
    StepRecord,
)
from tidewheel.stores.terminal_errors import (
    displayed_progress,
    retention_seconds,
    summarise_error,
    trim_errors,
)

KeyName = tuple[str, str, str]
"""Tenant, task (or topic of a job without one), key."""


@dataclass(slots=True, eq=False, kw_only=True)
class JobRow:
    """A row. ``JobTable`` moves it between states; nothing else does."""

    id: UUID
    number: int
    tenant: str
    topic: str
    task: str
    payload: bytes
    format: BodyFormat
    priority: int
    max_attempts: int | None
    timeout: float | None
    retry: str | None
    lease_seconds: float | None
    key: str | None
    key_until: KeyLifetime
    retention: float | None
    retention_failed: float | None
    correlation_id: str | None
    user_id: str | None
    service_id: str | None
    limit_key: str | None
    headers: str | None
    created_at: int
    run_at: int
    expires_at: int | None

    state: State = State.PENDING
    attempt: int = 0
    blocked: int = 0
    after: dict[UUID, bool] = field(default_factory=dict)  # its parents, and whether it waits for each
    after_any: bool = False
    suspect: bool = False  # an earlier grant ended with a lost worker: to be granted alone
    counts_if_lost: bool = False  # nothing else can have killed its worker: losing it is an attempt
    fence: int = 0
    worker: str | None = None
    claimed_at: int | None = None
    started_at: int | None = None
    leased_until: int | None = None
    cancel_requested: bool = False
    finished_at: int | None = None
    origin: FailureOrigin | None = None
    result: bytes | None = None
    progress: Progress | None = None
    checkpoint: bytes | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    steps: dict[str, StepRecord] = field(default_factory=dict)
    error_summary: str | None = None
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    touches: int = 0

    heap: JobHeap | None = None
    heap_entry: int = 0  # which of a heap's entries is this job's present one
    in_expiry_heap: int | None = None  # the ``expires_at`` under which it is in the table's expiry heap
    removed: bool = False

    @property
    def key_name(self) -> KeyName | None:
        return key_name(self)

    @property
    def can_expire(self) -> bool:
        """An expiry only concerns a job that no counted attempt has touched."""
        return self.state is State.PENDING and self.attempt == 0 and self.expires_at is not None

    @property
    def replaceable(self) -> bool:
        """Nobody has started it, and nothing was saved that belongs to its payload."""
        waits = self.state is State.PENDING and self.attempt == 0
        return waits and self.checkpoint is None and not self.steps

    @property
    def prune_at(self) -> int | None:
        """When a finished job's retention is over."""
        keep = retention_seconds(self.state, self.origin, self.retention, self.retention_failed)
        if self.finished_at is None or keep is None:
            return None
        return self.finished_at + seconds_to_microseconds(keep)

    def keep_attempt(self, error: JobError, now: int) -> None:
        """Keep the attempt at hand, which ended with this error."""
        record = AttemptRecord(self.attempt, self.worker, self.started_at, now, error)
        self.attempts = trim_errors((*self.attempts, record))
        self.error_summary = summarise_error(error)

    def record_start(self, at: int) -> int:
        """Record when its handler began, and return it; the first record stands."""
        if self.started_at is None:
            self.started_at = at
        return self.started_at

    def apply_report(self, report: Report, now: int) -> None:
        """What its handler wants kept."""
        self.record_start(now - seconds_to_microseconds(report.run_seconds))
        if report.progress is not None:
            self.progress = replace(report.progress, updated_at=now)
        if report.checkpoint is not None:
            self.checkpoint = report.checkpoint
        if (step := report.step) is not None and step.name not in self.steps:
            began = now - seconds_to_microseconds(step.run_seconds)
            self.steps[step.name] = StepRecord(step.name, step.output, self.attempt, self.worker, began, now)

    def to_claimed(self, lease_seconds: float) -> Claimed:
        """As its worker gets it."""
        return Claimed(
            lease=Lease(self.id, self.fence),
            topic=self.topic,
            task=self.task,
            tenant=self.tenant,
            priority=self.priority,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            retry=self.retry,
            lease_seconds=lease_seconds,
            payload=self.payload,
            format=self.format,
            checkpoint=self.checkpoint,
            number=self.number,
            created_at=self.created_at,
            run_at=self.run_at,
            key=self.key,
            correlation_id=self.correlation_id,
            user_id=self.user_id,
            service_id=self.service_id,
            headers=self.headers,
            losses=max(self.timeouts, 1) if self.suspect else 0,
        )

    def to_list_record(self) -> JobRecord:
        """As a list shows it: no bodies, no history."""
        return JobRecord(
            id=self.id,
            number=self.number,
            tenant=self.tenant,
            topic=self.topic,
            task=self.task,
            state=self.state,
            priority=self.priority,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            created_at=self.created_at,
            run_at=self.run_at,
            claimed_at=self.claimed_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            leased_until=self.leased_until,
            fence=self.fence,
            worker=self.worker,
            timeout=self.timeout,
            key=self.key,
            correlation_id=self.correlation_id,
            user_id=self.user_id,
            service_id=self.service_id,
            blocked=self.blocked,
            cancel_requested=self.cancel_requested,
            error_summary=self.error_summary,
            progress=displayed_progress(self.state, self.progress, self.finished_at),
            limit_key=self.limit_key,
        )

    def to_record(self) -> JobRecord:
        """As ``get`` shows it: everything."""
        return structs.replace(
            self.to_list_record(),
            format=self.format,
            retry=self.retry,
            headers=self.headers,
            lease_seconds=self.lease_seconds,
            payload=self.payload,
            result=self.result,
            checkpoint=self.checkpoint,
            attempts=self.attempts,
            steps=tuple(self.steps.values()),
            reserves=self.reserves,
            timeouts=self.timeouts,
            releases=self.releases,
            buries=self.buries,
            kicks=self.kicks,
            touches=self.touches,
            after_any=self.after_any,
        )


def key_name(job: JobRow | NewJob) -> KeyName | None:
    """What must be unique, for a job that has a key."""
    return None if job.key is None else (job.tenant, job.task or job.topic, job.key)


def first_run_at(new: NewJob, now: int) -> int:
    """When a new job is due. A time in the past means now: a job cannot have waited before it existed."""
    return max(now, now + seconds_to_microseconds(new.delay) if new.run_at is None else new.run_at)


def expires_at(new: NewJob, now: int) -> int | None:
    """When a new job expires, if it does."""
    if new.expires_at is not None or new.expires_in is None:
        return new.expires_at
    return now + seconds_to_microseconds(new.expires_in)


def new_job(new: NewJob, number: int, now: int) -> JobRow:
    return JobRow(
        id=new.id,
        number=number,
        tenant=new.tenant,
        topic=new.topic,
        task=new.task,
        payload=new.payload,
        format=new.format,
        priority=new.priority,
        max_attempts=new.max_attempts,
        timeout=new.timeout,
        retry=new.retry,
        lease_seconds=new.lease_seconds,
        key=new.key,
        key_until=new.key_until,
        retention=new.retention,
        retention_failed=new.retention_failed,
        correlation_id=new.correlation_id,
        user_id=new.user_id,
        service_id=new.service_id,
        limit_key=new.limit_key,
        headers=new.headers,
        created_at=now,
        run_at=first_run_at(new, now),
        expires_at=expires_at(new, now),
    )


_SLACK = 64
"""Forgotten entries a heap may carry before it is worth rebuilding."""


class JobHeap:
    """Jobs, smallest (key, number) first. A job is in one heap at a time.

    A job that leaves is only forgotten: its entry, recognised by an old ticket, is skipped when it surfaces
    and swept out once the forgotten ones are the majority. So every move costs O(log n), wherever it starts.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int, JobRow]] = []
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[JobRow]:
        """Its jobs, in no order."""
        return (entry[3] for entry in self._entries if self._valid(entry))

    def push(self, job: JobRow, key: int) -> None:
        """Move the job here, out of the heap it is in."""
        if job.heap is not None:
            job.heap.remove(job)
        job.heap = self
        job.heap_entry += 1
        self._live += 1
        heapq.heappush(self._entries, (key, job.number, job.heap_entry, job))

    def remove(self, job: JobRow) -> None:
        """Take the job out."""
        job.heap = None
        self._live -= 1
        if len(self._entries) > 2 * self._live + _SLACK:
            self._entries = [entry for entry in self._entries if self._valid(entry)]
            heapq.heapify(self._entries)

    def first(self) -> JobRow | None:
        """The job with the smallest key, left where it is."""
        self._drop_stale()
        return self._entries[0][3] if self._entries else None

    def first_key(self) -> int | None:
        """The smallest key."""
        self._drop_stale()
        return self._entries[0][0] if self._entries else None

    def first_until(self, key: int) -> JobRow | None:
        """The first job whose key is at most ``key``."""
        smallest = self.first_key()
        return self.first() if smallest is not None and smallest <= key else None

    def _drop_stale(self) -> None:
        while self._entries and not self._valid(self._entries[0]):
            heapq.heappop(self._entries)

    def _valid(self, entry: tuple[int, int, int, JobRow]) -> bool:
        job = entry[3]
        return job.heap is self and job.heap_entry == entry[2]


class TopicQueues:
    """Jobs in a line for each topic, smallest (key, number) first. A job may stand here beside its heap.

    As in a heap, who leaves is only forgotten; entries hold no jobs, so that nothing is kept alive by them.
    """

    def __init__(self) -> None:
        self._entries: dict[str, list[tuple[int, int]]] = {}
        self._queued: dict[str, dict[int, tuple[int, JobRow]]] = {}  # by topic and number

    def push(self, job: JobRow, key: int) -> None:
        """Let a job that does not stand here join its topic's line."""
        self._queued.setdefault(job.topic, {})[job.number] = (key, job)
        heapq.heappush(self._entries.setdefault(job.topic, []), (key, job.number))

    def remove(self, job: JobRow) -> None:
        """Take the job out, if it is here."""
        standing = self._queued.get(job.topic, {})
        if standing.pop(job.number, None) is None:
            return
        entries = self._entries[job.topic]
        if not standing:
            del self._queued[job.topic], self._entries[job.topic]
        elif len(entries) > 2 * len(standing) + _SLACK:
            entries[:] = [(key, number) for number, (key, _) in standing.items()]
            heapq.heapify(entries)

    def first(self, topic: str, limit: int, wanted: Callable[[JobRow], bool]) -> list[JobRow]:
        """The first jobs of a topic that are wanted, left where they are."""
        entries, standing = self._entries.get(topic, []), self._queued.get(topic, {})
        found: list[JobRow] = []
        seen: list[tuple[int, int]] = []
        while entries and len(found) < limit:
            entry = heapq.heappop(entries)
            key, job = standing.get(entry[1], (None, None))
            # The second of two equal entries is of a job that left and came back: it stands here once.
            if job is None or key != entry[0] or entry in seen[-1:]:
                continue
            seen.append(entry)
            if wanted(job):
                found.append(job)
        for entry in seen:
            heapq.heappush(entries, entry)
        return found


class TopicIndexedHeap(JobHeap):
    """A heap whose jobs also stand in the lines of their topics, by the same key."""

    def __init__(self) -> None:
        super().__init__()
        self.topic_queues = TopicQueues()

    def push(self, job: JobRow, key: int) -> None:
        super().push(job, key)
        self.topic_queues.push(job, key)

    def remove(self, job: JobRow) -> None:
        super().remove(job)
        self.topic_queues.remove(job)
