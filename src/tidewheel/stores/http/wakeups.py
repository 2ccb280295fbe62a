"""Hints over HTTP: requests that wait at the server in place of notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

from tidewheel.core.model import State
from tidewheel.errors import StoreError, TidewheelError
from tidewheel.stores.http.claim_requests import POLL_SECONDS
from tidewheel.stores.http.claims import ClaimPool
from tidewheel.stores.http.job_queries import JobQueries
from tidewheel.stores.wakeups import WakeupSubscription

_log: Final = logging.getLogger("tidewheel.http")


class StateWatch:
    """The states that were asked for last, and the request that waits for one of them to be final."""

    def __init__(self, reading: JobQueries) -> None:
        self._reading = reading
        self._watched: tuple[tuple[UUID, ...], str | None] | None = None
        self._states: list[State | None] = []
        self._fresh = False  # answered by the request that waited, and not handed out yet
        self._waiting: asyncio.Task[None] | None = None

    async def states(self, job_ids: Sequence[UUID], tenant: str | None) -> list[State | None]:
        """What the server says; while it is waited for these very jobs, none of them has become final."""
        about = (tuple(job_ids), tenant)
        if about == self._watched and (self._fresh or self._waiting is not None):
            self._fresh = False
            return list(self._states)
        self.stop()
        states = await self._reading.states(job_ids, tenant)
        self._watched, self._states, self._fresh = about, states, False
        return list(states)

    def listen(self, on_answer: Callable[[], None], seconds: float) -> None:
        """Have the server tell when one of the jobs that were asked for last has ended."""
        del seconds  # it waits at the server for longer, and for whoever asks next
        if self._waiting is not None or self._watched is None or self._fresh:
            return
        if all(state is None or state.final for state in self._states):
            return
        self._waiting = asyncio.create_task(self._wait(self._watched, on_answer))

    def stop(self) -> None:
        """Nobody waits for them any more. It only reads, so the server may be left alone with it."""
        waiting, self._waiting = self._waiting, None
        self._watched = None
        if waiting is not None:
            waiting.cancel()

    async def _wait(self, about: tuple[tuple[UUID, ...], str | None], on_answer: Callable[[], None]) -> None:
        try:
            states = await self._reading.states(about[0], about[1], wait=POLL_SECONDS)
        except TidewheelError as error:
            # Never raised by a hint: whoever looks next is told.
            level = logging.DEBUG if isinstance(error, StoreError) else logging.WARNING
            _log.log(level, "results cannot be waited for: %s", error)
            states = None
        except Exception:
            # Were it to end here, what was known before would be told for ever.
            _log.exception("results cannot be waited for, which is a bug")
            states = None
        if self._waiting is asyncio.current_task():
            self._waiting = None
            if states is None:
                self._watched = None
            else:
                self._states, self._fresh = states, True
            on_answer()


class HttpWakeups:
    """One subscription. ``listen`` begins to wait at the server, ``hurry`` ends that early; ``rest`` is told
    when nobody waits here.
    """

    def __init__(
        self,
        listen: Callable[[Callable[[], None], float], None],
        end_poll: Callable[[], None],
        stop_listening_soon: Callable[[], None],
    ) -> None:
        self._local = WakeupSubscription()
        self._loop = asyncio.get_running_loop()
        self._listen = listen
        self._hurry = end_poll
        self._rest = stop_listening_soon

    async def wait(self, timeout: float) -> bool:
        """True once something relevant was hinted since the last call, False after ``timeout`` seconds."""
        self._listen(self._local.nudge, timeout)
        try:
            return await self._local.wait(timeout)
        finally:
            self._rest()

    def nudge(self) -> None:
        """Make the current or next ``wait`` return True. Safe from any thread."""
        self._local.nudge()
        if asyncio._get_running_loop() is self._loop:
            self._hurry()
            return
        try:
            self._loop.call_soon_threadsafe(self._hurry)
        except RuntimeError:
            if not self._loop.is_closed():  # closed: nobody is left to hear it
                raise


@asynccontextmanager
async def ready_wakeups(pool: ClaimPool, topics: Collection[str]) -> AsyncIterator[HttpWakeups]:
    """That jobs of these topics may be due."""
    async with pool.subscribe(frozenset(topics)) as claimer:
        yield HttpWakeups(claimer.listen, claimer.end_poll, claimer.stop_listening_soon)


@asynccontextmanager
async def finished_wakeups(watch: StateWatch) -> AsyncIterator[HttpWakeups]:
    """That jobs whose states were asked for have ended."""
    try:
        yield HttpWakeups(watch.listen, _ignore, _ignore)
    finally:
        watch.stop()


@asynccontextmanager
async def no_wakeups() -> AsyncIterator[HttpWakeups]:
    """What the server tells nobody one by one: whoever wants to know looks now and then."""
    yield HttpWakeups(_ignore_listen, _ignore, _ignore)


def _ignore_listen(told: Callable[[], None], seconds: float) -> None:
    del told, seconds


def _ignore() -> None:
    """The next look is at other jobs, and ends the wait for these by itself."""
