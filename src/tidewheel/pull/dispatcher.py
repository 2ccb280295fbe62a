"""Those who wait for a job, and the one loop that claims for all of them.

A thousand blocked reservers cost one subscription to hints and one claim a second. A job goes to whoever has
waited longest among those who asked for its topic; nothing is claimed that nobody waits for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tidewheel.client.connections import Connections
from tidewheel.core.clock import Clock
from tidewheel.core.jitter import jitter
from tidewheel.core.model import ClaimRequest, Enqueued, Lane, Lease, NewJob, Settlement
from tidewheel.core.names import PULLER_PREFIX
from tidewheel.errors import NotOpen, StoreError, StoreUnavailable, TooManyWaiters
from tidewheel.pull.heartbeat import Listing
from tidewheel.pull.job_returner import Pulled, Returning
from tidewheel.pull.prefetch import Ahead
from tidewheel.pull.write_batcher import Rounds, Together
from tidewheel.settings import Settings
from tidewheel.stores.protocol import MAX_BATCH, Store, Wakeups

_FEW_WISHES: Final = 8
"""So many different sets of topics are claimed for one after the other; more than that, a job at a time."""
_MANY_TOPICS: Final = 1000
"""With more topics than this it is not worth telling the store whose hints are wanted."""
_SHORTEST_REST: Final = 0.02
"""Seconds between two looks at least, unless a hint comes: the next moment may be somebody else's job's."""
_LAST_LOOK_SECONDS: Final = 1.0
"""Max seconds a caller waits for its last look after its timeout: it may bring a job that just became due."""
_LAST_CLAIM_SECONDS: Final = 2.0
"""How long a close waits for a claim under way: what it grants would stay reserved without a holder."""
_LINGER_SECONDS: Final = 5.0
"""How long the loop stays subscribed when nobody waits: most come back at once."""

_log = logging.getLogger("tidewheel.pulling")


@dataclass(slots=True, eq=False)
class Waiter:
    """Somebody who asked for a job. ``future`` is None in the end when there was none in time."""

    topics: frozenset[str]
    patient: bool  # False: one look, and no more
    future: asyncio.Future[Pulled | None]
    timer: asyncio.TimerHandle | None = None
    timed_out: bool = False  # it was patient, and this is its last look
    quick: bool = True  # it will end the job at once, for all that is known


class Reservations:
    """The waiters of one event loop, next to its store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self.worker: Final = (
            f"{PULLER_PREFIX}{socket.gethostname()[:150]}:{os.getpid()}:{secrets.token_hex(2)}"
        )
        self._store = store
        self._settings = settings
        self._clock = clock
        self._waiters: dict[Waiter, None] = {}  # in order of arrival
        self._topics: frozenset[str] = frozenset()  # what was asked for while the loop runs, or most of it
        self._most_topics = _MANY_TOPICS
        self._arrived = asyncio.Event()
        self._hints: Wakeups | None = None
        self._loop: asyncio.Task[None] | None = None
        self._returning = Returning(store, clock)
        # One at a time: after a lost reply a store gives back what was granted to this name and is not known.
        self._asking = asyncio.Lock()
        self.rounds = Rounds()
        self._listing = Listing(
            self.worker, store, clock, topics=lambda: self._topics, waiting=lambda: len(self._waiters)
        )
        self._ahead = Ahead(self._returning.give_back)
        self._endings = Together(self._settle, self.rounds)
        self._puts = Together(self._enqueue, self.rounds)
        self._put_meanwhile: list[tuple[str, int]] = []  # topics and priorities, during a claim
        self._claiming: set[asyncio.Task[None]] = set()
        self._trouble = False  # the store is away, and that was said

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._waiters)

    async def reserve(self, topics: frozenset[str], timeout: float | None) -> Pulled | None:
        """The next job of these topics; None when there was none within ``timeout`` seconds."""
        waiter = self.ask(topics, timeout)
        future = waiter.future
        try:
            return await future
        except asyncio.CancelledError:
            # Handed over in the same turn in which the caller was cancelled: nobody has seen it.
            if future.done() and not future.cancelled() and future.exception() is None:
                pulled = future.result()
                if pulled is not None:
                    self._returning.give_back([pulled])
            raise
        finally:
            self.withdraw(waiter)

    def ask(self, topics: frozenset[str], timeout: float | None, *, quick: bool = True) -> Waiter:
        """The same for who does not wait for it here. Whoever loses interest has to ``withdraw``.

        Not ``quick``: the caller takes its time over a job, so nobody should wait for what it does next.
        """
        limit = self._settings.max_waiters
        if limit is not None and len(self._waiters) >= limit:
            raise TooManyWaiters(
                f"{len(self._waiters):,} callers wait for a job; the limit is {limit:,} (max_waiters)"
            )
        loop = asyncio.get_running_loop()
        waiter = Waiter(topics, timeout is None or timeout > 0, loop.create_future(), quick=quick)
        pulled = self._ahead.take(topics)
        if pulled is not None:
            self._hand(waiter, pulled)
            if not quick:
                self.rounds.called()  # else it is still expected, to end this one
            return waiter
        if timeout:
            waiter.timer = loop.call_later(timeout, self.hurry, waiter)
        self._add(waiter)
        return waiter

    def hurry(self, waiter: Waiter) -> None:
        """Its time is over: a job that became due in the last moment is still its."""
        waiter.patient, waiter.timed_out = False, True
        self._arrived.set()
        if self._hints is not None:
            self._hints.nudge()
        asyncio.get_running_loop().call_later(_LAST_LOOK_SECONDS, self.withdraw, waiter)

    def withdraw(self, waiter: Waiter) -> None:
        """It wants no job any more, if it did not get one yet."""
        self._answer(waiter, None)

    def waiting_for(self, topic: str) -> int:
        """How many of them for jobs of this topic."""
        return sum(topic in waiter.topics for waiter in self._waiters)

    async def grant(self, job_id: UUID) -> Pulled | None:
        """Just this job, for a caller who does not wait."""
        granting = asyncio.ensure_future(self._grant(job_id))
        try:
            pulled = await asyncio.shield(granting)
        except asyncio.CancelledError:
            granting.add_done_callback(self._give_back_granted)
            raise
        if pulled is not None:
            self._listing.holds(pulled.job.lease, pulled.granted_at + pulled.job.lease_seconds)
        return pulled

    async def _grant(self, job_id: UUID) -> Pulled | None:
        async with self._asking:
            sent = self._clock.monotonic()
            job = await self._store.grant(job_id, worker=self.worker, lease_seconds=self._settings.lease)
        return None if job is None else Pulled(job, sent)

    def end(
        self, settlement: Settlement, *, then: frozenset[str] | None = None, quick: bool = True
    ) -> asyncio.Future[bool]:
        """End a reservation as told; False when it is over already. It goes on when nobody waits for it.

        ``then``: its holder will ask for a job of these topics at once, as it did before. See ``ahead``.
        Not ``quick``: it will not do anything at once.
        """
        if then is not None:
            self._ahead.expect(then)
        return self._endings.add(settlement, quick=quick)

    async def _settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        # Two tasks that begin one right after the other, so that SQLite's writer gets both at once.
        settling = asyncio.create_task(self._store.settle(settlements))
        self._claim_alongside()
        answers = await settling
        for settlement, held in zip(settlements, answers, strict=True):
            self._listing.let_go(settlement.lease, held=held)
        return answers

    def put(self, job: NewJob, *, quick: bool) -> asyncio.Future[Enqueued]:
        """Enqueue a job that has no key, together with others'. It goes on when nobody waits for it."""
        return self._puts.add(job, quick=quick, size=len(job.payload))

    async def _enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        answers = await self._store.enqueue(jobs)
        for topic, priority in {(job.topic, job.priority) for job in jobs}:
            self.overtaken(topic, priority)
        await self._returning.done()
        return answers

    def overtaken(self, topic: str, priority: int) -> None:
        """A job was put that may come before those kept for somebody, also before those on their way."""
        if self._ahead:
            self._ahead.overtaken(topic, priority)
        if self._asking.locked():
            self._put_meanwhile.append((topic, priority))

    async def let_go(self) -> None:
        """Of jobs that nobody has asked for yet: somebody is about to look."""
        self._ahead.let_go()
        await self._returning.done()

    @property
    def anything_ahead(self) -> bool:
        """Whether there is something to let go of."""
        return bool(self._ahead or self._returning)

    async def touch(self, lease: Lease, lease_seconds: float) -> float | None:
        """Start its time anew; how many seconds, None when it is over already."""
        sent = self._clock.monotonic()
        (seconds,) = await self._store.touch([lease], lease_seconds)
        if seconds is not None:
            self._listing.holds(lease, sent + seconds)
        return seconds

    async def close(self) -> None:
        """Let go. Those who still wait are told that the app was closed."""
        self._returning.hurry()
        task, self._loop = self._loop, None
        if task is not None:
            await self._end_loop(task)
        self._end_all(NotOpen("the app was closed while a job was waited for"))
        await self._puts.close()
        await self._endings.close()
        if self._claiming:
            await asyncio.wait(self._claiming)
        self._ahead.let_go()
        await self._listing.close()
        await self._returning.close()

    async def _end_loop(self, task: asyncio.Task[None]) -> None:
        try:
            async with asyncio.timeout(_LAST_CLAIM_SECONDS), self._asking:
                task.cancel()
        except TimeoutError:
            task.cancel()
        await asyncio.wait((task,))

    # -- the loop -----------------------------------------------------------------------------------------

    def _add(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None
        self.rounds.called()
        self._listing.waits()
        self._arrived.set()
        if not waiter.topics <= self._topics:
            self._topics |= waiter.topics
            if len(self._topics) > self._most_topics:  # mostly of those who have left
                self._topics = frozenset().union(*(one.topics for one in self._waiters))
                self._most_topics = max(_MANY_TOPICS, 2 * len(self._topics))
        if self._loop is None:
            self._loop = asyncio.create_task(self._run(), name="tidewheel-reservations")
        elif self._hints is not None:
            self._hints.nudge()

    async def _run(self) -> None:
        try:
            while self._waiters:
                topics = self._topics if len(self._topics) <= _MANY_TOPICS else None
                async with self._store.wakeups(topics=topics) as hints:
                    self._hints = hints
                    while topics is None or self._topics is topics:
                        await self._serve(hints)
                        if not self._waiters and not await self._somebody_comes():
                            return
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if not isinstance(error, StoreError):
                _log.exception("jobs cannot be claimed for those who wait")
            self._end_all(error)
        finally:
            self._hints = None
            if self._loop is asyncio.current_task():
                self._loop = None
                self._topics = frozenset()
                for waiter in list(self._waiters):  # who came between the last look and now
                    self._add(waiter)

    async def _somebody_comes(self) -> bool:
        self._arrived.clear()
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                await self._arrived.wait()
        except TimeoutError:
            return bool(self._waiters)
        return True

    async def _serve(self, hints: Wakeups) -> None:
        """Claim for everybody who waits; then rest until there may be more."""
        self._arrived.clear()
        rest = self._settings.poll_interval * jitter(0.75, 1.25)  # not all in step
        try:
            next_due_in = await self._claim_for_all()
            if self._trouble:
                self._trouble = False
                _log.warning("jobs can be claimed again")
        except StoreUnavailable as error:
            # Those with time left wait on: the database comes back more often than not.
            level = logging.DEBUG if self._trouble else logging.WARNING
            _log.log(level, "jobs cannot be claimed for %d who wait, trying again: %s", self.waiting, error)
            self._trouble = True
            self._end_all(error, impatient_only=True)
            next_due_in = None
            rest = min(rest, 1.0)
        if not self._waiters or self._arrived.is_set() or next_due_in == 0.0:
            return
        if next_due_in is not None:
            rest = min(rest, max(next_due_in + 0.001, _SHORTEST_REST))
        await hints.wait(rest)

    async def _claim_for_all(self) -> float | None:
        """In as few claims as can be, and nothing that nobody waits for. When it is worth asking again."""
        await self.rounds.gather()
        # Who ends a job mostly wants the next one. A claim that waits for them serves all at once, and on
        # SQLite it needs no sync of its own. Ten clients took a quarter more jobs so.
        await self._endings.written()
        await self.rounds.gather()
        await self._returning.done()
        async with self._asking:
            return await self._claim_for_waiters()

    async def _claim_for_waiters(self) -> float | None:
        wishes = list(dict.fromkeys(waiter.topics for waiter in self._waiters))
        if len(wishes) > 1 and all(len(topics) == 1 for topics in wishes):
            # All of them, not the first thousand: theirs may be the topics that have no jobs.
            waiters = list(self._waiters)
            rooms = Counter(topic for waiter in waiters for topic in waiter.topics)
            return await self._claim(waiters, rooms, limit=min(len(waiters), MAX_BATCH), topic_limits=rooms)
        if len(wishes) <= _FEW_WISHES:
            # Waiters are looked up when their turn comes: some have left or been served by then.
            moments = [await self._claim_wish(wish) for wish in wishes]
            return min((moment for moment in moments if moment is not None), default=None)
        # Who is served depends on the topic of the job that is found, and what is left to ask for on that.
        moment: float | None = 0.0
        while moment == 0.0 and self._waiters:
            waiters = list(self._waiters)
            moment = await self._claim(waiters, frozenset().union(*(one.topics for one in waiters)), limit=1)
        return moment

    async def _claim_wish(self, topics: frozenset[str]) -> float | None:
        """For who waits for just these topics, and for who is expected to."""
        missing = self._ahead.missing(topics)
        waiters = [waiter for waiter in self._waiters if waiter.topics == topics]
        limit = min(len(waiters) + missing, MAX_BATCH)
        return await self._claim(waiters, topics, limit=limit, ahead=topics) if limit else None

    def _claim_alongside(self) -> None:
        """Jobs are being ended: claim for those who will ask for others, if all for the same topics."""
        if len(self._ahead.expected()) == 1 and not self._asking.locked():
            task = asyncio.create_task(self._claim_ahead(*self._ahead.expected()))
            self._claiming.add(task)
            task.add_done_callback(self._claiming.discard)
        else:
            self._ahead.expect_nobody()  # they ask, and wait, as anybody does

    async def _claim_ahead(self, topics: frozenset[str]) -> None:
        try:
            async with self._asking:
                await self._claim_wish(topics)
        except StoreError as error:
            _log.debug("nothing was claimed ahead: %s", error)  # who asks will be told

    async def _claim(
        self,
        waiters: list[Waiter],
        topics: Iterable[str],
        *,
        limit: int,
        topic_limits: Mapping[str, int] | None = None,
        ahead: frozenset[str] | None = None,
    ) -> float | None:
        """One claim on behalf of these. When it is worth asking again: 0.0, there may be more.

        ``ahead``: what nobody waits for is kept for who asks for these topics next.
        """
        # A job that is kept for later would use up a limit of its topic for nothing.
        free = None if ahead is None else len(waiters)
        request = self._request(topics, limit, topic_limits or {}, free)
        self._put_meanwhile.clear()
        sent = self._clock.monotonic()
        impatient = [waiter for waiter in waiters if not waiter.patient]  # now: those of later look again
        claim = await self._store.claim(request)
        pulled = [Pulled(job, sent) for job in claim.jobs]
        left = [one for one in pulled if not self._hand_over(one)]
        if ahead is not None:
            self._ahead.keep(ahead, left)
            for topic, priority in self._put_meanwhile:
                self._ahead.overtaken(topic, priority)
        elif left:  # who they were claimed for have left meanwhile
            self._returning.give_back(left)
        moment = claim.next_due_in
        if moment == 0.0 and not claim.jobs:
            # A lease that has ended and cannot be brought back yet (see the store's gaps): nothing for now.
            moment = _SHORTEST_REST
        if moment != 0.0:  # all there is has been seen
            for waiter in impatient:
                self._answer(waiter, None)
        return moment

    def _request(
        self, topics: Iterable[str], limit: int, topic_limits: Mapping[str, int], free: int | None
    ) -> ClaimRequest:
        return ClaimRequest(
            worker=self.worker,
            lanes=tuple(Lane(topic) for topic in topics),
            limit=limit,
            lease_seconds=self._settings.lease,
            topic_limits=topic_limits,
            lasting=False,  # whoever holds the job is in this process
            free=free,
        )

    def _hand_over(self, pulled: Pulled) -> bool:
        """To whoever has waited longest; False when nobody waits for such a job."""
        for waiter in self._waiters:
            if pulled.job.topic in waiter.topics and not waiter.future.done():
                self._answer(waiter, pulled)
                return True
        return False

    def _answer(self, waiter: Waiter, pulled: Pulled | None) -> None:
        if not waiter.future.done():
            if pulled is None:
                waiter.future.set_result(None)
            else:
                self._hand(waiter, pulled)
                self.rounds.answered(waiter.quick)
        self._forget(waiter)

    def _hand(self, waiter: Waiter, pulled: Pulled) -> None:
        waiter.future.set_result(pulled)
        self._listing.holds(pulled.job.lease, pulled.granted_at + pulled.job.lease_seconds)

    def _forget(self, waiter: Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._waiters.pop(waiter, None)

    def _give_back_granted(self, granting: asyncio.Future[Pulled | None]) -> None:
        if not granting.cancelled() and granting.exception() is None and (pulled := granting.result()):
            self._returning.give_back([pulled])

    def _end_all(self, error: Exception, *, impatient_only: bool = False) -> None:
        for waiter in list(self._waiters):
            if impatient_only and waiter.patient:
                continue
            if not waiter.future.done() and waiter.timed_out:
                waiter.future.set_result(None)
            elif not waiter.future.done():
                waiter.future.set_exception(error)
            self._forget(waiter)


def reservations_of(connections: Connections) -> Reservations:
    """The waiters of the running event loop, made when the first job is pulled there."""

    def make(store: Store) -> Reservations:
        return Reservations(store, connections.settings, connections.clock)

    return connections.current().service("reservations", make)
