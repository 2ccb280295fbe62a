"""Waiting for the first of several things, for an answer in time, and for the store to come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Coroutine
from typing import Any, TypeVar

from tidewheel.errors import StoreUnavailable

T = TypeVar("T")


async def wait_for_first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait for one of these, and let go of the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def with_store_timeout(seconds: float, call: Awaitable[T]) -> T:
    """The answer of a store that may hang; ``StoreUnavailable`` when it does not come in time."""
    try:
        async with asyncio.timeout(seconds):  # not wait_for, which before Python 3.12 may lose a cancellation
            return await call
    except TimeoutError:
        raise StoreUnavailable(f"the store did not answer within {seconds:g} s") from None


def retrieve_exception(answer: asyncio.Future[Any]) -> None:
    """When it is done: an answer for which nobody waits any more has its error looked at by nobody else."""
    if not answer.cancelled():
        answer.exception()


def join_futures(before: asyncio.Future[Any] | None, one: asyncio.Future[Any]) -> asyncio.Future[Any]:
    """What is done when these are."""
    if before is None or before.done():
        return one
    return asyncio.gather(before, one, return_exceptions=True)


async def cancel_and_wait(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel these until they have ended: below them there may be code that loses a cancellation."""
    running = list(tasks)  # in order, unlike a set of them
    while running:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=0.2)
        running = [task for task in running if not task.done()]
