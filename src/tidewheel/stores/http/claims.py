"""Claim jobs for a worker, with a long poll at the server between claims.

The wait for a hint is itself a claim: its jobs are kept for the worker's next claim. While the poll waits,
claims that it covers return nothing without a request. Leases of kept jobs are shortened or extended, so that
they never look longer here than at the server. No job is lost: each claim has an id, and a repeat returns the
same jobs or ends the poll. Jobs that no claim takes are given back as if never started, by tasks of the store
that outlive a cancelled caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from msgspec.structs import replace as replace_struct

from tidewheel.core.jitter import jitter
from tidewheel.core.model import RELEASED_UNSEEN, Claim, Claimed, ClaimRequest, Lane, Lease, Settlement
from tidewheel.errors import NotOpen, StoreError, TidewheelError
from tidewheel.stores.http.api_client import ApiClient, new_request_id
from tidewheel.stores.http.claim_requests import EARLY_ANSWER_SECONDS, LongPoll, ReserveClient
from tidewheel.stores.http.settlements import LeaseRequests

MAX_RELEASE_WAIT_SECONDS: Final = 5.0
"""How long whoever ends waits for what it gives back."""

_log = logging.getLogger("tidewheel.http")


class JobReturns:
    """What is on its way back, of one opened store.

    It is kept here and not by those it came for: they may be gone, or be cancelled while they wait for it,
    and the store must not close its connections before all of it is back.
    """

    def __init__(self, lease_requests: LeaseRequests) -> None:
        self._working = lease_requests
        self._under_way: dict[asyncio.Task[None], object] = {}  # and for whom it came

    def release(self, jobs: Iterable[Claimed], owner: object) -> None:
        """Begin to give these back."""
        self._begin(self._settle(tuple(jobs)), owner)

    def release_answer(self, ask: Callable[[], Awaitable[Claim]], owner: object) -> None:
        """Begin to find out what was granted, and to give that back."""
        self._begin(self._release_answer(ask), owner)

    async def finish(self, owner: object) -> None:
        """Until what came for this one is back, as far as that is quick."""
        tasks = [task for task, whose in self._under_way.items() if whose is owner]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=MAX_RELEASE_WAIT_SECONDS)
            for task in late:
                task.cancel()

    async def close(self) -> None:
        """Until everything is back, what comes meanwhile included, as far as that is quick."""
        loop = asyncio.get_running_loop()
        until = loop.time() + MAX_RELEASE_WAIT_SECONDS
        try:
            while self._under_way and (left := until - loop.time()) > 0:
                await asyncio.wait(self._under_way, timeout=left)
        finally:
            for task in self._under_way:
                task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None], owner: object) -> None:
        task = asyncio.create_task(work)
        self._under_way[task] = owner
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, StoreError | NotOpen):
            _log.warning("jobs that nobody took stay leased until their leases end: %s", error)
        else:
            _log.error("jobs that nobody took could not be given back", exc_info=error)

    async def _release_answer(self, ask: Callable[[], Awaitable[Claim]]) -> None:
        try:
            claim = await ask()
        except TidewheelError as error:
            # The server notices that nobody is there any more, and gives back what it granted by itself; one
            # that refuses the token grants nothing.
            _log.debug("it is not known what was granted: %s", error)
        else:
            await self._settle(claim.jobs)

    async def _settle(self, jobs: Iterable[Claimed]) -> None:
        unseen = [Settlement(job.lease, RELEASED_UNSEEN) for job in jobs]
        if unseen:
            await self._working.settle(unseen)


MAX_UNREFRESHED_SECONDS: Final = 0.5
"""Jobs that came longer ago than this get their leases anew before they are handed out."""
MAX_TRANSIT_SECONDS: Final = 0.1
"""How long an answer may have been on its way."""
SHORT_LEASE_SECONDS: Final = 5.0
"""Seconds: of a shorter lease too little would be left, so it is made anew, too."""


class LeaseRefresher:
    """The leases of what lay here, of one opened store."""

    def __init__(self, lease_requests: LeaseRequests) -> None:
        self._working = lease_requests

    async def refresh(self, claim: Claim, age: float) -> Claim:
        """Its jobs, with leases that count from now; without those that somebody else has by now.

        ``age``: the server's count began at most so many seconds ago.
        """
        if not claim.jobs or age <= 0:
            return claim
        if age <= MAX_UNREFRESHED_SECONDS and all(
            job.lease_seconds >= SHORT_LEASE_SECONDS for job in claim.jobs
        ):
            return replace_struct(claim, jobs=tuple(map(_shorten_lease, claim.jobs)))
        held = await self._extended(claim.jobs)
        return replace_struct(claim, jobs=tuple(job for job in claim.jobs if job.lease in held))

    async def _extended(self, jobs: tuple[Claimed, ...]) -> set[Lease]:
        """Not asked for again under the claim's id: a server that does not know it would have other jobs for
        us, and these would be nobody's until their leases end. Any server extends a lease.
        """
        by_length: defaultdict[float, list[Lease]] = defaultdict(list)
        for job in jobs:
            by_length[job.lease_seconds].append(job.lease)
        held: set[Lease] = set()
        for lease_seconds, leases in by_length.items():
            answers = await self._working.extend(leases, lease_seconds)
            held.update(lease for lease, kept in zip(leases, answers, strict=True) if kept)
        return held


def _shorten_lease(job: Claimed) -> Claimed:
    """By as much for every job, however long ago it came: those with leases of one length are extended
    together.
    """
    return replace_struct(
        job, lease_seconds=job.lease_seconds - MAX_UNREFRESHED_SECONDS - MAX_TRANSIT_SECONDS
    )


MIN_POLL_SECONDS: Final = 0.2
"""A worker that was told of more jobs for more free slots offers those in a moment: a wait that is shorter
than this is for that, and not worth a request of its own."""
KEEP_ANSWER_SECONDS: Final = 1.0
"""How long a job that came is kept for a claim: a worker that is ending makes none any more."""
IDLE_POLL_SECONDS: Final = 0.25
"""How long a claim waits on at the server when nobody here claims or listens: a worker that has become full
has no use for what it would bring, and others may."""


AnsweredClaim = tuple[ClaimRequest, Claim]


class WorkerClaims:
    """The claims of one worker, and its poll."""

    def __init__(
        self,
        reserving: ReserveClient,
        refresher: LeaseRefresher,
        returning: JobReturns,
        topics: frozenset[str] = frozenset(),
        last: AnsweredClaim | None = None,
    ) -> None:
        self.topics = topics
        self.owner: tuple[str, tuple[Lane, ...]] | None = None  # the worker and what it wants, once known
        self._reserving = reserving
        self._renewing = refresher
        self._returning = returning
        self._poll: LongPoll | None = None
        self._last = last
        self._request_count = 0  # claims and waits for hints so far
        self._poll_at = 0.0  # by the loop's clock: no poll begins before
        self._poll_timer: asyncio.TimerHandle | None = None  # begins one then, for who listens now

    async def claim(self, request: ClaimRequest) -> Claim:
        """Jobs that are there, those that came while nobody asked first."""
        if not request.lanes:
            return Claim(())
        self._request_count += 1
        poll = self._poll
        if poll is not None and poll.matches(request):
            kept_back = self._needs_more_slots
            if poll.is_waiting and poll.covers(request, needs_more_slots=kept_back):
                return Claim((), None, kept_back)
            self._poll = None
            came_by_itself = not poll.is_waiting and not poll.ended
            collected = await self._collect(poll)
            if collected is not None and (collected.jobs or came_by_itself):
                return self._hand_out(collected, request)
        request_id = new_request_id()
        asking = asyncio.create_task(self._reserving.reserve(request, request_id, 0.0))
        try:
            claim = await asyncio.shield(asking)
        except asyncio.CancelledError:
            # The server may have granted: asked again under the same id, it tells what.
            asking.cancel()
            self._returning.release_answer(lambda: self._reserving.reserve(request, request_id, 0.0), self)
            raise
        return self._hand_out(claim, request)

    # -- waiting ------------------------------------------------------------------------------------------

    def listen(self, on_answer: Callable[[], None], seconds: float) -> None:
        """Have the server tell when there is a job for who claimed last.

        ``seconds``: how long the caller waits now; the request waits for longer, and is still there then.
        """
        self._request_count += 1
        poll = self._poll
        if poll is not None:
            if not poll.is_waiting:
                on_answer()  # something has come already
            return
        if self._last is None or (self._needs_more_slots and seconds < MIN_POLL_SECONDS):
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._poll_at:
            if self._poll_timer is None:
                self._poll_timer = loop.call_at(self._poll_at, self._listen_later, on_answer, seconds)
            return
        request, claim = self._last
        left = request.limit - len(claim.jobs)
        if left <= 0:
            return
        free = None if request.free_slots is None else max(1, request.free_slots - len(claim.jobs))
        wanted = ClaimRequest(
            request.worker,
            request.lanes,
            left,
            request.lease_seconds,
            _remaining_topic_limits(request.topic_limits, claim.jobs),
            request.durable,
            free,
            request.reports_starts,
        )
        self._poll = LongPoll(self._reserving, wanted, lambda poll: self._on_poll_answered(poll, on_answer))

    def _listen_later(self, on_answer: Callable[[], None], seconds: float) -> None:
        self._poll_timer = None
        self.listen(on_answer, seconds)

    def stop_listening_soon(self) -> None:
        """Somebody listens no longer, and claims at once, most likely; if not, nothing is waited for."""
        self._cancel_poll_timer()
        poll, wishes = self._poll, self._request_count

        def over() -> None:
            if poll is not None and self._poll is poll and poll.is_waiting and self._request_count == wishes:
                self._poll = None
                self._returning.release_answer(poll.end, self)

        if poll is not None:
            asyncio.get_running_loop().call_later(IDLE_POLL_SECONDS, over)

    def end_poll(self) -> None:
        """Somebody wants to look now: what waits at the server is answered, and waits for a claim here."""
        if self._poll is not None and self._poll.is_waiting:
            self._keep_answer(self._poll, self._poll.end())

    def pop_last_claim(self, topics: frozenset[str]) -> AnsweredClaim | None:
        """What was claimed last, if that was for these topics: by who listens from now on, most likely."""
        last = self._last
        if last is None or _topics_of(last[0]) != topics:
            return None
        self._last = None
        return last

    def end(self) -> None:
        """Nobody waits any more: what has come, and what is on its way, begins to be given back."""
        self._cancel_poll_timer()
        poll, self._poll = self._poll, None
        if poll is not None:
            self._returning.release_answer(poll.end, self)

    async def close(self) -> None:
        """The same, until it is back, as far as that is quick."""
        self.end()
        await self._returning.finish(self)

    @property
    def _needs_more_slots(self) -> bool:
        return self._last is not None and self._last[1].needs_more_slots

    def _on_poll_answered(self, poll: LongPoll, on_answer: Callable[[], None]) -> None:
        if poll is not self._poll or poll.ended:
            return  # whoever ended it knows
        self._keep_answer(poll, None)
        if poll.ended_early:
            # Jitter: those whom one server sent away must not all come back in step.
            rest = EARLY_ANSWER_SECONDS * jitter(0.75, 1.25)
            self._poll_at = asyncio.get_running_loop().time() + rest
        on_answer()

    def _cancel_poll_timer(self) -> None:
        if self._poll_timer is not None:
            self._poll_timer.cancel()
            self._poll_timer = None

    def _keep_answer(self, poll: LongPoll, ending: asyncio.Task[Claim] | None) -> None:
        """Whoever waited claims at once, unless it is ending or has no room any more."""

        def over() -> None:
            if self._poll is poll and not poll.is_waiting:
                self._poll = None
                self._returning.release_answer(poll.end, self)

        loop = asyncio.get_running_loop()
        if ending is None:
            loop.call_later(KEEP_ANSWER_SECONDS, over)
        else:
            ending.add_done_callback(lambda _: loop.call_later(KEEP_ANSWER_SECONDS, over))

    async def _collect(self, poll: LongPoll) -> Claim | None:
        """What it brought; None when it failed, or what it brought is given back. A claim of its own tells
        whether that means anything: proxies end requests that wait for long.
        """
        wanted_at = asyncio.get_running_loop().time()
        try:
            claim = await asyncio.shield(poll.end())
        except StoreError as error:
            _log.debug("a claim that waited brought nothing: %s", error)
            return None
        except asyncio.CancelledError:
            self._returning.release_answer(poll.end, self)
            raise
        try:
            return await self._renewing.refresh(claim, wanted_at - poll.answered_no_earlier_than)
        except StoreError as error:
            _log.debug("leases of jobs that came cannot be made anew: %s", error)
            self._returning.release(claim.jobs, self)
            return None
        except asyncio.CancelledError:
            self._returning.release_answer(poll.end, self)
            raise

    def _hand_out(self, claim: Claim, request: ClaimRequest) -> Claim:
        """What the caller asked for; the rest, which was for an earlier wish, is given back."""
        taken: Counter[str] = Counter()
        jobs: list[Claimed] = []
        left: list[Claimed] = []
        for job in claim.jobs:
            most = request.topic_limits.get(job.topic)
            if len(jobs) < request.limit and (most is None or taken[job.topic] < most):
                taken[job.topic] += 1
                jobs.append(job)
            else:
                left.append(job)
        if left:
            self._returning.release(left, self)
        handed = replace_struct(claim, jobs=tuple(jobs))
        self._last = (request, handed)
        return handed


_current_subscription: ContextVar[WorkerClaims | None] = ContextVar("tidewheel_http_subscribed", default=None)
"""That of the subscription which this task, or the one that began it, has made. A worker subscribes to hints
by topics and claims under its name: of several with the same topics, this tells whose hints are whose."""


class ClaimPool:
    """The claims of one opened store: workers of one app wait at the server side by side."""

    def __init__(self, client: ApiClient, lease_requests: LeaseRequests) -> None:
        self._reserving = ReserveClient(client)
        self._renewing = LeaseRefresher(lease_requests)
        self._returning = JobReturns(lease_requests)
        # For who does not wait for hints, or not yet.
        self._without_subscription = WorkerClaims(self._reserving, self._renewing, self._returning)
        self._subscribed: dict[WorkerClaims, None] = {}  # as many as there are subscriptions

    async def claim(self, request: ClaimRequest) -> Claim:
        return await self._claimer_of(request).claim(request)

    def _claimer_of(self, request: ClaimRequest) -> WorkerClaims:
        """Whoever claims first under a subscription is who listens there. Other claims of the same topics,
        such as one for a batch alone, must not change what is waited for.
        """
        topics, asks = _topics_of(request), (request.worker, request.lanes)
        fitting = [
            claimer
            for claimer in self._subscribed
            if claimer.topics == topics and claimer.owner in (None, asks)
        ]
        own = _current_subscription.get()
        if own in fitting:
            own.owner = asks
            return own
        # Without a subscription of its own in sight: that of the same name, or one whose owner is not known.
        return next(iter(fitting), self._without_subscription)

    @asynccontextmanager
    async def subscribe(self, topics: frozenset[str]) -> AsyncIterator[WorkerClaims]:
        """One that hears of jobs of these topics, for as long as somebody listens."""
        # Who listens may have claimed before, and waits for what that claim did not find.
        last = self._without_subscription.pop_last_claim(topics)
        claimer = WorkerClaims(self._reserving, self._renewing, self._returning, topics, last)
        self._subscribed[claimer] = None
        _current_subscription.set(claimer)
        try:
            yield claimer
        finally:
            del self._subscribed[claimer]
            await claimer.close()

    async def close(self) -> None:
        for claimer in self._subscribed:
            claimer.end()
        await self._returning.close()


def _topics_of(request: ClaimRequest) -> frozenset[str]:
    return frozenset([lane.topic for lane in request.lanes])


def _remaining_topic_limits(limits: Any, jobs: Iterable[Claimed]) -> dict[str, int]:
    """What is left of limits on topics once these jobs are taken."""
    taken = Counter(job.topic for job in jobs)
    return {topic: max(0, most - taken[topic]) for topic, most in limits.items()}
