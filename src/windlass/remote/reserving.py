"""Asking for jobs in such a way that a lost answer costs nothing.

Who asks may give the request a name. When it is repeated under that name, because no answer came, nothing
more is granted: it takes the place of the first in the line, or gets what the first one got. Kept in memory,
for a while: a server that dies is like a worker that dies, and what it handed out comes back when leases end.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final

from windlass.clock import Clock
from windlass.errors import InvalidInput
from windlass.model import Claimed, ClaimRequest
from windlass.pulling.returning import Returning
from windlass.remote.room import NOTHING, Grant, Room, Waiter
from windlass.stores.protocol import Store

KEPT_SECONDS: Final = 60.0
"""How long a grant is remembered for whoever repeats its request."""
UNSEEN_SECONDS: Final = 5.0
"""How long jobs wait for a repeat when their client was gone before it could be told of them."""
MAX_KEPT: Final = 10_000
JOB_BYTES: Final = 700
"""What a job weighs beside its payload and checkpoint."""
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Most grants that are remembered, and most bytes of their jobs together; the oldest give way."""

Check = Callable[[], Awaitable[None]]


@dataclass(slots=True, eq=False)
class _Asked:
    """A request, and who waits for its answer: the first who sent it, and who repeats it."""

    waiter: Waiter
    name: Hashable | None
    until: float = math.inf  # by the loop's clock: how long its jobs are remembered, once it has some
    size: int = 0  # of these
    holders: int = 0
    seen: bool = False  # somebody was there to be told


class Reserving:
    """The requests of one event loop."""

    def __init__(self, room: Room, store: Store, clock: Clock, returning: Returning) -> None:
        self._room = room
        self._store = store
        self._clock = clock
        self._returning = returning
        self._asked: dict[Hashable, _Asked] = {}
        self._kept: dict[_Asked, None] = {}  # those of them with an answer, the oldest first
        self._kept_bytes = 0
        self._unseen: dict[_Asked, asyncio.TimerHandle] = {}

    async def reserve(
        self,
        request: ClaimRequest,
        seconds: float,
        name: Hashable | None = None,
        check: Check | None = None,
    ) -> tuple[Grant, bool]:
        """Jobs for a worker elsewhere, waiting for them so long; and whether it is a repeat.

        ``check`` is asked before it is told of any, and raises when it may not have them.

        Whoever stops waiting is to be cancelled: what it would have got is somebody else's then.
        """
        self._forget_old()
        asked = None if name is None else self._asked.get(name)
        if asked is None:
            asked = _Asked(self._room.ask(request, seconds), name)
            if name is not None:
                self._asked[name] = asked
            return await self._hold(asked, check), False
        if asked.waiter.request != request:
            raise InvalidInput(
                "this request id was given with another request before; make a new id for each"
            )
        if asked.waiter.answer.done():
            return await self._renewed(asked), True
        if not seconds:
            self._room.hurry(asked.waiter)
        return await self._hold(asked, check), True

    def has_granted(self, name: Hashable | None) -> bool:
        """Whether the request of this name has its answer, and is remembered."""
        asked = self._asked.get(name)
        return asked is not None and asked.waiter.answer.done()

    def close(self) -> None:
        """Nobody can repeat anything here any more."""
        for asked, timer in list(self._unseen.items()):
            timer.cancel()
            self._give_back(asked)

    async def _hold(self, asked: _Asked, check: Check | None) -> Grant:
        asked.holders += 1
        try:
            grant = await asyncio.shield(asked.waiter.answer)
            if grant.jobs and check is not None:
                await check()
            asked.seen = True
        finally:
            asked.holders -= 1
            if not asked.holders:
                self._let_go(asked)
        return grant

    def _let_go(self, asked: _Asked) -> None:
        """Nobody waits for this answer any more."""
        answer = asked.waiter.answer
        self._room.withdraw(asked.waiter)  # who has an answer keeps it
        jobs = () if answer.exception() is not None else answer.result().jobs
        if not jobs:
            self._forget(asked)
            return
        if asked.name is not None and asked not in self._kept:
            self._keep(asked, jobs)
        if not asked.seen and asked.name is None:
            self._give_back(asked)
        elif not asked.seen:
            timer = asyncio.get_running_loop().call_later(UNSEEN_SECONDS, self._give_back, asked)
            self._unseen[asked] = timer

    def _keep(self, asked: _Asked, jobs: tuple[Claimed, ...]) -> None:
        asked.until = asyncio.get_running_loop().time() + KEPT_SECONDS
        asked.size = sum(JOB_BYTES + len(job.payload) + len(job.checkpoint or b"") for job in jobs)
        self._kept[asked] = None
        self._kept_bytes += asked.size

    def _give_back(self, asked: _Asked) -> None:
        self._unseen.pop(asked, None)
        if not asked.seen:
            self._forget(asked)
            self._returning.give_back(asked.waiter.answer.result().pulled())

    async def _renewed(self, asked: _Asked) -> Grant:
        """The same jobs again, for as long as they were granted for: those that are still held."""
        answer = asked.waiter.answer
        grant = NOTHING if answer.exception() is not None else answer.result()
        asked.holders += 1
        if (timer := self._unseen.pop(asked, None)) is not None:
            timer.cancel()
        try:
            renewed = await self._extended(grant)
            asked.seen = True
        finally:
            asked.holders -= 1
            if not asked.holders:
                self._let_go(asked)
        return renewed

    async def _extended(self, grant: Grant) -> Grant:
        sent = self._clock.monotonic()
        by_length: defaultdict[float, list[Claimed]] = defaultdict(list)
        for job in grant.jobs:
            by_length[job.lease_seconds].append(job)
        held = set()
        for seconds, jobs in by_length.items():
            leases = [job.lease for job in jobs]
            answers = await self._store.extend(leases, seconds)
            held |= {lease for lease, kept in zip(leases, answers, strict=True) if kept}
        return Grant(tuple([job for job in grant.jobs if job.lease in held]), sent)

    def _forget(self, asked: _Asked) -> None:
        if asked.name is not None and self._asked.get(asked.name) is asked:
            del self._asked[asked.name]
        if asked in self._kept:
            del self._kept[asked]
            self._kept_bytes -= asked.size

    def _forget_old(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._kept:
            oldest = next(iter(self._kept))
            if oldest.until > now and len(self._kept) < MAX_KEPT and self._kept_bytes <= MAX_KEPT_BYTES:
                break
            self._forget(oldest)
