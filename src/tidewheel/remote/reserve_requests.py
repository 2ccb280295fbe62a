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
from tidewheel.pull.job_returner import JobReturner
from tidewheel.remote.dispatcher import EMPTY_GRANT, ClaimDispatcher, Grant, WaitingWorker
from tidewheel.stores.protocol import Store

REMEMBER_SECONDS: Final = 60.0
"""How long a grant is remembered for whoever repeats its request."""
UNDELIVERED_SECONDS: Final = 5.0
"""How long jobs wait for a repeat when their client was gone before it could be told of them."""
MAX_REMEMBERED: Final = 10_000
JOB_OVERHEAD_BYTES: Final = 700
"""What a job weighs beside its payload and checkpoint."""
MAX_REMEMBERED_BYTES: Final = 64 * 1024 * 1024
"""Most grants that are remembered, and most bytes of their jobs together. With more, the oldest are reduced
to their leases, and then give way.
"""

Check = Callable[[], Awaitable[None]]


@dataclass(slots=True, eq=False)
class _ReserveRequest:
    """A request, and who waits for its answer: the first who sent it, and who repeats it."""

    waiter: WaitingWorker
    name: Hashable | None
    forget_at: float = math.inf  # by the loop's clock: how long its jobs are remembered, once it has some
    size: int = 0  # of these
    holders: int = 0
    deliveries: int = 0  # to so many who were there
    refused: bool = False  # to somebody who may not have them
    reduced: bool = False  # to leases: there was no room for payloads


