"""Giving back what nobody took, as if nobody had had it, while those it came for do something else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final

from tidewheel.errors import NotOpen, StoreError, TidewheelError
from tidewheel.model import Claim, Claimed, Settlement
from tidewheel.outcome import UNSEEN
from tidewheel.stores.http.working import Working

GIVE_BACK_SECONDS: Final = 5.0
"""How long whoever ends waits for what it gives back."""

_log = logging.getLogger("tidewheel.http")


class Returning:
    """What is on its way back, of one opened store.

    It is kept here and not by those it came for: they may be gone, or be cancelled while they wait for it,
    and the store must not close its connections before all of it is back.
    """

    def __init__(self, working: Working) -> None:
        self._working = working
        self._under_way: dict[asyncio.Task[None], object] = {}  # and for whom it came

    def give_back(self, jobs: Iterable[Claimed], owner: object) -> None:
        """Begin to give these back."""
        self._begin(self._settle(tuple(jobs)), owner)

    def give_back_what_comes(self, ask: Callable[[], Awaitable[Claim]], owner: object) -> None:
        """Begin to find out what was granted, and to give that back."""
        self._begin(self._settle_what_comes(ask), owner)

    async def finish(self, owner: object) -> None:
        """Until what came for this one is back, as far as that is quick."""
        tasks = [task for task, whose in self._under_way.items() if whose is owner]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=GIVE_BACK_SECONDS)
            for task in late:
                task.cancel()

    async def close(self) -> None:
        """Until everything is back, what comes meanwhile included, as far as that is quick."""
        loop = asyncio.get_running_loop()
        until = loop.time() + GIVE_BACK_SECONDS
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

    async def _settle_what_comes(self, ask: Callable[[], Awaitable[Claim]]) -> None:
        try:
            claim = await ask()
        except TidewheelError as error:
            # The server notices that nobody is there any more, and gives back what it granted by itself; one
            # that refuses the token grants nothing.
            _log.debug("it is not known what was granted: %s", error)
        else:
            await self._settle(claim.jobs)

    async def _settle(self, jobs: Iterable[Claimed]) -> None:
        unseen = [Settlement(job.lease, UNSEEN) for job in jobs]
        if unseen:
            await self._working.settle(unseen)
