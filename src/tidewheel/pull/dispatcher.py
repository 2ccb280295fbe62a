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

from tidewheel.client.connections import LoopConnections
from tidewheel.core.clock import Clock
from tidewheel.core.jitter import jitter
from tidewheel.core.model import ClaimRequest, Enqueued, Lane, Lease, NewJob, Settlement
from tidewheel.core.names import PULLER_PREFIX
from tidewheel.errors import NotOpen, StoreError, StoreUnavailable, TooManyWaiters
from tidewheel.pull.heartbeat import PullerHeartbeat
from tidewheel.pull.job_returner import JobReturner, PulledJob
from tidewheel.pull.prefetch import PrefetchedJobs
from tidewheel.pull.write_batcher import CommitWindow, WriteBatcher
from tidewheel.settings import Settings
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import Store, Wakeups

_MAX_SEPARATE_CLAIMS: Final = 8
"""So many different sets of topics are claimed for one after the other; more than that, a job at a time."""
_MAX_HINT_TOPICS: Final = 1000
"""With more topics than this it is not worth telling the store whose hints are wanted."""
_MIN_REST_SECONDS: Final = 0.02
"""Seconds between two looks at least, unless a hint comes: the next moment may be somebody else's job's."""
_FINAL_CLAIM_SECONDS: Final = 1.0
"""Max seconds a caller waits for its last look after its timeout: it may bring a job that just became due."""
_CLOSE_TIMEOUT_SECONDS: Final = 2.0
"""How long a close waits for a claim under way: what it grants would stay reserved without a holder."""
_UNSUBSCRIBE_AFTER_SECONDS: Final = 5.0
"""How long the loop stays subscribed when nobody waits: most come back at once."""

_log = logging.getLogger("tidewheel.pulling")


@dataclass(slots=True, eq=False)
class WaitingPuller:
    """Somebody who asked for a job. ``future`` is None in the end when there was none in time."""

    topics: frozenset[str]
    may_wait: bool  # False: one look, and no more
    future: asyncio.Future[PulledJob | None]
    timer: asyncio.TimerHandle | None = None
    timed_out: bool = False  # it was patient, and this is its last look
    calls_again: bool = True  # it will end the job at once, for all that is known


