"""Those in other processes who wait for jobs, and the one loop that claims for them.

Each claims under a name of its own, for as many jobs as it has room for. They are served in the order in
which they came; who waits for the same lanes stands in one *line*, and when a claim for the first of a line
finds nothing, the others need not be asked. So five hundred who wait cost a claim a second for each line, and
a hint of a new job costs a few. While there is enough for everybody, several are claimed for at a time: fifty
workers that take one job each got twice as many so.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from tidewheel.core.clock import Clock
from tidewheel.core.jitter import jitter
from tidewheel.core.model import Claim, Claimed, ClaimRequest, Lane
from tidewheel.errors import NotOpen, StoreError, StoreUnavailable, TooManyWaiters
from tidewheel.pull.job_returner import JobReturner, PulledJob
from tidewheel.settings import Settings
from tidewheel.stores.protocol import Store

CLAIM_TIMEOUT_SECONDS: Final = 10.0
"""How long a claim may take: one connection that has gone silent must not stop everybody for longer."""
FINAL_CLAIM_SECONDS: Final = 1.0
"""Max seconds a caller waits for its last look after its timeout: it may bring a job that just became due."""
CLOSE_TIMEOUT_SECONDS: Final = 2.0
"""How long a close waits for claims under way: what they grant would stay reserved without a holder."""
UNSUBSCRIBE_AFTER_SECONDS: Final = 5.0
"""How long a line without anybody in it stays subscribed to hints: most come back at once."""
QUEUES_PER_POLL: Final = 50
"""So many lines are looked at every ``poll_interval`` without a hint; with more of them each is looked at
less often, so that idle lines cost no more than these."""
MAX_PARALLEL_CLAIMS: Final = 16
"""Claims that go to the store at a time, while each brings jobs: they share commits, or connections."""
MIN_REST_SECONDS: Final = 0.02
"""Seconds between two looks at a line at least, unless a hint comes."""
OUTAGE_REST_SECONDS: Final = 1.0
"""Seconds between tries while the store is away."""

_log = logging.getLogger("tidewheel.remote")


class Grant(Struct, frozen=True):
    """What somebody got. ``granted_at`` is when it was asked for, monotonic: leases began no earlier."""

    jobs: tuple[Claimed, ...] = ()
    granted_at: float = 0.0
    next_due_in: float | None = None
    kept_back: bool = False

    def split_jobs(self) -> list[PulledJob]:
        """The jobs one by one."""
        return [PulledJob(job, self.granted_at) for job in self.jobs]


EMPTY_GRANT: Final = Grant()


@dataclass(slots=True, eq=False)
class WaitQueue:
    """Those who wait for the same lanes."""

    lanes: frozenset[Lane]
    waiting: int = 0
    needs_claim: bool = True  # somebody came, or a hint: it has to be looked at
    claim_at: float = math.inf  # by the loop's clock: when it is looked at in any case
    subscription: asyncio.Task[None] | None = None  # for hints, once somebody has to wait


@dataclass(slots=True, eq=False)
class WaitingWorker:
    """Somebody who asked for jobs."""

    request: ClaimRequest
    queue: WaitQueue
    may_wait: bool  # False: one look, and no more
    answer: asyncio.Future[Grant]
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _DispatchRound:
    """One look at some lines."""

    queues: frozenset[WaitQueue]
    empty: set[WaitQueue] = field(default_factory=set)  # nothing is left in them
    next_due_in: dict[WaitQueue, float] = field(default_factory=dict)  # in how many seconds something is due
    # For whom there would be more with more free slots.
    kept_back: set[WaitingWorker] = field(default_factory=set)
    # Who were looked for and got nothing.
    unserved: dict[WaitQueue, list[WaitingWorker]] = field(default_factory=dict)

    def cannot_be_served(self, waiter: WaitingWorker) -> bool:
        """Whether another of its line, with as much room or more, was looked for and got nothing."""
        for other in self.unserved.get(waiter.queue, ()):
            if _covers(other.request, waiter.request):
                if other in self.kept_back:
                    self.kept_back.add(waiter)
                return True
        return False


def _covers(one: ClaimRequest, other: ClaimRequest) -> bool:
    """Whether one may have all that the other may, of the same lanes."""
    return _free(one) >= _free(other) and all(
        other.topic_limits.get(topic, math.inf) <= most for topic, most in one.topic_limits.items()
    )


def _free(request: ClaimRequest) -> int:
    return request.limit if request.free_slots is None else request.free_slots


class ClaimDispatcher:
    """The waiters of one event loop, next to its store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock, returner: JobReturner) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._job_returner = returner
        self._waiters: dict[WaitingWorker, None] = {}  # in order of arrival
        self._queues: dict[frozenset[Lane], WaitQueue] = {}
        self._changed = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._batch_size = 1  # so many are claimed for at a time
        self._store_unreachable = False  # the store is away, and that was said

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._waiters)

    def add_waiter(self, request: ClaimRequest, seconds: float) -> WaitingWorker:
        """Want jobs, for so long. Whoever loses interest has to ``remove_waiter``."""
        limit = self._settings.max_waiters
        if limit is not None and len(self._waiters) >= limit:
            raise TooManyWaiters(
                f"{len(self._waiters):,} callers wait for jobs; the limit is {limit:,} (max_waiters)"
            )
        loop = asyncio.get_running_loop()
        lanes = frozenset(request.lanes)
        line = self._queues.setdefault(lanes, WaitQueue(lanes))
        line.waiting += 1
        line.needs_claim = True
        waiter = WaitingWorker(request, line, seconds > 0, loop.create_future())
        if seconds > 0:
            waiter.timer = loop.call_later(seconds, self.expire_waiter, waiter)
        self._waiters[waiter] = None
        self._changed.set()
        if self._loop is None:
            self._loop = asyncio.create_task(self._run(), name="tidewheel-room")
        return waiter

    def expire_waiter(self, waiter: WaitingWorker) -> None:
        """Its time is over: it gets what is due now, or nothing."""
        if waiter not in self._waiters:
            return
        waiter.may_wait = False
        waiter.queue.needs_claim = True
        self._changed.set()
        asyncio.get_running_loop().call_later(FINAL_CLAIM_SECONDS, self.remove_waiter, waiter)

    def remove_waiter(self, waiter: WaitingWorker) -> None:
        """It wants nothing any more, if it did not get something yet."""
        self._answer(waiter, EMPTY_GRANT)

    async def close(self) -> None:
        """Let go. Those who still wait are told that the app was closed."""
        for line in list(self._queues.values()):
            if line.subscription is not None:
                line.subscription.cancel()
        self._fail(list(self._waiters), NotOpen("the app was closed while jobs were waited for"))
        task, self._loop = self._loop, None
        if task is not None:
            self._changed.set()  # nobody waits: it ends
            await asyncio.wait((task,), timeout=CLOSE_TIMEOUT_SECONDS)
            task.cancel()
            await asyncio.wait((task,))

    # -- the loop -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._waiters:
                self._changed.clear()
                now = asyncio.get_running_loop().time()
                due = [line for line in self._occupied_queues() if line.needs_claim or line.claim_at <= now]
                if due:
                    await self._dispatch(_DispatchRound(frozenset(due)))
                if not self._changed.is_set() and self._waiters:
                    await self._rest()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            _log.exception("jobs cannot be claimed for those who wait, which is a bug")
            self._fail(list(self._waiters), error)
        finally:
            if self._loop is asyncio.current_task():
                self._loop = None

    def _occupied_queues(self) -> Iterable[WaitQueue]:
        return (line for line in self._queues.values() if line.waiting)

    async def _rest(self) -> None:
        next_look = min(line.claim_at for line in self._occupied_queues())
        try:
            async with asyncio.timeout_at(None if next_look == math.inf else next_look):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _dispatch(self, look: _DispatchRound) -> None:
        waiters = [waiter for waiter in self._waiters if waiter.queue in look.queues]
        for line in look.queues:
            line.needs_claim, line.claim_at = False, math.inf
        try:
            await self._serve_all(waiters, look)
        except StoreUnavailable as error:
            self._log_outage(error)
            self._fail((waiter for waiter in waiters if not waiter.may_wait), error)
            rest = OUTAGE_REST_SECONDS
        else:
            if self._store_unreachable:
                self._store_unreachable = False
                _log.warning("jobs can be claimed again")
            for waiter in waiters:
                if not waiter.may_wait:  # all there is has been seen
                    moment, kept_back = look.next_due_in.get(waiter.queue), waiter in look.kept_back
                    self._answer(waiter, Grant(next_due_in=moment, kept_back=kept_back))
            rest = self._settings.poll_interval * max(1.0, len(self._queues) / QUEUES_PER_POLL)
        now = asyncio.get_running_loop().time()
        for line in look.queues:
            pause = rest * jitter(0.75, 1.25)  # not all in step
            line.claim_at = now + min(pause, max(look.next_due_in.get(line, pause), MIN_REST_SECONDS))
            if line.waiting and line.subscription is None:
                line.subscription = asyncio.create_task(self._watch(line), name="tidewheel-line")

    async def _serve_all(self, waiters: list[WaitingWorker], look: _DispatchRound) -> None:
        """In the order in which they came: one by one, and while there is enough for all, more at a time."""
        left = deque(waiters)
        while batch := self._next_batch(left, look):
            served = await asyncio.gather(
                *[self._serve(waiter, look) for waiter in batch], return_exceptions=True
            )
            for waiter, answer in zip(batch, served, strict=True):
                if isinstance(answer, StoreError) and not isinstance(answer, StoreUnavailable):
                    self._fail((waiter,), answer)  # something about this wish, which is not the others' fault
                elif isinstance(answer, BaseException):
                    self._batch_size = 1
                    raise answer
            self._batch_size = (
                min(2 * self._batch_size, MAX_PARALLEL_CLAIMS) if all(one is True for one in served) else 1
            )

    def _next_batch(self, left: deque[WaitingWorker], look: _DispatchRound) -> list[WaitingWorker]:
        """Of each name one: after a lost reply a store gives back what a name was granted and does not know,
        and must not take what another claim of that name is being granted meanwhile.
        """
        batch: dict[str, WaitingWorker] = {}
        while left and len(batch) < self._batch_size and left[0].request.worker not in batch:
            waiter = left.popleft()
            if (
                waiter.queue not in look.empty
                and not waiter.answer.done()
                and not look.cannot_be_served(waiter)
            ):
                batch[waiter.request.worker] = waiter
        return list(batch.values())

    async def _serve(self, waiter: WaitingWorker, look: _DispatchRound) -> bool:
        """One claim on behalf of this one, and what it tells about its line; whether it brought anything."""
        request, line = waiter.request, waiter.queue
        sent = self._clock.monotonic()
        claim = await self._claim(request)
        if claim.jobs:
            grant = Grant(claim.jobs, sent, claim.next_due_in, claim.needs_more_slots)
            if waiter.answer.done():  # it has left meanwhile; the next are hinted at when they are back
                self._job_returner.return_jobs(grant.split_jobs())
            else:
                self._answer(waiter, grant)
        else:
            look.unserved.setdefault(line, []).append(waiter)
            if claim.needs_more_slots:
                look.kept_back.add(waiter)
        if claim.next_due_in is not None:
            moment = claim.next_due_in or (0.0 if claim.jobs else MIN_REST_SECONDS)
            look.next_due_in[line] = min(moment, look.next_due_in.get(line, math.inf))
        # What this one may not have, another with more room may.
        taken = Counter([job.topic for job in claim.jobs])
        capped = any(taken[topic] >= most for topic, most in request.topic_limits.items())
        if claim.next_due_in != 0.0 and not claim.needs_more_slots and not capped:
            look.empty.add(line)
        return bool(claim.jobs)

    async def _claim(self, request: ClaimRequest) -> Claim:
        try:
            async with asyncio.timeout(CLAIM_TIMEOUT_SECONDS):
                return await self._store.claim(request)
        except TimeoutError:
            raise StoreUnavailable(
                f"the store did not answer a claim within {CLAIM_TIMEOUT_SECONDS:g} s"
            ) from None

    async def _watch(self, queue: WaitQueue) -> None:
        """Hear of new jobs for a line, until nobody has stood in it for a while."""
        try:
            topics = {lane.topic for lane in queue.lanes}
            async with self._store.wakeups(topics=topics) as hints:
                hinted = True  # what came before this was not heard
                while hinted or queue.waiting:
                    if hinted:
                        self._hint(queue)
                    hinted = await hints.wait(UNSUBSCRIBE_AFTER_SECONDS)
            self._hint(queue)  # for who came while this was being closed
        except StoreError as error:
            _log.debug("no hints come for %d who wait, who are served by polling: %s", queue.waiting, error)
        finally:
            queue.subscription = None
            self._forget_if_empty(queue)

    def _hint(self, queue: WaitQueue) -> None:
        if queue.waiting:
            queue.needs_claim = True
            self._changed.set()

    # -- answers ------------------------------------------------------------------------------------------

    def _answer(self, waiter: WaitingWorker, grant: Grant) -> None:
        if not waiter.answer.done():
            waiter.answer.set_result(grant)
        self._forget(waiter)

    def _fail(self, waiters: Iterable[WaitingWorker], error: Exception) -> None:
        for waiter in waiters:
            if not waiter.answer.done():
                waiter.answer.set_exception(error)
                waiter.answer.exception()  # it may be that nobody looks any more
            self._forget(waiter)

    def _forget(self, waiter: WaitingWorker) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        if waiter in self._waiters:
            del self._waiters[waiter]
            waiter.queue.waiting -= 1
            self._forget_if_empty(waiter.queue)

    def _forget_if_empty(self, queue: WaitQueue) -> None:
        if not queue.waiting and queue.subscription is None and self._queues.get(queue.lanes) is queue:
            del self._queues[queue.lanes]

    def _log_outage(self, error: StoreError) -> None:
        level = logging.DEBUG if self._store_unreachable else logging.WARNING
        _log.log(level, "jobs cannot be claimed for %d who wait, trying again: %s", self.waiting, error)
        self._store_unreachable = True
