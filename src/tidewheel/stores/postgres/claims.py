"""Granting due jobs: when all of them may be looked at, and rows as ``Claimed``."""

from __future__ import annotations

import asyncio
import logging
import math
import operator
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

import msgspec

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.clock_guard import ClockGuard
from tidewheel.core.model import Claim, Claimed, ClaimRequest, Lane, Lease, Settlement
from tidewheel.errors import StoreUnavailable
from tidewheel.stores.postgres.claim_scan import FENCE, NUMBER, PRIORITY, TOPIC, ClaimSummary, ScanState
from tidewheel.stores.postgres.database import Database, Record
from tidewheel.stores.postgres.row_mapping import FORMATS
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.terminal_errors import (
    CANCELLED_ON_REQUEST,
    EXPIRED,
    WORKER_LOST,
    summarise_error,
)

_sql = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")
_log = logging.getLogger("tidewheel.postgres")

FULL_SCAN_REST_FACTOR: Final = 10
"""A dear look at everything is followed by a rest of so many times what it took."""

MAX_FULL_SCAN_REST_SECONDS: Final = 0.6
"""But by no longer one than this, as long as looking takes no more than a quarter of it: what was committed
late is to be found within a second."""

CHEAP_FULL_SCAN_SECONDS: Final = 0.002
"""It is not dear before this: nobody notices. It becomes dear when an old snapshot keeps dead rows in the
way; then looking at everything would soon take all the time there is."""

FULL_SCAN_SAMPLES: Final = 4
"""Nor if one of the last four was not: the others were held up, or had to make plans first."""

SECONDS_PER_GRANTED_JOB: Final = 10e-6
"""What each granted job adds to it, which does not count."""

EXPIRED_LEASE_RESCAN_SECONDS: Final = 10.0
"""How long, where such looks are dear, leases that should be over are not looked for."""

LATE_COMMIT_MARGIN: Final = 3_000_000
"""A lease or a delay that is committed so late that its end has passed is still found by the next look."""

MIN_LEASED_BATCH: Final = 20
"""So many jobs are worth a row that they share; see ``leased_batches.py``."""

MAX_SCAN_STATES: Final = 100
"""Different sets of lanes whose marks are remembered."""

MAX_LIMITED_GRANTS: Final = 20_000
"""Grants of topics with limits that are remembered until they are settled."""

MAX_TRACKED_WORKERS: Final = 1000
"""Workers of one store whose newest fence is remembered."""

ERROR_MESSAGES: Final = [
    WORKER_LOST.format(attempt="%1$s"),
    EXPIRED.format(due="%1$s"),
    summarise_error(CANCELLED_ON_REQUEST),
]
"""What the functions say when they end a job by themselves, for PostgreSQL's ``format``."""

_number_of = operator.itemgetter(NUMBER)
_priority_of = operator.itemgetter(PRIORITY)


