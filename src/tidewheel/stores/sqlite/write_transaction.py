"""The state of one write transaction: time, counters, granted jobs, and the subscribers to wake.

Gaps are recorded here too. In a gap, a handler's transaction held the write lock for 0.2 seconds or more. No
lease could be extended meanwhile, and no job taken over. For 2 seconds after a gap, leases are judged by the
time at which it began, so that live workers can extend theirs first. The limit is 60 seconds. A gap is stored
in the file for all processes, and is read only if a lease may have ended.
"""

from __future__ import annotations

import contextlib
import operator
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.clock_guard import ClockGuard
from tidewheel.core.model import Claimed, Lease, RescuedJob
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.reports import count_in_buckets
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite.bulk_insert import write_rows

MIN_PAUSE: Final = seconds_to_microseconds(0.2)
"""Shorter transactions than this are part of every lease's reckoning."""
LEASE_GRACE: Final = seconds_to_microseconds(2.0)
"""How long workers have to extend their leases after a gap; their keepers try at least every second."""
MAX_LEASE_GRACE: Final = seconds_to_microseconds(60.0)
"""A lease that ended longer ago than this has ended, however hard it was to write meanwhile."""

_sql = SqlFile("tidewheel.stores.sqlite", "sql/write_transaction.sql")


def record_lock_pause(connection: sqlite3.Connection, began: int, ended: int) -> None:
    """Write a gap down, in the transaction at hand. Those that follow each other are one."""
    if ended - began < MIN_PAUSE:
        return
    before = connection.execute(_sql["last_lock_pause"]).fetchone()
    if before[1] is not None and before[1] <= began <= before[1] + LEASE_GRACE:
        # Not without end: in between the lock was free, and who lives had a turn.
        began = max(before[0], ended - 2 * (ended - began) - LEASE_GRACE)
    connection.execute(_sql["record_lock_pause"], (began, ended))


def lease_cutoff(connection: sqlite3.Connection, now: int) -> int:
    """The moment by which leases are judged: now, or soon after a gap when that began."""
    began, ended = connection.execute(_sql["last_lock_pause"]).fetchone()
    if ended is None or not ended <= now <= ended + LEASE_GRACE:
        return now
    return min(now, max(int(began), now - MAX_LEASE_GRACE))


MINUTE = 60 * MICROSECONDS


class StateCode(IntEnum):
    """Stored state codes; waiting and ready are both shown as pending."""

    WAITING = 0
    READY = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4
    CANCELLED = 5


class Metric(IntEnum):
    """What ``tidewheel_minute_metrics`` counts."""

    ENQUEUED = 0
    COMPLETED = 1
    FAILED = 2
    CANCELLED = 3
    RETRIED = 4
    RUN_TIME = 5
    WAIT_TIME = 6


_LANE_COLUMNS = (
    "enqueued",
    "completed",
    "failed",
    "cancelled",
    "retried",
    "runs",
    "run_us",
    "waits",
    "wait_us",
)
"""What ``tidewheel_lane_minute_metrics`` counts, the events in the order of ``Metric``."""
_LANE_ZEROES = [0] * len(_LANE_COLUMNS)
_RUNS = _LANE_COLUMNS.index("runs")
_WAITS = _LANE_COLUMNS.index("waits")


