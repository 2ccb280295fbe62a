"""Waiting for the first of several things, for an answer in time, and for the store to come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Collection, Coroutine
from typing import Any, TypeVar

from tidewheel.errors import StoreUnavailable

T = TypeVar("T")


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait for one of these, and let go of the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def within(seconds: float, call: Awaitable[T]) -> T:
    """The answer of a store that may hang; ``StoreUnavailable`` when it does not come in time."""
    try:
        async with asyncio.timeout(seconds):  # not wait_for, which before Python 3.12 may lose a cancellation
            return await call
    except TimeoutError:
        raise StoreUnavailable(f"the store did not answer within {seconds:g} s") from None


def look_at(answer: asyncio.Future[Any]) -> None:
    """When it is done: an answer for which nobody waits any more has its error looked at by nobody else."""
    if not answer.cancelled():
        answer.exception()


def both(before: asyncio.Future[Any] | None, one: asyncio.Future[Any]) -> asyncio.Future[Any]:
    """What is done when these are."""
    if before is None or before.done():
        return one
    return asyncio.gather(before, one, return_exceptions=True)


async def end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel these until they have ended: below them there may be code that loses a cancellation."""
    running = list(tasks)  # in order, unlike a set of them
    while running:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=0.2)
        running = [task for task in running if not task.done()]


class Recovery:
    """Where the parts of one worker that failed wait for their next try; the first to get through wakes all.

    Without it each would sleep its own pause of up to half a minute after the store is back. From any thread,
    heard on any event loop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By their futures, in the order they came: a set would wake them in any order.
        self._sleeping: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    async def sleep(self, seconds: float) -> bool:
        """True when somebody got through before the time was over."""
        loop = asyncio.get_running_loop()
        sleeper = loop.create_future()
        with self._lock:
            self._sleeping[sleeper] = loop
        try:
            woken, _ = await asyncio.wait((sleeper,), timeout=seconds)
        finally:
            with self._lock:
                self._sleeping.pop(sleeper, None)
        return bool(woken)

    def tell(self) -> None:
        """The store answers again."""
        with self._lock:
            for future, loop in self._sleeping.items():
                try:
                    loop.call_soon_threadsafe(_release, future)
                except RuntimeError:
                    if not loop.is_closed():  # closed: the sleeper is gone with it
                        raise
            self._sleeping.clear()


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
