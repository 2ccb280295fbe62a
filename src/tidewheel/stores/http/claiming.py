"""Jobs for a worker: claims, and the long poll that waits at the server in the time between them.

A worker claims, and when there is nothing it waits for a hint. Over HTTP that wait is a claim itself, which
the server answers when there is a job: what comes is kept for the next claim. While it waits at the server,
claims that it serves as well are answered here: nothing is there, or it would have come.

No job is lost on the way. Each claim has an id, and repeated under it the server gives the same jobs again,
or ends the one that still waits. What nobody takes is given back as if nobody had had it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from msgspec.structs import replace as replace_struct

from tidewheel.errors import StoreError
from tidewheel.jitter import jitter
from tidewheel.model import Claim, Claimed, ClaimRequest, Lane
from tidewheel.stores.http.client import Client, new_request_id
from tidewheel.stores.http.polling import EARLY_SECONDS, Poll
from tidewheel.stores.http.renewing import Renewing
from tidewheel.stores.http.reserving import Reserving
from tidewheel.stores.http.returning import Returning
from tidewheel.stores.http.working import Working

SHORTEST_POLL: Final = 0.2
"""A worker that was told of more jobs for more free slots offers those in a moment: a wait that is shorter
than this is for that, and not worth a request of its own."""
KEPT_SECONDS: Final = 1.0
"""How long a job that came is kept for a claim: a worker that is ending makes none any more."""
UNWANTED_SECONDS: Final = 0.25
"""How long a claim waits on at the server when nobody here claims or listens: a worker that has become full
has no use for what it would bring, and others may."""

_log = logging.getLogger("tidewheel.http")


Answered = tuple[ClaimRequest, Claim]


class Claimer:
    """The claims of one worker, and its poll."""

    def __init__(
        self,
        reserving: Reserving,
        renewing: Renewing,
        returning: Returning,
        topics: frozenset[str] = frozenset(),
        last: Answered | None = None,
    ) -> None:
        self.topics = topics
        self.owner: tuple[str, tuple[Lane, ...]] | None = None  # the worker and what it wants, once known
        self._reserving = reserving
        self._renewing = renewing
        self._returning = returning
        self._poll: Poll | None = None
        self._last = last
        self._wishes = 0  # claims and waits for hints so far
        self._poll_at = 0.0  # by the loop's clock: no poll begins before
        self._later: asyncio.TimerHandle | None = None  # begins one then, for who listens now

    async def claim(self, request: ClaimRequest) -> Claim:
        """Jobs that are there, those that came while nobody asked first."""
        if not request.lanes:
            return Claim(())
        self._wishes += 1
        poll = self._poll
        if poll is not None and poll.is_for(request):
            kept_back = self._was_kept_back
            if poll.waits and poll.serves(request, kept_back=kept_back):
                return Claim((), None, kept_back)
            self._poll = None
            came_by_itself = not poll.waits and not poll.ended
            collected = await self._collect(poll)
            if collected is not None and (collected.jobs or came_by_itself):
                return self._hand_out(collected, request)
        request_id = new_request_id()
        asking = asyncio.create_task(self._reserving.ask(request, request_id, 0.0))
        try:
            claim = await asyncio.shield(asking)
        except asyncio.CancelledError:
            # The server may have granted: asked again under the same id, it tells what.
            asking.cancel()
            self._returning.give_back_what_comes(lambda: self._reserving.ask(request, request_id, 0.0), self)
            raise
        return self._hand_out(claim, request)

    # -- waiting ------------------------------------------------------------------------------------------

    def listen(self, on_answer: Callable[[], None], seconds: float) -> None:
        """Have the server tell when there is a job for who claimed last.

        ``seconds``: how long the caller waits now; the request waits for longer, and is still there then.
        """
        self._wishes += 1
        poll = self._poll
        if poll is not None:
            if not poll.waits:
                on_answer()  # something has come already
            return
        if self._last is None or (self._was_kept_back and seconds < SHORTEST_POLL):
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._poll_at:
            if self._later is None:
                self._later = loop.call_at(self._poll_at, self._listen_later, on_answer, seconds)
            return
        request, claim = self._last
        left = request.limit - len(claim.jobs)
        if left <= 0:
            return
        free = None if request.free is None else max(1, request.free - len(claim.jobs))
        wanted = ClaimRequest(
            request.worker,
            request.lanes,
            left,
            request.lease_seconds,
            _without(request.topic_limits, claim.jobs),
            request.lasting,
            free,
            request.reports_starts,
        )
        self._poll = Poll(self._reserving, wanted, lambda poll: self._came(poll, on_answer))

    def _listen_later(self, on_answer: Callable[[], None], seconds: float) -> None:
        self._later = None
        self.listen(on_answer, seconds)

    def rest(self) -> None:
        """Somebody listens no longer, and claims at once, most likely; if not, nothing is waited for."""
        self._stop_later()
        poll, wishes = self._poll, self._wishes

        def over() -> None:
            if poll is not None and self._poll is poll and poll.waits and self._wishes == wishes:
                self._poll = None
                self._returning.give_back_what_comes(poll.end, self)

        if poll is not None:
            asyncio.get_running_loop().call_later(UNWANTED_SECONDS, over)

    def hurry(self) -> None:
        """Somebody wants to look now: what waits at the server is answered, and waits for a claim here."""
        if self._poll is not None and self._poll.waits:
            self._keep_a_while(self._poll, self._poll.end())

    def hand_over(self, topics: frozenset[str]) -> Answered | None:
        """What was claimed last, if that was for these topics: by who listens from now on, most likely."""
        last = self._last
        if last is None or _topics_of(last[0]) != topics:
            return None
        self._last = None
        return last

    def end(self) -> None:
        """Nobody waits any more: what has come, and what is on its way, begins to be given back."""
        self._stop_later()
        poll, self._poll = self._poll, None
        if poll is not None:
            self._returning.give_back_what_comes(poll.end, self)

    async def close(self) -> None:
        """The same, until it is back, as far as that is quick."""
        self.end()
        await self._returning.finish(self)

    @property
    def _was_kept_back(self) -> bool:
        return self._last is not None and self._last[1].kept_back

    def _came(self, poll: Poll, on_answer: Callable[[], None]) -> None:
        if poll is not self._poll or poll.ended:
            return  # whoever ended it knows
        self._keep_a_while(poll, None)
        if poll.came_early:
            # Jitter: those whom one server sent away must not all come back in step.
            rest = EARLY_SECONDS * jitter(0.75, 1.25)
            self._poll_at = asyncio.get_running_loop().time() + rest
        on_answer()

    def _stop_later(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _keep_a_while(self, poll: Poll, ending: asyncio.Task[Claim] | None) -> None:
        """Whoever waited claims at once, unless it is ending or has no room any more."""

        def over() -> None:
            if self._poll is poll and not poll.waits:
                self._poll = None
                self._returning.give_back_what_comes(poll.end, self)

        loop = asyncio.get_running_loop()
        if ending is None:
            loop.call_later(KEPT_SECONDS, over)
        else:
            ending.add_done_callback(lambda _: loop.call_later(KEPT_SECONDS, over))

    async def _collect(self, poll: Poll) -> Claim | None:
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
            self._returning.give_back_what_comes(poll.end, self)
            raise
        try:
            return await self._renewing.of_now(claim, wanted_at - poll.came_at)
        except StoreError as error:
            _log.debug("leases of jobs that came cannot be made anew: %s", error)
            self._returning.give_back(claim.jobs, self)
            return None
        except asyncio.CancelledError:
            self._returning.give_back_what_comes(poll.end, self)
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
            self._returning.give_back(left, self)
        handed = replace_struct(claim, jobs=tuple(jobs))
        self._last = (request, handed)
        return handed


_subscribed: ContextVar[Claimer | None] = ContextVar("tidewheel_http_subscribed", default=None)
"""That of the subscription which this task, or the one that began it, has made. A worker subscribes to hints
by topics and claims under its name: of several with the same topics, this tells whose hints are whose."""


class Claimers:
    """The claims of one opened store: workers of one app wait at the server side by side."""

    def __init__(self, client: Client, working: Working) -> None:
        self._reserving = Reserving(client)
        self._renewing = Renewing(working)
        self._returning = Returning(working)
        self._deaf = Claimer(
            self._reserving, self._renewing, self._returning
        )  # for who does not wait for hints, or not yet
        self._listening: dict[Claimer, None] = {}  # as many as there are subscriptions

    async def claim(self, request: ClaimRequest) -> Claim:
        return await self._claimer_of(request).claim(request)

    def _claimer_of(self, request: ClaimRequest) -> Claimer:
        """Whoever claims first under a subscription is who listens there. Other claims of the same topics,
        such as one for a batch alone, must not change what is waited for.
        """
        topics, asks = _topics_of(request), (request.worker, request.lanes)
        fitting = [
            claimer
            for claimer in self._listening
            if claimer.topics == topics and claimer.owner in (None, asks)
        ]
        own = _subscribed.get()
        if own in fitting:
            own.owner = asks
            return own
        # Without a subscription of its own in sight: that of the same name, or one whose owner is not known.
        return next(iter(fitting), self._deaf)

    @asynccontextmanager
    async def listening(self, topics: frozenset[str]) -> AsyncIterator[Claimer]:
        """One that hears of jobs of these topics, for as long as somebody listens."""
        # Who listens may have claimed before, and waits for what that claim did not find.
        last = self._deaf.hand_over(topics)
        claimer = Claimer(self._reserving, self._renewing, self._returning, topics, last)
        self._listening[claimer] = None
        _subscribed.set(claimer)
        try:
            yield claimer
        finally:
            del self._listening[claimer]
            await claimer.close()

    async def close(self) -> None:
        for claimer in self._listening:
            claimer.end()
        await self._returning.close()


def _topics_of(request: ClaimRequest) -> frozenset[str]:
    return frozenset([lane.topic for lane in request.lanes])


def _without(limits: Any, jobs: Iterable[Claimed]) -> dict[str, int]:
    """What is left of limits on topics once these jobs are taken."""
    taken = Counter(job.topic for job in jobs)
    return {topic: max(0, most - taken[topic]) for topic, most in limits.items()}
