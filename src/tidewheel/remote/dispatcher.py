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
from tidewheel.pull.job_returner import Pulled, Returning
from tidewheel.settings import Settings
from tidewheel.stores.protocol import Store

ANSWER_SECONDS: Final = 10.0
"""How long a claim may take: one connection that has gone silent must not stop everybody for longer."""
LAST_LOOK_SECONDS: Final = 1.0
"""Max seconds a caller waits for its last look after its timeout: it may bring a job that just became due."""
LAST_CLAIM_SECONDS: Final = 2.0
"""How long a close waits for claims under way: what they grant would stay reserved without a holder."""
LINGER_SECONDS: Final = 5.0
"""How long a line without anybody in it stays subscribed to hints: most come back at once."""
POLLED_LINES: Final = 50
"""So many lines are looked at every ``poll_interval`` without a hint; with more of them each is looked at
less often, so that idle lines cost no more than these."""
MOST_AT_ONCE: Final = 16
"""Claims that go to the store at a time, while each brings jobs: they share commits, or connections."""
SHORTEST_REST: Final = 0.02
"""Seconds between two looks at a line at least, unless a hint comes."""
OUTAGE_REST: Final = 1.0
"""Seconds between tries while the store is away."""

_log = logging.getLogger("tidewheel.remote")


class Grant(Struct, frozen=True):
    """What somebody got. ``granted_at`` is when it was asked for, monotonic: leases began no earlier."""

    jobs: tuple[Claimed, ...] = ()
    granted_at: float = 0.0
    next_due_in: float | None = None
    kept_back: bool = False

    def pulled(self) -> list[Pulled]:
        """The jobs one by one."""
        return [Pulled(job, self.granted_at) for job in self.jobs]


NOTHING: Final = Grant()


@dataclass(slots=True, eq=False)
class Line:
    """Those who wait for the same lanes."""

    lanes: frozenset[Lane]
    waiting: int = 0
    due: bool = True  # somebody came, or a hint: it has to be looked at
    look_at: float = math.inf  # by the loop's clock: when it is looked at in any case
    watching: asyncio.Task[None] | None = None  # for hints, once somebody has to wait


@dataclass(slots=True, eq=False)
class Waiter:
    """Somebody who asked for jobs."""

    request: ClaimRequest
    line: Line
    patient: bool  # False: one look, and no more
    answer: asyncio.Future[Grant]
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Round:
    """One look at some lines."""

    lines: frozenset[Line]
    empty: set[Line] = field(default_factory=set)  # nothing is left in them
    moments: dict[Line, float] = field(default_factory=dict)  # in how many seconds something is due
    kept_back: set[Waiter] = field(default_factory=set)  # for whom there would be more with more free slots
    in_vain: dict[Line, list[Waiter]] = field(default_factory=dict)  # who were looked for and got nothing

    def is_vain(self, waiter: Waiter) -> bool:
        """Whether another of its line, with as much room or more, was looked for and got nothing."""
        for other in self.in_vain.get(waiter.line, ()):
            if _has_as_much_room(other.request, waiter.request):
                if other in self.kept_back:
                    self.kept_back.add(waiter)
                return True
        return False


def _has_as_much_room(one: ClaimRequest, other: ClaimRequest) -> bool:
    """Whether one may have all that the other may, of the same lanes."""
    return _free(one) >= _free(other) and all(
        other.topic_limits.get(topic, math.inf) <= most for topic, most in one.topic_limits.items()
    )


def _free(request: ClaimRequest) -> int:
    return request.limit if request.free is None else request.free


