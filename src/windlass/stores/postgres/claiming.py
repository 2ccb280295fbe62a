"""Granting due jobs: where to start looking, and rows as ``Claimed``."""

from __future__ import annotations

import asyncio
import logging
import operator
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from windlass.clock import MICROSECONDS, seconds_to_microseconds
from windlass.errors import StoreUnavailable
from windlass.model import Claim, Claimed, ClaimRequest, Lane, Lease
from windlass.stores.endings import CANCELLED_ON_REQUEST, EXPIRED, WORKER_LOST, summarise_error
from windlass.stores.postgres.database import Database, Record
from windlass.stores.postgres.recording import FORMATS
from windlass.stores.queries import Queries

_sql = Queries("windlass.stores.postgres.sql", "verbs.sql")
_log = logging.getLogger("windlass.postgres")

RESCAN_SECONDS: Final = 0.25
"""How long claims may go on from where the last one ended, before all is looked at again: the most that a
delayed, rescued or late-committed job can be passed over while claims come back full."""

MOST_WORKERS: Final = 1000
"""Workers of one store whose newest fence is remembered."""

WORDS: Final = [
    WORKER_LOST.format(worker="%1$s", attempt="%2$s"),
    EXPIRED.format(due="%1$s"),
    summarise_error(CANCELLED_ON_REQUEST),
]
"""What the functions say when they end a job by themselves, for PostgreSQL's ``format``."""

# Columns of the claim function.
_TOPIC, _TASK, _PRIORITY, _NUMBER, _CREATED_AT, _RUN_AT = 2, 3, 5, 15, 16, 17

_number_of = operator.itemgetter(_NUMBER)
_priority_of = operator.itemgetter(_PRIORITY)


@dataclass(slots=True)
class _Mark:
    """How far the claims of some lanes have come: (urgency, number) of the last job granted in each."""

    urgencies: list[int | None]
    numbers: list[int | None]
    good_until: float
    at: int | None  # the injected time of that claim; None under the server's clock


