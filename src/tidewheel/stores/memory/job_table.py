"""All jobs of a memory store, each in the one place its state calls for, and the moves between them."""

from __future__ import annotations

import heapq
import threading
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from uuid import UUID

from tidewheel.core.clock import SystemClock
from tidewheel.core.clock_guard import ClockGuard
from tidewheel.core.model import (
    FINAL_STATES,
    Document,
    KeyLifetime,
    Lane,
    Lease,
    RescuedJob,
    State,
    WorkerRecord,
)
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.stores.memory.counters import Counters
from tidewheel.stores.memory.job_rows import JobHeap, JobRow, KeyName, TopicIndexedHeap, TopicQueues
from tidewheel.stores.wakeups import WakeupHub


class JobTable:
    """Jobs, keys, queues, leases, pauses and counts, kept consistent by a few moves.

    Every move is told the time. Callers hold ``lock`` around a whole verb, so a verb is atomic.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.hub = WakeupHub()
        self.guard = ClockGuard(SystemClock())  # of the store whose verb it is
        self.metrics = Counters()
        self.jobs: dict[UUID, JobRow] = {}
        self.keys: dict[KeyName, JobRow] = {}
        self.ready: dict[str, dict[str, JobHeap]] = {}  # due jobs by topic and task, best first
        self.waiting = TopicIndexedHeap()  # pending jobs that are not due yet, by due time
        self.blocked = JobHeap()  # pending jobs that wait for others, due or not
        self.leases = JobHeap()  # running jobs, by the end of their lease
        self.finished = JobHeap()  # jobs whose retention will end, by that time
        self.kept_for_ever = JobHeap()  # finished jobs that are never pruned
        self.failed = TopicQueues()  # the failed ones among both, by the time they failed
        self.children: dict[UUID, dict[UUID, JobRow]] = {}  # by the job they run after, which may be gone
        self.ended_parents: dict[
            UUID, State | None
        ] = {}  # parents that ended (None: deleted), not told to all yet
        self.counts: dict[str, Counter[State]] = {}  # of topics that have jobs
        self.pauses: dict[str, int] = {}
        self.limits: dict[str, TopicLimits] = {}
        self.rate_meters: dict[tuple[str, str, str], int] = {}  # of rates, by topic, tenant and key
        self.workers: dict[str, WorkerRecord] = {}
        self.documents: dict[tuple[str, str], Document] = {}  # by kind and id
        self.ready_topics: set[str] = set()  # to be hinted when the verb at hand is done
        self.has_ended_parents = False
        self.rescued: list[RescuedJob] = []  # to be told then, too
        self._expiries: list[tuple[int, int, JobRow]] = []
        self._in_order: list[JobRow] = []  # by number; removed ones are swept out now and then
        self._removed = 0
        self._last_number = 0
        self._last_fence = 0

    # -- moves --------------------------------------------------------------------------------------------

    def next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def check_capacity(self, number: int) -> None:
        """So many new jobs are about to be added. Here any number is welcome; a lane has a capacity."""

    def add(self, job: JobRow, now: int) -> None:
        """Take in a new job."""
        self.jobs[job.id] = job
        self._in_order.append(job)
        self.counts.setdefault(job.topic, Counter())[job.state] += 1
        self.take_key(job)
        self.enqueue_pending(job, now)

    def import_job(self, job: JobRow, now: int) -> None:
        """Take in a job of another store, in whatever state it is."""
        if self._removed:
            self._compact()  # one of those may have had its number
        self.jobs[job.id] = job
        insort(self._in_order, job, key=lambda placed: placed.number)
        self.counts.setdefault(job.topic, Counter())[job.state] += 1
        self._last_number = max(self._last_number, job.number)
        self._last_fence = max(self._last_fence, job.fence)
        if job.state not in FINAL_STATES or job.key_until is KeyLifetime.PRUNED:
            self.take_key(job)
        if job.state is State.PENDING:
            self.enqueue_pending(job, now)
        elif job.state is State.RUNNING:
            self.leases.push(job, job.leased_until or now)
        else:
            self._schedule_pruning(job)

    def enqueue_pending(self, job: JobRow, now: int) -> None:
        """Queue a pending job by its present priority and due time."""
        if job.blocked:
            self.blocked.push(job, job.number)
        elif job.run_at <= now:
            self._make_ready(job)
        else:
            self.waiting.push(job, job.run_at)
        if job.can_expire and job.expires_at is not None and job.in_expiry_heap != job.expires_at:
            job.in_expiry_heap = job.expires_at
            heapq.heappush(self._expiries, (job.expires_at, job.number, job))
        self.ready_topics.add(job.topic)

    def promote(self, now: int) -> None:
        """Line up the jobs that have become due."""
        while job := self.waiting.first_until(now):
            self._make_ready(job)

    def grant(self, job: JobRow, worker: str, leased_until: int, now: int) -> None:
        """Pending to running, under a new fence."""
        self._last_fence += 1
        self._change_state(job, State.RUNNING)
        job.fence = self._last_fence
        job.attempt += 1
        job.reserves += 1
        job.worker = worker
        job.claimed_at = now
        job.counts_if_lost = False
        self.lease(job, leased_until)

    def lease(self, job: JobRow, until: int) -> None:
        """Let a running job's lease end then."""
        job.leased_until = until
        self.leases.push(job, until)

    def return_to_pending(self, job: JobRow, run_at: int, now: int) -> None:
        """Running or finished to pending. Its number, and so its place in line, stays."""
        self.failed.remove(job)
        self.ended_parents.pop(job.id, None)  # whoever was not told yet goes on waiting
        self._change_state(job, State.PENDING)
        job.run_at = run_at
        job.worker = job.claimed_at = job.started_at = job.leased_until = job.finished_at = None
        self.enqueue_pending(job, now)

    def finish(self, job: JobRow, state: State, now: int) -> None:
        """Pending or running to a final state."""
        self._change_state(job, state)
        job.finished_at = now
        job.leased_until = None
        job.suspect = job.cancel_requested = False
        job.blocked = 0
        if job.id in self.children:
            self.ended_parents[job.id] = state
        if job.key_until is KeyLifetime.FINISHED:
            self.free_key(job)
        self._schedule_pruning(job)
        tally = self.metrics.minute_at(now)
        lane = tally.lane(job.topic, job.task)
        match state:
            case State.COMPLETED:
                tally.completed += 1
                lane.completed += 1
            case State.FAILED:
                tally.failed += 1
                lane.failed += 1
            case _:
                tally.cancelled += 1
                lane.cancelled += 1
        self.has_ended_parents = True
        if job.topic in self.limits:
            self.ready_topics.add(job.topic)  # it may have made room

    def remove(self, job: JobRow) -> None:
        """Forget a job that is not running, its key with it."""
        if job.heap is not None:
            job.heap.remove(job)
        self.failed.remove(job)
        self.free_key(job)
        if job.id in self.children and job.state not in FINAL_STATES:
            self.ended_parents[job.id] = None
        if job.topic in self.limits and job.state is State.PENDING:
            self.ready_topics.add(job.topic)  # others may have waited for it
        del self.jobs[job.id]
        for parent_id in job.after:
            self._remove_dependency(job, parent_id)
        self._uncount(job)
        job.removed = True
        self._removed += 1
        if self._removed > len(self.jobs) + 64:
            self._compact()
        if job.topic not in self.counts:
            self.ready.pop(job.topic, None)

    def add_dependency(self, child: JobRow, parent_id: UUID) -> None:
        """One job is to run after another, which from now on stays as long as it does."""
        self.children.setdefault(parent_id, {})[child.id] = child
        parent = self.jobs.get(parent_id)
        if parent is not None and parent.state in FINAL_STATES:
            self._schedule_pruning(parent)

    def _remove_dependency(self, child: JobRow, parent_id: UUID) -> None:
        children = self.children[parent_id]
        del children[child.id]
        if children:
            return
        del self.children[parent_id]
        self.ended_parents.pop(parent_id, None)  # nobody is left to be told
        parent = self.jobs.get(parent_id)
        if parent is not None and parent.state in FINAL_STATES:
            self._schedule_pruning(parent)

    def _compact(self) -> None:
        self._in_order = [kept for kept in self._in_order if not kept.removed]
        self._expiries = [entry for entry in self._expiries if not entry[2].removed]
        heapq.heapify(self._expiries)
        self._removed = 0

    def take_key(self, job: JobRow) -> None:
        if (name := job.key_name) is not None:
            self.keys[name] = job

    def key_taken(self, job: JobRow) -> bool:
        """Whether another job holds the key."""
        name = job.key_name
        return name is not None and self.keys.get(name, job) is not job

    def free_key(self, job: JobRow) -> None:
        """Give up the key, if this job is the one that holds it."""
        if (name := job.key_name) is not None and self.keys.get(name) is job:
            del self.keys[name]

    def _schedule_pruning(self, job: JobRow) -> None:
        """Put a finished job where it stays until its retention is over, or somebody wants it back."""
        self.failed.remove(job)
        if (prune_at := job.prune_at) is None or job.id in self.children:
            self.kept_for_ever.push(job, job.number)
        else:
            self.finished.push(job, prune_at)
        if job.state is State.FAILED:
            self.failed.push(job, job.finished_at or 0)

    def _make_ready(self, job: JobRow) -> None:
        self.ready.setdefault(job.topic, {}).setdefault(job.task, JobHeap()).push(job, -job.priority)

    def _change_state(self, job: JobRow, state: State) -> None:
        counts = self.counts[job.topic]
        counts[job.state] -= 1
        counts[state] += 1
        job.state = state

    def _uncount(self, job: JobRow) -> None:
        counts = self.counts[job.topic]
        counts[job.state] -= 1
        if not counts.total():
            del self.counts[job.topic]

    # -- looking ------------------------------------------------------------------------------------------

    def find(self, job_id: UUID, tenant: str | None) -> JobRow | None:
        job = self.jobs.get(job_id)
        return job if job is not None and tenant in (None, job.tenant) else None

    def find_number(self, number: int, tenant: str | None) -> JobRow | None:
        place = bisect_left(self._in_order, number, key=lambda job: job.number)
        job = self._in_order[place] if place < len(self._in_order) else None
        if job is None or job.number != number or job.removed:
            return None
        return job if tenant in (None, job.tenant) else None

    def job_under_lease(self, lease: Lease, now: int) -> JobRow | None:
        """The job of a lease that holds; None for a stale one."""
        job = self.jobs.get(lease.job_id)
        if job is None or job.leased_until is None or job.fence != lease.fence:
            return None
        return job if now < job.leased_until else None

    def newest_first(self, before: int | None = None) -> Iterator[JobRow]:
        """All jobs with a number below ``before``, highest first."""
        end = len(self._in_order)
        if before is not None:
            end = bisect_left(self._in_order, before, key=lambda job: job.number)
        return (job for job in map(self._in_order.__getitem__, range(end - 1, -1, -1)) if not job.removed)

    def lanes(self, wanted: Iterable[Lane]) -> dict[tuple[str, str], JobHeap]:
        """The due jobs these lanes mean, by topic and task, each once however many lanes name them."""
        found = {}
        for lane in wanted:
            for task, jobs in self.ready.get(lane.topic, {}).items():
                if lane.task in (None, task):
                    found[lane.topic, task] = jobs
        return found

    def next_expired(self, now: int) -> JobRow | None:
        """A pending job whose expiry has come, if there is one."""
        while self._expiries and self._expiries[0][0] <= now:
            expires_at, _, job = heapq.heappop(self._expiries)
            if job.in_expiry_heap == expires_at:
                job.in_expiry_heap = None
                if not job.removed and job.can_expire and job.expires_at == expires_at:
                    return job
        return None

    def paused_until(self, topic: str, now: int) -> int | None:
        until = self.pauses.get(topic)
        return until if until is not None and until > now else None

    def topic_names(self, now: int) -> set[str]:
        """Topics that have jobs or are paused."""
        return {*self.counts, *(topic for topic, until in self.pauses.items() if until > now)}

    def active(self, topic: str) -> int:
        """How many jobs of a topic are pending or running."""
        counts = self.counts.get(topic, Counter())
        return counts[State.PENDING] + counts[State.RUNNING]

    @property
    def grant_count(self) -> int:
        """How often a job has been granted so far."""
        return self._last_fence

    @property
    def pending(self) -> int:
        """How many jobs are pending, whatever their topic: those that are neither running nor finished."""
        return len(self.jobs) - len(self.leases) - len(self.finished) - len(self.kept_for_ever)

    # -- doubting -----------------------------------------------------------------------------------------

    def find_inconsistencies(self) -> list[str]:
        """What is inconsistent. Nothing, unless a move above is wrong."""
        found = []
        recount: dict[str, Counter[State]] = {}
        for job in self.jobs.values():
            recount.setdefault(job.topic, Counter())[job.state] += 1
            if job.state is State.PENDING:
                ready = self.ready.get(job.topic, {}).get(job.task)
                rightly_placed = job.heap is self.waiting or (job.heap is ready and ready is not None)
                if job.blocked:
                    rightly_placed = job.heap is self.blocked
                if job.blocked != sum(job.after.values()):
                    found.append(f"job {job.id} says it waits for {job.blocked}, there are {job.after}")
            elif job.state is State.RUNNING:
                rightly_placed = job.heap is self.leases
            else:
                prunable = job.prune_at is not None and job.id not in self.children
                rightly_placed = job.heap is (self.finished if prunable else self.kept_for_ever)
            if not rightly_placed:
                found.append(f"job {job.id} is {job.state} but not in the heap of such jobs")
            if (job.state is State.RUNNING) != (job.leased_until is not None):
                found.append(f"job {job.id} is {job.state} with leased_until {job.leased_until}")
            if (job.state in FINAL_STATES) != (job.finished_at is not None):
                found.append(f"job {job.id} is {job.state} with finished_at {job.finished_at}")
            active = job.state not in FINAL_STATES
            if (name := job.key_name) is not None and (active or job.key_until is KeyLifetime.PRUNED):
                holder = self.keys.get(name)
                if holder is not job:
                    found.append(f"job {job.id} should hold the key {name}, held by {holder and holder.id}")
            for parent_id, waits in job.after.items():
                parent = self.jobs.get(parent_id)
                over = parent is None or parent.state in FINAL_STATES
                if active and waits and over and parent_id not in self.ended_parents:
                    found.append(f"job {job.id} waits for job {parent_id}, which has ended")
        found += [f"key {n} is held by removed job {j.id}" for n, j in self.keys.items() if j.removed]
        if recount != {topic: +counts for topic, counts in self.counts.items()}:
            found.append(f"topic counts are {self.counts}; the jobs add up to {recount}")
        if [job.number for job in self.newest_first()] != sorted(
            (job.number for job in self.jobs.values()), reverse=True
        ):
            found.append("the jobs in order are not the jobs there are")
        return found
