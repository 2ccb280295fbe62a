"""Cancel requests whose client leaves, that outlast the server, or that take too long.

``cancel_on_disconnect_or_shutdown`` and ``cancel_on_disconnect`` wait for work and cancel it if the client
disconnects; the first also if the server shuts down. ``RequestDeadlines`` cancels requests that exceed their
time. It checks all of them four times a second, which is cheaper than a timer per request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tidewheel.server.asgi import ClientGone
from tidewheel.server.problems import NOT_OPEN, Problem

if TYPE_CHECKING:
    from tidewheel.server.request import Request

T = TypeVar("T")


async def cancel_on_disconnect_or_shutdown(
    request: Request[Any, Any], work: Coroutine[Any, Any, T], on_shutdown: T | None = None
) -> T:
    """What ``work`` answers; ``ClientGone`` when nobody waits for it any more.

    When the server is told to stop: this instead, or a problem where there is nothing to say instead.
    """
    task = asyncio.create_task(work)
    match await _wait_first(task, (_wait_for_disconnect(request), request.api.closing.wait())):
        case None:
            return task.result()
        case 0:
            raise ClientGone
        case _ if on_shutdown is None:
            raise Problem(NOT_OPEN, "the server is shutting down; ask again")
        case _:
            return on_shutdown


async def cancel_on_disconnect(request: Request[Any, Any], work: Coroutine[Any, Any, T]) -> T:
    """The same for what is soon done, and is done also by a server that stops."""
    task = asyncio.create_task(work)
    if await _wait_first(task, (_wait_for_disconnect(request),)) is not None:
        raise ClientGone
    return task.result()


async def _wait_first(task: asyncio.Task[Any], ends: Iterable[Coroutine[Any, Any, Any]]) -> int | None:
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


async def _wait_for_disconnect(request: Request[Any, Any]) -> None:
    """Until the client does; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


CHECK_SECONDS: Final = 0.25
"""How late a request may be ended."""


class RequestDeadlines:
    """Until when which request may run; for one event loop."""

    def __init__(self) -> None:
        self._deadline_by_task: dict[asyncio.Task[Any], float] = {}
        self._expired: set[asyncio.Task[Any]] = set()
        self._next_check: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> asyncio.Task[Any]:
        """Let the current task run for so long from here on, whatever was said before."""
        loop = asyncio.get_running_loop()
        task = cast("asyncio.Task[Any]", asyncio.current_task(loop))  # whatever awaits this is in one
        self._deadline_by_task[task] = loop.time() + seconds
        if self._next_check is None:
            self._next_check = loop.call_later(CHECK_SECONDS, self._cancel_overdue, loop)
        return task

    def finish(self, task: asyncio.Task[Any]) -> None:
        """It is done, one way or another."""
        self._deadline_by_task.pop(task, None)
        if self._expired:  # whatever it awaited may have finished in spite of being cancelled
            self._expired.discard(task)

    def remove(self) -> None:
        """Let the current task go on for as long as it likes."""
        self._deadline_by_task.pop(cast("asyncio.Task[Any]", asyncio.current_task()), None)

    def take_expired(self, task: asyncio.Task[Any]) -> bool:
        """Whether it was cancelled by us, and by nobody else."""
        if task not in self._expired:
            return False
        self._expired.discard(task)
        return task.uncancel() == 0

    def _cancel_overdue(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for task in [task for task, until in self._deadline_by_task.items() if until <= now]:
            del self._deadline_by_task[task]
            self._expired.add(task)
            task.cancel()
        self._next_check = (
            loop.call_later(CHECK_SECONDS, self._cancel_overdue, loop) if self._deadline_by_task else None
        )