class Claimer:
    """The claims of one store. Knows how far they came (``claim_scan``) and decides how much each looks at.

    Most go on from the marks. Four times a second one looks back a little, and deals with leases that have
    ended and delayed jobs that are due. Everything is looked at whenever there is a reason, such as a claim
    that fell short or a hint that does not say where; that is cheap, and when it is not, it is rationed.
    """

    def __init__(
        self,
        database: Database,
        rescued: Callable[[Sequence[str]], None],
        room: Callable[[Mapping[str, int]], None],
        guard: ClockGuard,
    ) -> None:
        self._on_rescued = rescued  # is told of jobs that a claim brought back, as the functions tell of them
        self._on_slots_changed = room  # is told how much of it in limited topics is taken (less than zero)
        self.min_leased_batch = MIN_LEASED_BATCH
        self._database = database
        self._guard = guard
        # Tells apart what other handles grant to a worker of the same name.
        self._handle_id = secrets.randbits(63)
        self._scan_states: dict[tuple[Lane, ...], ScanState] = {}
        # Of the last looks at everything.
        self._full_scan_seconds = deque([0.0] * FULL_SCAN_SAMPLES, FULL_SCAN_SAMPLES)
        self._full_scan_at = 0.0  # from when on there may be another
        self._maintained_until: int | None = None  # no lease that ended before this is left, no delayed job
        self._expired_lease_scan_at = 0.0  # until when to believe it
        self._ready_during_claim: dict[
            int, list[Mapping[str, int] | None]
        ] = {}  # by each claim under way, since it began
        self._claim_count = 0
        self._newest_fences: dict[str, int] = {}  # by worker
        self._forgotten_fence = 0  # no worker that is not among them was told of a newer one
        self.limited_grants: dict[int, str] = {}  # topics of jobs of limited topics, by fence; none, mostly
        self._workers_with_lost_reply: dict[
            str, None
        ] = {}  # workers that may have jobs and never learned of it

    def notify_ready(self, lowest_numbers: Mapping[str, int] | None) -> None:
        """Jobs of these topics became ready, none with a number below the one given. None: any topic."""
        for looks in self._scan_states.values():
            looks.notify_ready(lowest_numbers)
        for heard in self._ready_during_claim.values():
            heard.append(lowest_numbers)

    def maintained_until(self) -> int | None:
        """No lease that ended before this moment is left, as far as is known; None: look at all of them."""
        now = time.monotonic()
        if (
            self._database.now is not None
            or min(self._full_scan_seconds) <= CHEAP_FULL_SCAN_SECONDS
            or now >= self._expired_lease_scan_at
        ):
            self._expired_lease_scan_at = now + EXPIRED_LEASE_RESCAN_SECONDS
            return None
        return self._maintained_until

    async def latest_trusted_time(self) -> int | None:
        """The latest time to cancel by. Claims bring the server's time along; the first look may be here."""
        if self._guard.latest is None:
            self._guard.record(int(await self._database.fetchval(_sql["now"], self._database.now)))
        return self._guard.latest

    def _full_scan_allowed(self) -> bool:
        # With a clock of the caller's own, time may jump: what was found out does not hold for long.
        return self._database.now is not None or time.monotonic() >= self._full_scan_at

    async def claim(self, request: ClaimRequest) -> Claim:
        if request.worker in self._workers_with_lost_reply:
            await self._release_lost_grants(request.worker)
        try:
            claim = await self._claim(request)
        except (StoreUnavailable, asyncio.CancelledError):
            self._mark_reply_lost(request.worker)
            raise
        if claim.jobs:
            self._remember_fence(request.worker, max([job.lease.fence for job in claim.jobs]))
        return claim

    async def claim_job(
        self, job_id: UUID, tenant: str | None, worker: str, lease_seconds: float
    ) -> Claimed | None:
        """Just this job. Part of what the worker was granted, as far as lost replies are concerned."""
        if worker in self._workers_with_lost_reply:
            await self._release_lost_grants(worker)
        lease_us = seconds_to_microseconds(lease_seconds)
        try:
            rows = await self._database.fetch_for(
                tenant,
                _sql["claim_job"],
                self._database.now,
                job_id,
                tenant,
                worker,
                lease_us,
                self._handle_id,
            )
        except (StoreUnavailable, asyncio.CancelledError):
            self._mark_reply_lost(worker)
            raise
        if not rows:
            return None
        claimed = _claimed(rows[0])
        self._remember_fence(worker, claimed.lease.fence)
        return claimed

    def _remember_fence(self, worker: str, fence: int) -> None:
        # Put last, so that the first is the one not heard of for longest.
        self._newest_fences[worker] = max(fence, self._newest_fences.pop(worker, 0))
        if len(self._newest_fences) > MAX_TRACKED_WORKERS:
            forgotten = self._newest_fences.pop(next(iter(self._newest_fences)))
            self._forgotten_fence = max(forgotten, self._forgotten_fence)

    def _mark_reply_lost(self, worker: str) -> None:
        """The reply to a claim of this worker was lost."""
        self._workers_with_lost_reply[worker] = None
        if len(self._workers_with_lost_reply) > MAX_TRACKED_WORKERS:
            # What it was granted, if anything, comes back when the lease ends.
            del self._workers_with_lost_reply[next(iter(self._workers_with_lost_reply))]

    async def _release_lost_grants(self, worker: str) -> None:
        """The reply to this worker's last claim was lost. What it granted is free again, at once."""
        newest = self._newest_fences.get(worker, self._forgotten_fence)
        number = await self._database.fetchval(
            _sql["release_lost_grants"],
            self._database.now,
            worker,
            self._handle_id,
            newest,
            ERROR_MESSAGES[2],
        )
        self._workers_with_lost_reply.pop(worker, None)
        if number:
            self.notify_ready(None)
            _log.info("%d jobs granted to %s, which never learned of them, were given back", number, worker)

    async def _claim(self, request: ClaimRequest) -> Claim:
        # A lane named twice would be taken from twice.
        looks = self._scan_state_of(tuple(dict.fromkeys(request.lanes)))
        rested = self._full_scan_allowed()
        ranges, back = looks.next_ranges(time.monotonic(), rested=rested)
        rooms = request.topic_limits
        self._claim_count = asked = self._claim_count + 1
        self._ready_during_claim[asked] = []
        try:
            rows = await self._database.fetch(
                _sql["claim"],
                looks.injected_time,
                request.worker,
                ranges.topics,
                ranges.tasks,
                [rooms.get(topic) for topic in ranges.topics] if rooms else None,
                ranges.urgencies,
                ranges.numbers,
                ranges.end_urgencies,
                request.limit,
                seconds_to_microseconds(request.lease_seconds),
                self.maintained_until(),
                back,
                rested,
                ERROR_MESSAGES,
                self._handle_id,
                self.min_leased_batch,
                request.free_slots,
                self._guard.latest,
                request.reports_starts,
            )
        finally:
            heard = self._ready_during_claim.pop(asked)
        answer = ClaimSummary.from_row(rows.pop())
        self._guard.record(answer.server_time)
        if answer.rescued_jobs is not None:
            self._on_rescued(msgspec.json.decode(answer.rescued_jobs, type=list[str]))
        rows.sort(key=_number_of)
        rows.sort(key=_priority_of, reverse=True)  # keeps the order of those with the same
        if answer.maintained_until is not None:
            self._maintained_until = answer.maintained_until - LATE_COMMIT_MARGIN
        if answer.full_scan_seconds is not None:
            self._schedule_full_scan(answer.full_scan_seconds - SECONDS_PER_GRANTED_JOB * len(rows))
        if answer.limited_topics:
            self._remember_limited(answer.limited_topics, rows)
            rows_of_marks = [row for row in rows if row[TOPIC] not in answer.limited_topics]
            looks.record_claim(answer, rows_of_marks, rooms=bool(rooms))
        else:
            looks.record_claim(answer, rows, rooms=bool(rooms))
        for places in heard:
            looks.notify_ready(places)
        jobs = tuple([_claimed(row) for row in rows])
        return Claim(jobs, self._next_due_in(answer), answer.needs_more_slots)

    def _remember_limited(self, topics: Collection[str], rows: Sequence[Record]) -> None:
        granted = {row[FENCE]: row[TOPIC] for row in rows if row[TOPIC] in topics}
        self.limited_grants.update(granted)
        self._on_slots_changed({topic: -number for topic, number in Counter(granted.values()).items()})
        while len(self.limited_grants) > MAX_LIMITED_GRANTS:  # never settled here; the oldest have long ended
            del self.limited_grants[next(iter(self.limited_grants))]

    def freed_slots(self, settlements: Sequence[Settlement]) -> Counter[str]:
        """Topics with limits that have so much more room now that these leases have ended."""
        ended = [self.limited_grants.pop(settlement.lease.fence, None) for settlement in settlements]
        return Counter([topic for topic in ended if topic is not None])

    def _next_due_in(self, answer: ClaimSummary) -> float | None:
        moments = (
            []
            if answer.next_claim_at is None
            else [(answer.next_claim_at - answer.server_time) / MICROSECONDS]
        )
        if answer.full_scan_seconds is None:
            # What it did not look at: next time, or when everything may be looked at again.
            moments.append(0.0 if answer.maintained_until is None else self._full_scan_at - time.monotonic())
        return max(0.0, min(moments)) if moments else None

    def _schedule_full_scan(self, cost: float) -> None:
        self._full_scan_seconds.append(cost)
        if (usual := min(self._full_scan_seconds)) > CHEAP_FULL_SCAN_SECONDS:
            longest = MAX_FULL_SCAN_REST_SECONDS if usual <= MAX_FULL_SCAN_REST_SECONDS / 4 else math.inf
            self._full_scan_at = time.monotonic() + min(FULL_SCAN_REST_FACTOR * usual, longest)

    def _scan_state_of(self, lanes: tuple[Lane, ...]) -> ScanState:
        now = self._database.now
        looks = self._scan_states.pop(lanes, None)
        if looks is None or looks.injected_time != now:
            looks = ScanState(lanes, now)
        self._scan_states[lanes] = looks  # put last, so that the first is the one not asked for for longest
        if len(self._scan_states) > MAX_SCAN_STATES:
            del self._scan_states[next(iter(self._scan_states))]
        return looks


def _claimed(row: Record) -> Claimed:
    (
        job_id, fence, topic, task, tenant, priority, attempt, max_attempts, timeout_us, retry, lease_us,
        payload, raw, format_, checkpoint, number, created_at, run_at, key, correlation_id, user_id,
        service_id, headers, losses,
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
        headers,
        losses,
    )
