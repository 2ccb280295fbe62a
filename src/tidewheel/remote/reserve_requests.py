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

import msgspec

from tidewheel.core.clock import Clock
from tidewheel.core.model import Claimed, ClaimRequest
from tidewheel.errors import InvalidInput, StoreUnavailable
from tidewheel.pull.job_returner import Returning
from tidewheel.remote.dispatcher import NOTHING, Grant, Room, Waiter
from tidewheel.stores.protocol import Store

KEPT_SECONDS: Final = 60.0
"""How long a grant is remembered for whoever repeats its request."""
UNSEEN_SECONDS: Final = 5.0
"""How long jobs wait for a repeat when their client was gone before it could be told of them."""
MAX_KEPT: Final = 10_000
JOB_BYTES: Final = 700
"""What a job weighs beside its payload and checkpoint."""
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Most grants that are remembered, and most bytes of their jobs together. With more, the oldest are reduced
to their leases, and then give way.
"""

Check = Callable[[], Awaitable[None]]


@dataclass(slots=True, eq=False)
class _Asked:
    """A request, and who waits for its answer: the first who sent it, and who repeats it."""

    waiter: Waiter
    name: Hashable | None
    until: float = math.inf  # by the loop's clock: how long its jobs are remembered, once it has some
    size: int = 0  # of these
    holders: int = 0
    told: int = 0  # to so many who were there
    refused: bool = False  # to somebody who may not have them
    reduced: bool = False  # to leases: there was no room for payloads


class Reserving:
    """The requests of one event loop."""

    def __init__(self, room: Room, store: Store, clock: Clock, returning: Returning) -> None:
        self._room = room
        self._store = store
        self._clock = clock
        self._returning = returning
        self._asked: dict[Hashable, _Asked] = {}
        self._kept: dict[_Asked, None] = {}  # those of them with an answer, the oldest first
        self._whole: dict[_Asked, None] = {}  # those of them that were not reduced
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
        if asked.reduced and not asked.holders:
            self._take_back(asked)  # nobody can be told what they are: they are claimed anew
            return await self.reserve(request, seconds, name, check)
        if asked.waiter.answer.done():
            return await self._renewed(asked), True
        if not seconds:
            self._room.hurry(asked.waiter)
        return await self._hold(asked, check), True

    def has_granted(self, name: Hashable | None) -> bool:
        """Whether the request of this name has its answer, and is remembered."""
        asked = self._asked.get(name)
        return asked is not None and asked.waiter.answer.done() and not asked.reduced

    def not_told(self, name: Hashable | None, grant: Grant) -> None:
        """Who was to be told of this grant had gone. Who has a name may come back; the jobs wait so long."""
        asked = self._asked.get(name)
        if asked is None:
            self._returning.give_back(grant.pulled())
            return
        asked.told -= 1
        if not asked.holders:
            self._let_go(asked)

    def close(self) -> None:
        """Nobody can repeat anything here any more."""
        for asked in list(self._unseen):
            self._take_back(asked)

    async def _hold(self, asked: _Asked, check: Check | None) -> Grant:
        asked.holders += 1
        try:
            grant = await asyncio.shield(asked.waiter.answer)
            if grant.jobs and check is not None:
                await check()
            asked.told += 1
        except StoreUnavailable:
            raise  # who could not be looked up may come again, and have them
        except Exception:
            asked.refused = True
            raise
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
        if asked.told > 0:
            return
        if asked.name is None or asked.refused:
            self._take_back(asked)
        else:
            timer = asyncio.get_running_loop().call_later(UNSEEN_SECONDS, self._take_back, asked)
            self._unseen[asked] = timer

    def _keep(self, asked: _Asked, jobs: tuple[Claimed, ...]) -> None:
        asked.until = asyncio.get_running_loop().time() + KEPT_SECONDS
        asked.size = sum(JOB_BYTES + len(job.payload) + len(job.checkpoint or b"") for job in jobs)
        self._kept[asked] = self._whole[asked] = None
        self._kept_bytes += asked.size
        self._forget_old()

    def _take_back(self, asked: _Asked) -> None:
        """Its jobs are for others: nobody was told of them."""
        self._stop_waiting(asked)
        self._forget(asked)
        self._returning.give_back(asked.waiter.answer.result().pulled())

    def _stop_waiting(self, asked: _Asked) -> None:
        """Wait for nobody any longer."""
        timer = self._unseen.pop(asked, None)
        if timer is not None:
            timer.cancel()

    async def _renewed(self, asked: _Asked) -> Grant:
        """The same jobs again, for as long as they were granted for: those that are still held."""
        answer = asked.waiter.answer
        grant = NOTHING if answer.exception() is not None else answer.result()
        asked.holders += 1
        self._stop_waiting(asked)
        try:
            renewed = await self._extended(grant)
            asked.told += 1
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
            self._whole.pop(asked, None)
            self._kept_bytes -= asked.size

    def _reduce(self, asked: _Asked) -> None:
        """Forget all but its leases, which is what giving back takes."""
        del self._whole[asked]
        grant = asked.waiter.answer.result()
        jobs = [msgspec.structs.replace(job, payload=b"", checkpoint=None) for job in grant.jobs]
        asked.waiter.answer = asyncio.get_running_loop().create_future()
        asked.waiter.answer.set_result(msgspec.structs.replace(grant, jobs=tuple(jobs)))
        asked.reduced = True
        self._kept_bytes -= asked.size
        asked.size = JOB_BYTES * len(jobs)
        self._kept_bytes += asked.size

    def _forget_old(self) -> None:
        while self._whole and self._kept_bytes > MAX_KEPT_BYTES:
            self._reduce(next(iter(self._whole)))
        now = asyncio.get_running_loop().time()
        while self._kept:
            oldest = next(iter(self._kept))
            if oldest.until > now and len(self._kept) <= MAX_KEPT and self._kept_bytes <= MAX_KEPT_BYTES:
                break
            self._forget(oldest)