class Claimer:
    """The claims of one store. Remembers how far they came, so that the next need not walk over dead rows.

    What it remembers never delays work for long: it is forgotten on every hint, by every write of this store
    that makes a job ready, when a claim falls short (the function looks again by itself) and after
    ``RESCAN_SECONDS`` in any case.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._name = secrets.randbits(63)  # tells apart what other handles grant to a worker of the same name
        self._marks: dict[tuple[Lane, ...], _Mark] = {}
        self._forgotten = 0  # counts up, so that a claim under way cannot bring back what was forgotten
        self._earliest_lease: tuple[int, float] | None = None  # end of a lease, and until when to believe it
        self._newest_fences: dict[str, int] = {}  # by worker
        self._unanswered: set[str] = set()  # workers that may have been granted jobs without learning of it

    def forget(self) -> None:
        """Something may have become ready anywhere: look at everything next time."""
        self._marks.clear()
        self._forgotten += 1

    async def claim(self, request: ClaimRequest) -> Claim:
        if request.worker in self._unanswered:
            await self._give_back(request.worker)
        try:
            claim = await self._claim(request)
        except (StoreUnavailable, asyncio.CancelledError):
            self._unanswered.add(request.worker)
            raise
        if claim.jobs:
            self._remember_fence(request.worker, max([job.lease.fence for job in claim.jobs]))
        return claim

    def _remember_fence(self, worker: str, fence: int) -> None:
        # Put last, so that the first is the one not heard of for longest.
        self._newest_fences[worker] = max(fence, self._newest_fences.pop(worker, 0))
        if len(self._newest_fences) > MOST_WORKERS:
            del self._newest_fences[next(iter(self._newest_fences))]

    async def _give_back(self, worker: str) -> None:
        """The reply to this worker's last claim was lost. What it granted is free again, at once."""
        newest = self._newest_fences.get(worker, 0)
        number = await self._database.fetchval(
            _sql["give_back"], self._database.now, worker, self._name, newest
        )
        self._unanswered.discard(worker)
        if number:
            _log.info("%d jobs granted to %s, which never learned of them, were given back", number, worker)

    async def _claim(self, request: ClaimRequest) -> Claim:
        now = self._database.now
        began, generation = time.monotonic(), self._forgotten
        lanes = tuple(dict.fromkeys(request.lanes))  # each once: a lane named twice would be taken from twice
        mark = self._marks.get(lanes)
        if mark is not None and (began >= mark.good_until or mark.at != now):
            mark = None
        leased_from = None
        if self._earliest_lease is not None and began < self._earliest_lease[1]:
            leased_from = self._earliest_lease[0]
        rooms = request.topic_limits
        rows = await self._database.fetch(
            _sql["claim"],
            now,
            request.worker,
            [lane.topic for lane in lanes],
            [lane.task for lane in lanes],
            [rooms.get(lane.topic) for lane in lanes] if rooms else None,
            None if mark is None else mark.urgencies,
            None if mark is None else mark.numbers,
            request.limit,
            seconds_to_microseconds(request.lease_seconds),
            leased_from,
            WORDS,
            self._name,
        )
        end = rows.pop()
        moment, due, lease_end = end[_CREATED_AT], end[_RUN_AT], end[_NUMBER]
        rows.sort(key=_number_of)
        rows.sort(key=_priority_of, reverse=True)  # keeps the order of those with the same
        self._remember_lease(began, lease_end, leased_from)
        full = due is not None and due <= moment and len(rows) >= request.limit
        if full and generation == self._forgotten and None not in {lane.task for lane in lanes}:
            self._remember(lanes, rows, mark, began, now)
        else:
            self._marks.pop(lanes, None)
        next_due_in = None if due is None else max(0.0, (due - moment) / MICROSECONDS)
        return Claim(tuple([_claimed(row) for row in rows]), next_due_in)

    def _remember(
        self,
        lanes: tuple[Lane, ...],
        rows: Sequence[Record],
        mark: _Mark | None,
        began: float,
        now: int | None,
    ) -> None:
        if len(lanes) == 1:
            rows = rows[-1:]  # the last of each lane is what counts
        last = {(row[_TOPIC], row[_TASK]): (-row[_PRIORITY], row[_NUMBER]) for row in rows}
        if mark is None:
            nothing: list[int | None] = [None] * len(lanes)
            mark = self._marks[lanes] = _Mark(nothing, list(nothing), began + RESCAN_SECONDS, now)
        for index, lane in enumerate(lanes):
            position = last.get((lane.topic, lane.task or ""))
            if position is not None:
                mark.urgencies[index], mark.numbers[index] = position

    def _remember_lease(self, began: float, lease_end: int | None, leased_from: int | None) -> None:
        # With a clock of the caller's own, time may jump; without it, leases end in the order they were seen,
        # but for shorter ones granted meanwhile: those are found when all is looked at again.
        if lease_end is None or self._database.now is not None:
            self._earliest_lease = None
        elif self._earliest_lease is not None and leased_from is not None:
            self._earliest_lease = (lease_end, self._earliest_lease[1])
        else:
            self._earliest_lease = (lease_end, began + RESCAN_SECONDS)


def _claimed(row: Record) -> Claimed:
    (
        job_id, fence, topic, task, tenant, priority, attempt, max_attempts, timeout_us, retry, lease_us,
        payload, raw, format_, checkpoint, number, created_at, run_at, key, correlation_id, user_id,
        service_id, trace, alone,
    ) = row  # fmt: skip
    return Claimed(
        Lease(job_id, fence),
        topic,
        task,
        tenant,
        priority,
        attempt,
        max_attempts,
        None if timeout_us is None else timeout_us / MICROSECONDS,
        retry,
        lease_us / MICROSECONDS,
        raw if payload is None else payload.encode(),
        FORMATS[format_],
        None if checkpoint is None else checkpoint.encode(),
        number,
        created_at,
        run_at,
        key,
        correlation_id,
        user_id,
        service_id,
        trace,
        alone,
    )
