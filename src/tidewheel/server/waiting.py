"""Waiting for something, unless the client goes away or the server shuts down first."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from tidewheel.server.problems import NOT_OPEN, Problem
from tidewheel.server.transport import ClientGone

if TYPE_CHECKING:
    from tidewheel.server.request import Request

T = TypeVar("T")


async def unless_gone(
    request: Request[Any, Any], work: Coroutine[Any, Any, T], instead: T | None = None
) -> T:
    """What ``work`` answers; ``ClientGone`` when nobody waits for it any more.

    When the server is told to stop: this instead, or a problem where there is nothing to say instead.
    """
    task = asyncio.create_task(work)
    match await _first_of(task, (_hang_up(request), request.api.closing.wait())):
        case None:
            return task.result()
        case 0:
            raise ClientGone
        case _ if instead is None:
            raise Problem(NOT_OPEN, "the server is shutting down; ask again")
        case _:
            return instead


async def unless_hung_up(request: Request[Any, Any], work: Coroutine[Any, Any, T]) -> T:
    """The same for what is soon done, and is done also by a server that stops."""
    task = asyncio.create_task(work)
    if await _first_of(task, (_hang_up(request),)) is not None:
        raise ClientGone
    return task.result()


async def _first_of(task: asyncio.Task[Any], ends: Iterable[Coroutine[Any, Any, Any]]) -> int | None:
    """Wait for the task, or for one of these, which ends it: the place of that one."""
    others = [asyncio.create_task(end) for end in ends]
    try:
        await asyncio.wait((task, *others), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return None
        return next(place for place, other in enumerate(others) if other.done())
    finally:
        for one in (task, *others):
            one.cancel()
        await asyncio.wait((task, *others))


async def _hang_up(request: Request[Any, Any]) -> None:
    """Until the client does; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