class ReserveRequests:
    """The requests of one event loop."""

    def __init__(
        self, dispatcher: ClaimDispatcher, store: Store, clock: Clock, returner: JobReturner
    ) -> None:
        self._dispatcher = dispatcher
        self._store = store
        self._clock = clock
        self._job_returner = returner
        self._requests: dict[Hashable, _ReserveRequest] = {}
        self._answered: dict[_ReserveRequest, None] = {}  # those of them with an answer, the oldest first
        self._with_payloads: dict[_ReserveRequest, None] = {}  # those of them that were not reduced
        self._answered_bytes = 0
        self._undelivered: dict[_ReserveRequest, asyncio.TimerHandle] = {}

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
        asked = None if name is None else self._requests.get(name)
        if asked is None:
            asked = _ReserveRequest(self._dispatcher.add_waiter(request, seconds), name)
            if name is not None:
                self._requests[name] = asked
            return await self._wait_for_grant(asked, check), False
        if asked.waiter.request != request:
            raise InvalidInput(
                "this request id was given with another request before; make a new id for each"
            )
        if asked.reduced and not asked.holders:
            self._take_back(asked)  # nobody can be told what they are: they are claimed anew
            return await self.reserve(request, seconds, name, check)
        if asked.waiter.answer.done():
            return await self._repeat_grant(asked), True
        if not seconds:
            self._dispatcher.expire_waiter(asked.waiter)
        return await self._wait_for_grant(asked, check), True

    def has_granted(self, name: Hashable | None) -> bool:
        """Whether the request of this name has its answer, and is remembered."""
        asked = self._requests.get(name)
        return asked is not None and asked.waiter.answer.done() and not asked.reduced

    def report_undelivered(self, name: Hashable | None, grant: Grant) -> None:
        """Who was to be told of this grant had gone. Who has a name may come back; the jobs wait so long."""
        asked = self._requests.get(name)
        if asked is None:
            self._job_returner.return_jobs(grant.split_jobs())
            return
        asked.deliveries -= 1
        if not asked.holders:
            self._release_waiter(asked)

    def close(self) -> None:
        """Nobody can repeat anything here any more."""
        for asked in list(self._undelivered):
            self._take_back(asked)

    async def _wait_for_grant(self, asked: _ReserveRequest, check: Check | None) -> Grant:
        asked.holders += 1
        try:
            grant = await asyncio.shield(asked.waiter.answer)
            if grant.jobs and check is not None:
                await check()
            asked.deliveries += 1
        except StoreUnavailable:
            raise  # who could not be looked up may come again, and have them
        except Exception:
            asked.refused = True
            raise
        finally:
            asked.holders -= 1
            if not asked.holders:
                self._release_waiter(asked)
        return grant

    def _release_waiter(self, asked: _ReserveRequest) -> None:
        """Nobody waits for this answer any more."""
        answer = asked.waiter.answer
        self._dispatcher.remove_waiter(asked.waiter)  # who has an answer keeps it
        jobs = () if answer.exception() is not None else answer.result().jobs
        if not jobs:
            self._forget(asked)
            return
        if asked.name is not None and asked not in self._answered:
            self._remember(asked, jobs)
        if asked.deliveries > 0:
            return
        if asked.name is None or asked.refused:
            self._take_back(asked)
        else:
            timer = asyncio.get_running_loop().call_later(UNDELIVERED_SECONDS, self._take_back, asked)
            self._undelivered[asked] = timer

    def _remember(self, asked: _ReserveRequest, jobs: tuple[Claimed, ...]) -> None:
        asked.forget_at = asyncio.get_running_loop().time() + REMEMBER_SECONDS
        asked.size = sum(JOB_OVERHEAD_BYTES + len(job.payload) + len(job.checkpoint or b"") for job in jobs)
        self._answered[asked] = self._with_payloads[asked] = None
        self._answered_bytes += asked.size
        self._forget_old()

    def _take_back(self, asked: _ReserveRequest) -> None:
        """Its jobs are for others: nobody was told of them."""
        self._stop_waiting(asked)
        self._forget(asked)
        self._job_returner.return_jobs(asked.waiter.answer.result().split_jobs())

    def _stop_waiting(self, asked: _ReserveRequest) -> None:
        """Wait for nobody any longer."""
        timer = self._undelivered.pop(asked, None)
        if timer is not None:
            timer.cancel()

    async def _repeat_grant(self, asked: _ReserveRequest) -> Grant:
        """The same jobs again, for as long as they were granted for: those that are still held."""
        answer = asked.waiter.answer
        grant = EMPTY_GRANT if answer.exception() is not None else answer.result()
        asked.holders += 1
        self._stop_waiting(asked)
        try:
            renewed = await self._extended(grant)
            asked.deliveries += 1
        finally:
            asked.holders -= 1
            if not asked.holders:
                self._release_waiter(asked)
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

    def _forget(self, asked: _ReserveRequest) -> None:
        if asked.name is not None and self._requests.get(asked.name) is asked:
            del self._requests[asked.name]
        if asked in self._answered:
            del self._answered[asked]
            self._with_payloads.pop(asked, None)
            self._answered_bytes -= asked.size

    def _reduce(self, asked: _ReserveRequest) -> None:
        """Forget all but its leases, which is what giving back takes."""
        del self._with_payloads[asked]
        grant = asked.waiter.answer.result()
        jobs = [msgspec.structs.replace(job, payload=b"", checkpoint=None) for job in grant.jobs]
        asked.waiter.answer = asyncio.get_running_loop().create_future()
        asked.waiter.answer.set_result(msgspec.structs.replace(grant, jobs=tuple(jobs)))
        asked.reduced = True
        self._answered_bytes -= asked.size
        asked.size = JOB_OVERHEAD_BYTES * len(jobs)
        self._answered_bytes += asked.size

    def _forget_old(self) -> None:
        while self._with_payloads and self._answered_bytes > MAX_REMEMBERED_BYTES:
            self._reduce(next(iter(self._with_payloads)))
        now = asyncio.get_running_loop().time()
        while self._answered:
            oldest = next(iter(self._answered))
            if (
                oldest.forget_at > now
                and len(self._answered) <= MAX_REMEMBERED
                and self._answered_bytes <= MAX_REMEMBERED_BYTES
            ):
                break
            self._forget(oldest)