class PullDispatcher:
    """The waiters of one event loop, next to its store."""

    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self.worker: Final = (
            f"{PULLER_PREFIX}{socket.gethostname()[:150]}:{os.getpid()}:{secrets.token_hex(2)}"
        )
        self._store = store
        self._settings = settings
        self._clock = clock
        self._waiters: dict[WaitingPuller, None] = {}  # in order of arrival
        self._topics: frozenset[str] = frozenset()  # what was asked for while the loop runs, or most of it
        self._most_topics = _MAX_HINT_TOPICS
        self._waiter_added = asyncio.Event()
        self._hints: Wakeups | None = None
        self._loop: asyncio.Task[None] | None = None
        self._job_returner = JobReturner(store, clock)
        # One at a time: after a lost reply a store gives back what was granted to this name and is not known.
        self._claim_lock = asyncio.Lock()
        self.commit_window = CommitWindow()
        self._heartbeat = PullerHeartbeat(
            self.worker, store, clock, topics=lambda: self._topics, waiting=lambda: len(self._waiters)
        )
        self._prefetched = PrefetchedJobs(self._job_returner.return_jobs)
        self._settle_batcher = WriteBatcher(self._settle, self.commit_window)
        self._enqueue_batcher = WriteBatcher(self._enqueue, self.commit_window)
        self._enqueued_during_claim: list[tuple[str, int]] = []  # topics and priorities, during a claim
        self._prefetch_tasks: set[asyncio.Task[None]] = set()
        self._store_unreachable = False  # the store is away, and that was said

    @property
    def waiting(self) -> int:
        """How many wait now."""
        return len(self._waiters)

    async def reserve(self, topics: frozenset[str], timeout: float | None) -> PulledJob | None:
        """The next job of these topics; None when there was none within ``timeout`` seconds."""
        waiter = self.add_waiter(topics, timeout)
        future = waiter.future
        try:
            return await future
        except asyncio.CancelledError:
            # Handed over in the same turn in which the caller was cancelled: nobody has seen it.
            if future.done() and not future.cancelled() and future.exception() is None:
                pulled = future.result()
                if pulled is not None:
                    self._job_returner.return_jobs([pulled])
            raise
        finally:
            self.remove_waiter(waiter)

    def add_waiter(
        self, topics: frozenset[str], timeout: float | None, *, calls_again: bool = True
    ) -> WaitingPuller:
        """The same for who does not wait for it here. Whoever loses interest has to ``remove_waiter``.

        Not ``quick``: the caller takes its time over a job, so nobody should wait for what it does next.
        """
        limit = self._settings.max_waiters
        if limit is not None and len(self._waiters) >= limit:
            raise TooManyWaiters(
                f"{len(self._waiters):,} callers wait for a job; the limit is {limit:,} (max_waiters)"
            )
        loop = asyncio.get_running_loop()
        waiter = WaitingPuller(
            topics, timeout is None or timeout > 0, loop.create_future(), calls_again=calls_again
        )
        pulled = self._prefetched.take(topics)
        if pulled is not None:
            self._hand(waiter, pulled)
            if not calls_again:
                self.commit_window.record_call()  # else it is still expected, to end this one
            return waiter
        if timeout:
            waiter.timer = loop.call_later(timeout, self.expire_waiter, waiter)
        self._add(waiter)
        return waiter

    def expire_waiter(self, waiter: WaitingPuller) -> None:
        """Its time is over: a job that became due in the last moment is still its."""
        waiter.may_wait, waiter.timed_out = False, True
        self._waiter_added.set()
        if self._hints is not None:
            self._hints.nudge()
        asyncio.get_running_loop().call_later(_FINAL_CLAIM_SECONDS, self.remove_waiter, waiter)

    def remove_waiter(self, waiter: WaitingPuller) -> None:
        """It wants no job any more, if it did not get one yet."""
        self._answer(waiter, None)

    def waiting_for(self, topic: str) -> int:
        """How many of them for jobs of this topic."""
        return sum(topic in waiter.topics for waiter in self._waiters)

    async def grant(self, job_id: UUID) -> PulledJob | None:
        """Just this job, for a caller who does not wait."""
        granting = asyncio.ensure_future(self._grant(job_id))
        try:
            pulled = await asyncio.shield(granting)
        except asyncio.CancelledError:
            granting.add_done_callback(self._give_back_granted)
            raise
        if pulled is not None:
            self._heartbeat.record_lease(pulled.job.lease, pulled.granted_at + pulled.job.lease_seconds)
        return pulled

    async def _grant(self, job_id: UUID) -> PulledJob | None:
        async with self._claim_lock:
            sent = self._clock.monotonic()
            job = await self._store.claim_job(job_id, worker=self.worker, lease_seconds=self._settings.lease)
        return None if job is None else PulledJob(job, sent)

    def end(
        self, settlement: Settlement, *, next_topics: frozenset[str] | None = None, calls_again: bool = True
    ) -> asyncio.Future[bool]:
        """End a reservation as told; False when it is over already. It goes on when nobody waits for it.

        ``then``: its holder will ask for a job of these topics at once, as it did before. See ``ahead``.
        Not ``quick``: it will not do anything at once.
        """
        if next_topics is not None:
            self._prefetched.expect_request(next_topics)
        return self._settle_batcher.add(settlement, calls_again=calls_again)

    async def _settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        # Two tasks that begin one right after the other, so that SQLite's writer gets both at once.
        settling = asyncio.create_task(self._store.settle(settlements))
        self._start_prefetch()
        answers = await settling
        for settlement, held in zip(settlements, answers, strict=True):
            self._heartbeat.record_end(settlement.lease, held=held)
        return answers

    def put(self, job: NewJob, *, calls_again: bool) -> asyncio.Future[Enqueued]:
        """Enqueue a job that has no key, together with others'. It goes on when nobody waits for it."""
        return self._enqueue_batcher.add(job, calls_again=calls_again, size=len(job.payload))

    async def _enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        answers = await self._store.enqueue(jobs)
        for topic, priority in {(job.topic, job.priority) for job in jobs}:
            self.record_new_job(topic, priority)
        await self._job_returner.wait_until_returned()
        return answers

    def record_new_job(self, topic: str, priority: int) -> None:
        """A job was put that may come before those kept for somebody, also before those on their way."""
        if self._prefetched:
            self._prefetched.return_overtaken(topic, priority)
        if self._claim_lock.locked():
            self._enqueued_during_claim.append((topic, priority))

    async def return_prefetched(self) -> None:
        """Of jobs that nobody has asked for yet: somebody is about to look."""
        self._prefetched.return_all()
        await self._job_returner.wait_until_returned()

    @property
    def has_prefetched(self) -> bool:
        """Whether there is something to let go of."""
        return bool(self._prefetched or self._job_returner)

    async def touch(self, lease: Lease, lease_seconds: float) -> float | None:
        """Start its time anew; how many seconds, None when it is over already."""
        sent = self._clock.monotonic()
        (seconds,) = await self._store.touch([lease], lease_seconds)
        if seconds is not None:
            self._heartbeat.record_lease(lease, sent + seconds)
        return seconds

    async def close(self) -> None:
        """Let go. Those who still wait are told that the app was closed."""
        self._job_returner.stop_retrying()
        task, self._loop = self._loop, None
        if task is not None:
            await self._end_loop(task)
        self._fail_waiters(NotOpen("the app was closed while a job was waited for"))
        await self._enqueue_batcher.close()
        await self._settle_batcher.close()
        if self._prefetch_tasks:
            await asyncio.wait(self._prefetch_tasks)
        self._prefetched.return_all()
        await self._heartbeat.close()
        await self._job_returner.close()

    async def _end_loop(self, task: asyncio.Task[None]) -> None:
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS), self._claim_lock:
                task.cancel()
        except TimeoutError:
            task.cancel()
        await asyncio.wait((task,))

    # -- the loop -----------------------------------------------------------------------------------------

    def _add(self, waiter: WaitingPuller) -> None:
        self._waiters[waiter] = None
        self.commit_window.record_call()
        self._heartbeat.record_waiting()
        self._waiter_added.set()
        if not waiter.topics <= self._topics:
            self._topics |= waiter.topics
            if len(self._topics) > self._most_topics:  # mostly of those who have left
                self._topics = frozenset().union(*(one.topics for one in self._waiters))
                self._most_topics = max(_MAX_HINT_TOPICS, 2 * len(self._topics))
        if self._loop is None:
            self._loop = asyncio.create_task(self._run(), name="tidewheel-reservations")
        elif self._hints is not None:
            self._hints.nudge()

    async def _run(self) -> None:
        try:
            while self._waiters:
                topics = self._topics if len(self._topics) <= _MAX_HINT_TOPICS else None
                async with self._store.wakeups(topics=topics) as hints:
                    self._hints = hints
                    while topics is None or self._topics is topics:
                        await self._serve(hints)
                        if not self._waiters and not await self._wait_for_waiter():
                            return
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if not isinstance(error, StoreError):
                _log.exception("jobs cannot be claimed for those who wait")
            self._fail_waiters(error)
        finally:
            self._hints = None
            if self._loop is asyncio.current_task():
                self._loop = None
                self._topics = frozenset()
                for waiter in list(self._waiters):  # who came between the last look and now
                    self._add(waiter)

    async def _wait_for_waiter(self) -> bool:
        self._waiter_added.clear()
        try:
            async with asyncio.timeout(_UNSUBSCRIBE_AFTER_SECONDS):
                await self._waiter_added.wait()
        except TimeoutError:
            return bool(self._waiters)
        return True

    async def _serve(self, hints: Wakeups) -> None:
        """Claim for everybody who waits; then rest until there may be more."""
        self._waiter_added.clear()
        rest = self._settings.poll_interval * jitter(0.75, 1.25)  # not all in step
        try:
            next_due_in = await self._claim_for_all()
            if self._store_unreachable:
                self._store_unreachable = False
                _log.warning("jobs can be claimed again")
        except StoreUnavailable as error:
            # Those with time left wait on: the database comes back more often than not.
            level = logging.DEBUG if self._store_unreachable else logging.WARNING
            _log.log(level, "jobs cannot be claimed for %d who wait, trying again: %s", self.waiting, error)
            self._store_unreachable = True
            self._fail_waiters(error, impatient_only=True)
            next_due_in = None
            rest = min(rest, 1.0)
        if not self._waiters or self._waiter_added.is_set() or next_due_in == 0.0:
            return
        if next_due_in is not None:
            rest = min(rest, max(next_due_in + 0.001, _MIN_REST_SECONDS))
        await hints.wait(rest)

    async def _claim_for_all(self) -> float | None:
        """In as few claims as can be, and nothing that nobody waits for. When it is worth asking again."""
        await self.commit_window.wait_for_callers()
        # Who ends a job mostly wants the next one. A claim that waits for them serves all at once, and on
        # SQLite it needs no sync of its own. Ten clients took a quarter more jobs so.
        await self._settle_batcher.wait_for_write()
        await self.commit_window.wait_for_callers()
        await self._job_returner.wait_until_returned()
        async with self._claim_lock:
            return await self._claim_for_waiters()

    async def _claim_for_waiters(self) -> float | None:
        wishes = list(dict.fromkeys(waiter.topics for waiter in self._waiters))
        if len(wishes) > 1 and all(len(topics) == 1 for topics in wishes):
            # All of them, not the first thousand: theirs may be the topics that have no jobs.
            waiters = list(self._waiters)
            rooms = Counter(topic for waiter in waiters for topic in waiter.topics)
            return await self._claim(waiters, rooms, limit=min(len(waiters), MAX_BATCH), topic_limits=rooms)
        if len(wishes) <= _MAX_SEPARATE_CLAIMS:
            # Waiters are looked up when their turn comes: some have left or been served by then.
            moments = [await self._claim_topics(wish) for wish in wishes]
            return min((moment for moment in moments if moment is not None), default=None)
        # Who is served depends on the topic of the job that is found, and what is left to ask for on that.
        moment: float | None = 0.0
        while moment == 0.0 and self._waiters:
            waiters = list(self._waiters)
            moment = await self._claim(waiters, frozenset().union(*(one.topics for one in waiters)), limit=1)
        return moment

    async def _claim_topics(self, topics: frozenset[str]) -> float | None:
        """For who waits for just these topics, and for who is expected to."""
        missing = self._prefetched.take_missing(topics)
        waiters = [waiter for waiter in self._waiters if waiter.topics == topics]
        limit = min(len(waiters) + missing, MAX_BATCH)
        return await self._claim(waiters, topics, limit=limit, ahead=topics) if limit else None

    def _start_prefetch(self) -> None:
        """Jobs are being ended: claim for those who will ask for others, if all for the same topics."""
        if len(self._prefetched.expected_topics()) == 1 and not self._claim_lock.locked():
            task = asyncio.create_task(self._prefetch(*self._prefetched.expected_topics()))
            self._prefetch_tasks.add(task)
            task.add_done_callback(self._prefetch_tasks.discard)
        else:
            self._prefetched.clear_expected()  # they ask, and wait, as anybody does

    async def _prefetch(self, topics: frozenset[str]) -> None:
        try:
            async with self._claim_lock:
                await self._claim_topics(topics)
        except StoreError as error:
            _log.debug("nothing was claimed ahead: %s", error)  # who asks will be told

    async def _claim(
        self,
        waiters: list[WaitingPuller],
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
        self._enqueued_during_claim.clear()
        sent = self._clock.monotonic()
        impatient = [waiter for waiter in waiters if not waiter.may_wait]  # now: those of later look again
        claim = await self._store.claim(request)
        pulled = [PulledJob(job, sent) for job in claim.jobs]
        left = [one for one in pulled if not self._hand_over(one)]
        if ahead is not None:
            self._prefetched.keep(ahead, left)
            for topic, priority in self._enqueued_during_claim:
                self._prefetched.return_overtaken(topic, priority)
        elif left:  # who they were claimed for have left meanwhile
            self._job_returner.return_jobs(left)
        moment = claim.next_due_in
        if moment == 0.0 and not claim.jobs:
            # A lease that has ended and cannot be brought back yet (see the store's gaps): nothing for now.
            moment = _MIN_REST_SECONDS
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
            durable=False,  # whoever holds the job is in this process
            free_slots=free,
        )

    def _hand_over(self, pulled: PulledJob) -> bool:
        """To whoever has waited longest; False when nobody waits for such a job."""
        for waiter in self._waiters:
            if pulled.job.topic in waiter.topics and not waiter.future.done():
                self._answer(waiter, pulled)
                return True
        return False

    def _answer(self, waiter: WaitingPuller, pulled: PulledJob | None) -> None:
        if not waiter.future.done():
            if pulled is None:
                waiter.future.set_result(None)
            else:
                self._hand(waiter, pulled)
                self.commit_window.expect_callers(waiter.calls_again)
        self._forget(waiter)

    def _hand(self, waiter: WaitingPuller, pulled: PulledJob) -> None:
        waiter.future.set_result(pulled)
        self._heartbeat.record_lease(pulled.job.lease, pulled.granted_at + pulled.job.lease_seconds)

    def _forget(self, waiter: WaitingPuller) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._waiters.pop(waiter, None)

    def _give_back_granted(self, granting: asyncio.Future[PulledJob | None]) -> None:
        if not granting.cancelled() and granting.exception() is None and (pulled := granting.result()):
            self._job_returner.return_jobs([pulled])

    def _fail_waiters(self, error: Exception, *, impatient_only: bool = False) -> None:
        for waiter in list(self._waiters):
            if impatient_only and waiter.may_wait:
                continue
            if not waiter.future.done() and waiter.timed_out:
                waiter.future.set_result(None)
            elif not waiter.future.done():
                waiter.future.set_exception(error)
            self._forget(waiter)


def reservations_of(connections: LoopConnections) -> PullDispatcher:
    """The waiters of the running event loop, made when the first job is pulled there."""

    def make(store: Store) -> PullDispatcher:
        return PullDispatcher(store, connections.settings, connections.clock)

    return connections.current().service("reservations", make)