class CounterDeltas:
    """Changes of the counters, collected while rows change and written once per transaction."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str, str, int], int] = defaultdict(int)
        self._minutes: defaultdict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0, 0])
        self._lanes: defaultdict[tuple[int, str, str], list[int]] = defaultdict(_LANE_ZEROES.copy)

    def count_transition(
        self, tenant: str, topic: str, task: str, old: int | None, new: int | None, n: int = 1
    ) -> None:
        """``n`` jobs went from one stored state to another; None means they came or went."""
        if old is not None:
            self._counts[tenant, topic, task, old] -= n
        if new is not None:
            self._counts[tenant, topic, task, new] += n

    def count_event(self, now: int, metric: Metric, topic: str, task: str, n: int = 1) -> None:
        """``n`` jobs of this lane were enqueued, or ended."""
        minute = now - now % MINUTE
        self._minutes[minute, metric, 0][0] += n
        self._lanes[minute, topic, task][metric] += n

    def add_durations(self, now: int, metric: Metric, microseconds: Iterable[int]) -> None:
        minute = now - now % MINUTE
        for bucket, n, total in count_in_buckets(microseconds):
            entry = self._minutes[minute, metric, bucket]
            entry[0] += n
            entry[1] += total

    def add_lane_durations(
        self, now: int, topic: str, task: str, run_times: Sequence[int], wait_times: Sequence[int]
    ) -> None:
        """The same durations as part of what happened in a lane."""
        entry = self._lanes[now - now % MINUTE, topic, task]
        entry[_RUNS] += len(run_times)
        entry[_RUNS + 1] += sum(run_times)
        entry[_WAITS] += len(wait_times)
        entry[_WAITS + 1] += sum(wait_times)

    def add(self, other: CounterDeltas) -> None:
        for count_key, n in other._counts.items():
            self._counts[count_key] += n
        for minute_key, (n, total) in other._minutes.items():
            entry = self._minutes[minute_key]
            entry[0] += n
            entry[1] += total
        for lane_key, happened in other._lanes.items():
            self._lanes[lane_key] = list(map(operator.add, self._lanes[lane_key], happened))

    def write(self, connection: sqlite3.Connection) -> None:
        # Upserts: with one writer at a time there is no hot row to fight over (PostgreSQL appends and folds).
        counts = [(*key, n) for key, n in self._counts.items() if n]
        _upsert(connection, "tidewheel_job_counts", _COUNTS, counts)
        entries = [(*key, *entry) for key, entry in self._minutes.items()]
        _upsert(connection, "tidewheel_minute_metrics", _MINUTES, entries)
        lanes = [(*key, *entry) for key, entry in self._lanes.items()]
        _upsert(connection, "tidewheel_lane_minute_metrics", _LANE_MINUTES, lanes)


_COUNTS = ("tenant", "topic", "task", "state", "n")
_MINUTES = ("minute", "metric", "bucket", "n", "total")
_LANE_MINUTES = ("minute", "topic", "task", *_LANE_COLUMNS)


def _upsert(
    connection: sqlite3.Connection, table: str, columns: tuple[str, ...], rows: Sequence[tuple[object, ...]]
) -> None:
    if rows:
        named = dict(zip(columns, zip(*rows, strict=True), strict=True))
        write_rows(connection, table, len(rows), named, _sql[f"add_to_{table}"])


class GrantedJobs:
    """Jobs this process was granted and has not settled, by fence: what a settlement would have to look up.

    A memory, not an authority: the statement that settles checks fence, state and time in the row itself.
    """

    LIMIT = 20_000

    def __init__(self) -> None:
        self._by_fence: dict[int, Claimed] = {}
        self.limited_topics: set[str] = set()  # of which something was granted; none, mostly

    def add(self, first_fence: int, jobs: Sequence[Claimed]) -> None:
        """Jobs granted under fences that count up from the first one."""
        self._by_fence.update(enumerate(jobs, first_fence))
        while len(self._by_fence) > self.LIMIT:  # never settled here; the oldest have long ended
            del self._by_fence[next(iter(self._by_fence))]

    def pop(self, lease: Lease) -> Claimed | None:
        """The job granted under this lease; each is given out once."""
        job = self._by_fence.pop(lease.fence, None)
        # Nearly always the very lease that was given out: comparing two ids is slow.
        return job if job is not None and (job.lease is lease or job.lease == lease) else None


class OptimisticWriteFailed(Exception):
    """A transaction that took a short cut cannot go on: it is undone and tried again, with care."""


@dataclass(slots=True)
class WriteTransaction:
    """Handed to every writing operation. ``now`` is read after the write lock was taken.

    ``optimistic``: all of it can be undone and done again, so a part of it need not be made undoable by
    itself. Whoever finds then that it should have been raises ``OptimisticWriteFailed``.
    """

    connection: sqlite3.Connection
    now: int
    limits: StoreLimits
    grants: GrantedJobs
    optimistic: bool = False
    guard: ClockGuard | None = None  # None in transactions of others, which only enqueue
    counter_deltas: CounterDeltas = field(default_factory=CounterDeltas)
    ready_topics: set[str] = field(default_factory=set)
    # That came free in limited topics, less what was taken.
    freed_slots: Counter[str] = field(default_factory=Counter)
    finished: bool = False
    rescued: list[RescuedJob] = field(default_factory=list)
    parents_ended: bool = False  # jobs wait for some of those that ended
    releases_pending: bool = False  # those were too many: there is more to do in a transaction of its own

    @property
    def lease_cutoff(self) -> int:
        """The moment by which leases are judged: ``now``, unless nobody could write for a while.

        Asked for only where a lease may have ended: jobs that simply complete are judged by ``now``.
        """
        return lease_cutoff(self.connection, self.now)

    @property
    def trusted_now(self) -> int:
        """The moment by which to delete and to cancel: ``now``, unless the clock has just stepped ahead."""
        return self.now if self.guard is None else self.guard.confirmed_time(self.now)

    def nested(self) -> WriteTransaction:
        """For work that may have to be undone by itself; ``absorb`` what came of it."""
        return WriteTransaction(self.connection, self.now, self.limits, self.grants, guard=self.guard)

    def absorb(self, part: WriteTransaction) -> None:
        self.counter_deltas.add(part.counter_deltas)
        self.ready_topics |= part.ready_topics
        self.freed_slots.update(part.freed_slots)
        self.finished |= part.finished
        self.rescued += part.rescued
        self.parents_ended |= part.parents_ended
        self.releases_pending |= part.releases_pending

    def reserve_sequence(self, name: str, n: int) -> int:
        """Reserve ``n`` values of a store-wide sequence; the first of them."""
        return reserve_sequence(self.connection, name, n)


@contextlib.contextmanager
def savepoint(connection: sqlite3.Connection, name: str) -> Iterator[None]:
    """What is done inside is kept whole or not at all; what was there before stays either way."""
    connection.execute(f"SAVEPOINT {name}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite may have rolled back by itself
            connection.execute(f"ROLLBACK TO {name}")
            connection.execute(f"RELEASE {name}")
        raise
    connection.execute(f"RELEASE {name}")


def reserve_sequence(connection: sqlite3.Connection, name: str, n: int) -> int:
    """The first of ``n`` values that nobody else will have."""
    last = connection.execute(_sql["reserve_sequence"], (n, name)).fetchone()[0]
    return int(last) - n + 1