class Room:
    """The waiters of one event loop, next to its store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock, returning: Returning) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._returning = returning
        self._waiters: dict[Waiter, None] = {}  # in order of arrival
        self._lines: dict[frozenset[Lane], Line] = {}
        self._news = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._stride = 1  # so many are claimed for at a time
        self._trouble = False  # the store is away, and that was said

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._waiters)

    def ask(self, request: ClaimRequest, seconds: float) -> Waiter:
        """Want jobs, for so long. Whoever loses interest has to ``withdraw``."""
        limit = self._settings.max_waiters
        if limit is not None and len(self._waiters) >= limit:
            raise TooManyWaiters(
                f"{len(self._waiters):,} callers wait for jobs; the limit is {limit:,} (max_waiters)"
            )
        loop = asyncio.get_running_loop()
        lanes = frozenset(request.lanes)
        line = self._lines.setdefault(lanes, Line(lanes))
        line.waiting += 1
        line.due = True
        waiter = Waiter(request, line, seconds > 0, loop.create_future())
        if seconds > 0:
            waiter.timer = loop.call_later(seconds, self.hurry, waiter)
        self._waiters[waiter] = None
        self._news.set()
        if self._loop is None:
            self._loop = asyncio.create_task(self._run(), name="tidewheel-room")
        return waiter

    def hurry(self, waiter: Waiter) -> None:
        """Its time is over: it gets what is due now, or nothing."""
        if waiter not in self._waiters:
            return
        waiter.patient = False
        waiter.line.due = True
        self._news.set()
        asyncio.get_running_loop().call_later(LAST_LOOK_SECONDS, self.withdraw, waiter)

    def withdraw(self, waiter: Waiter) -> None:
        """It wants nothing any more, if it did not get something yet."""
        self._answer(waiter, NOTHING)

    async def close(self) -> None:
        """Let go. Those who still wait are told that the app was closed."""
        for line in list(self._lines.values()):
            if line.watching is not None:
                line.watching.cancel()
        self._fail(list(self._waiters), NotOpen("the app was closed while jobs were waited for"))
        task, self._loop = self._loop, None
        if task is not None:
            self._news.set()  # nobody waits: it ends
            await asyncio.wait((task,), timeout=LAST_CLAIM_SECONDS)
            task.cancel()
            await asyncio.wait((task,))

    # -- the loop -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while self._waiters:
                self._news.clear()
                now = asyncio.get_running_loop().time()
                due = [line for line in self._crowded() if line.due or line.look_at <= now]
                if due:
                    await self._look(_Round(frozenset(due)))
                if not self._news.is_set() and self._waiters:
                    await self._rest()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            _log.exception("jobs cannot be claimed for those who wait, which is a bug")
            self._fail(list(self._waiters), error)
        finally:
            if self._loop is asyncio.current_task():
                self._loop = None

    def _crowded(self) -> Iterable[Line]:
        return (line for line in self._lines.values() if line.waiting)

    async def _rest(self) -> None:
        next_look = min(line.look_at for line in self._crowded())
        try:
            async with asyncio.timeout_at(None if next_look == math.inf else next_look):
                await self._news.wait()
        except TimeoutError:
            return

    async def _look(self, look: _Round) -> None:
        waiters = [waiter for waiter in self._waiters if waiter.line in look.lines]
        for line in look.lines:
            line.due, line.look_at = False, math.inf
        try:
            await self._serve_all(waiters, look)
        except StoreUnavailable as error:
            self._say_that_it_is_away(error)
            self._fail((waiter for waiter in waiters if not waiter.patient), error)
            rest = OUTAGE_REST
        else:
            if self._trouble:
                self._trouble = False
                _log.warning("jobs can be claimed again")
            for waiter in waiters:
                if not waiter.patient:  # all there is has been seen
                    moment, kept_back = look.moments.get(waiter.line), waiter in look.kept_back
                    self._answer(waiter, Grant(next_due_in=moment, kept_back=kept_back))
            rest = self._settings.poll_interval * max(1.0, len(self._lines) / POLLED_LINES)
        now = asyncio.get_running_loop().time()
        for line in look.lines:
            pause = rest * jitter(0.75, 1.25)  # not all in step
            line.look_at = now + min(pause, max(look.moments.get(line, pause), SHORTEST_REST))
            if line.waiting and line.watching is None:
                line.watching = asyncio.create_task(self._watch(line), name="tidewheel-line")

    async def _serve_all(self, waiters: list[Waiter], look: _Round) -> None:
        """In the order in which they came: one by one, and while there is enough for all, more at a time."""
        left = deque(waiters)
        while batch := self._next_of(left, look):
            served = await asyncio.gather(
                *[self._serve(waiter, look) for waiter in batch], return_exceptions=True
            )
            for waiter, answer in zip(batch, served, strict=True):
                if isinstance(answer, StoreError) and not isinstance(answer, StoreUnavailable):
                    self._fail((waiter,), answer)  # something about this wish, which is not the others' fault
                elif isinstance(answer, BaseException):
                    self._stride = 1
                    raise answer
            self._stride = min(2 * self._stride, MOST_AT_ONCE) if all(one is True for one in served) else 1

    def _next_of(self, left: deque[Waiter], look: _Round) -> list[Waiter]:
        """Of each name one: after a lost reply a store gives back what a name was granted and does not know,
        and must not take what another claim of that name is being granted meanwhile.
        """
        batch: dict[str, Waiter] = {}
        while left and len(batch) < self._stride and left[0].request.worker not in batch:
            waiter = left.popleft()
            if waiter.line not in look.empty and not waiter.answer.done() and not look.is_vain(waiter):
                batch[waiter.request.worker] = waiter
        return list(batch.values())

    async def _serve(self, waiter: Waiter, look: _Round) -> bool:
        """One claim on behalf of this one, and what it tells about its line; whether it brought anything."""
        request, line = waiter.request, waiter.line
        sent = self._clock.monotonic()
        claim = await self._claim(request)
        if claim.jobs:
            grant = Grant(claim.jobs, sent, claim.next_due_in, claim.kept_back)
            if waiter.answer.done():  # it has left meanwhile; the next are hinted at when they are back
                self._returning.give_back(grant.pulled())
            else:
                self._answer(waiter, grant)
        else:
            look.in_vain.setdefault(line, []).append(waiter)
            if claim.kept_back:
                look.kept_back.add(waiter)
        if claim.next_due_in is not None:
            moment = claim.next_due_in or (0.0 if claim.jobs else SHORTEST_REST)
            look.moments[line] = min(moment, look.moments.get(line, math.inf))
        # What this one may not have, another with more room may.
        taken = Counter([job.topic for job in claim.jobs])
        capped = any(taken[topic] >= most for topic, most in request.topic_limits.items())
        if claim.next_due_in != 0.0 and not claim.kept_back and not capped:
            look.empty.add(line)
        return bool(claim.jobs)

    async def _claim(self, request: ClaimRequest) -> Claim:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._store.claim(request)
        except TimeoutError:
            raise StoreUnavailable(f"the store did not answer a claim within {ANSWER_SECONDS:g} s") from None

    async def _watch(self, line: Line) -> None:
        """Hear of new jobs for a line, until nobody has stood in it for a while."""
        try:
            topics = {lane.topic for lane in line.lanes}
            async with self._store.wakeups(topics=topics) as hints:
                hinted = True  # what came before this was not heard
                while hinted or line.waiting:
                    if hinted:
                        self._hint(line)
                    hinted = await hints.wait(LINGER_SECONDS)
            self._hint(line)  # for who came while this was being closed
        except StoreError as error:
            _log.debug("no hints come for %d who wait, who are served by polling: %s", line.waiting, error)
        finally:
            line.watching = None
            self._forget_if_empty(line)

    def _hint(self, line: Line) -> None:
        if line.waiting:
            line.due = True
            self._news.set()

    # -- answers ------------------------------------------------------------------------------------------

    def _answer(self, waiter: Waiter, grant: Grant) -> None:
        if not waiter.answer.done():
            waiter.answer.set_result(grant)
        self._forget(waiter)

    def _fail(self, waiters: Iterable[Waiter], error: Exception) -> None:
        for waiter in waiters:
            if not waiter.answer.done():
                waiter.answer.set_exception(error)
                waiter.answer.exception()  # it may be that nobody looks any more
            self._forget(waiter)

    def _forget(self, waiter: Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        if waiter in self._waiters:
            del self._waiters[waiter]
            waiter.line.waiting -= 1
            self._forget_if_empty(waiter.line)

    def _forget_if_empty(self, line: Line) -> None:
        if not line.waiting and line.watching is None and self._lines.get(line.lanes) is line:
            del self._lines[line.lanes]

    def _say_that_it_is_away(self, error: StoreError) -> None:
        level = logging.DEBUG if self._trouble else logging.WARNING
        _log.log(level, "jobs cannot be claimed for %d who wait, trying again: %s", self.waiting, error)
        self._trouble = True
