"""Waiting for something, unless the server shuts down first."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.server.problems import NOT_OPEN, Problem

if TYPE_CHECKING:
    from windlass.server.app import Api

T = TypeVar("T")


async def unless_closing(api: Api, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` answers; a problem when the server is told to stop meanwhile."""
    task = asyncio.create_task(work)
    closing = asyncio.create_task(api.closing.wait())
    try:
        await asyncio.wait((task, closing), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Problem(NOT_OPEN, "the server is shutting down; ask again")
    finally:
        closing.cancel()
        task.cancel()
        await asyncio.wait((task, closing))
