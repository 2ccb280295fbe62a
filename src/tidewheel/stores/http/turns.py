"""Many requests for single jobs: a few at a time, and none goes on once one of them has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

A = TypeVar("A")
T = TypeVar("T")

AT_ONCE: Final = 8
"""Requests that are under way at a time."""


async def in_turns(ask: Callable[[A], Awaitable[T]], about: Iterable[A]) -> list[T]:
    """What it answers about each of these, in their order. An error is raised when nothing runs any more."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(item: A) -> T:
        async with turns:
            return await ask(item)

    tasks = [asyncio.create_task(one(item)) for item in about]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
