"""An event loop whose time is simulated and whose turns are given by somebody else.

It has what coroutines of the worker need, and nothing that reaches outside: no sockets, no threads (asyncio's
base class refuses those). One real thread steps any number of such loops, each of which stands for a thread
of some simulated process.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Timeline:
    """Simulated time, and what is to happen when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, int, SimulatedLoop | None, Any]] = []
        self._numbers = itertools.count()  # timers of one moment come in the order they were set

    def at(self, when: float, happens: Callable[[], None]) -> None:
        """Something that happens by itself, whatever the processes do: a message arrives, a fault strikes."""
        heapq.heappush(self._timers, (when, next(self._numbers), None, happens))

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        self.at(self.now + seconds, happens)

    def set_timer(self, loop: SimulatedLoop, timer: asyncio.TimerHandle) -> None:
        heapq.heappush(self._timers, (timer.when(), next(self._numbers), loop, timer))

    def move_on(self) -> bool:
        """Jump to the next timer, and let everything happen that is due then. False when nothing ever is."""
        timers = self._timers
        while timers:
            when, _, loop, what = timers[0]
            if loop is not None and (what.cancelled() or loop.is_closed()):
                heapq.heappop(timers)
                continue
            self.now = max(self.now, when)
            while timers and timers[0][0] <= self.now:
                _, _, loop, what = heapq.heappop(timers)
                if loop is None:
                    what()
                elif not what.cancelled() and not loop.is_closed():
                    loop.ready.append(what)
            return True
        return False


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Handles that are ready, in the order asyncio promises. ``step`` runs the first of them."""

    def __init__(
        self, name: str, timeline: Timeline, report: Callable[[str], None], owner: Any = None
    ) -> None:
        self.name = name
        self.owner = owner  # the process this loop is a thread of
        self.ready: deque[asyncio.Handle] = deque()
        self.frozen = False
        self.blocked_until = 0.0
        self._timeline = timeline
        self._report = report
        self._closed = self._buried = False
        self._tasks: list[asyncio.Task[Any]] = []  # held, or a dropped one would run its ``finally``
        self._sweep_at = 64

    # -- for the scheduler --------------------------------------------------------------------------------

    def step(self) -> None:
        """Run the first ready handle. The caller has made this loop the running one."""
        handle = self.ready.popleft()
        if not handle.cancelled():
            handle._run()

    def block(self, seconds: float) -> Coroutine[Any, Any, None]:
        """To be awaited by a handler that blocks its loop: nothing else runs here before it goes on."""
        self.blocked_until = self._timeline.now + seconds
        self._timeline.at(self.blocked_until, _nothing)  # so that there is such a moment
        return self._go_on_first()

    async def _go_on_first(self) -> None:
        await _Yield()  # behind whatever is ready; ``put_last_first`` takes the next step from there

    def stall(self, seconds: float) -> None:
        """The thread gets no processor for a while."""
        self.blocked_until = max(self.blocked_until, self._timeline.now + seconds)
        self._timeline.at(self.blocked_until, _nothing)

    def put_last_first(self) -> None:
        """A handler that blocks goes on before everything that waited for the loop meanwhile."""
        self.ready.rotate(1)

    def drop(self) -> None:
        """Killed: nothing here ever runs again. What was at work is held, to be kept from its end."""
        self._closed = True
        self.ready.clear()

    def bury(self) -> None:
        """End the tasks of a loop that was dropped, whatever they want to do about it. Nothing else runs."""
        self._buried = True
        asyncio._set_running_loop(self)
        try:
            while self._tasks:
                _end(self._tasks.pop())
        finally:
            asyncio._set_running_loop(None)

    # -- for asyncio ----------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._timeline.now

    def call_soon(  # type: ignore[override] # typed by star arguments there
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self._closed and not self._buried:
            raise RuntimeError("Event loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        if not self._buried:
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._timeline.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if self._closed and not self._buried:
            raise RuntimeError("Event loop is closed")
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timeline.set_timer(self, timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Part of asyncio's private protocol; ``Timeline`` skips cancelled timers when they are due."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=str(name or "task"), context=context)
        self._tasks.append(task)
        if len(self._tasks) > self._sweep_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._sweep_at = 2 * len(self._tasks) + 64
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._closed:
            self._report(f"{self.name}: {context.get('message')}: {context.get('exception')!r}")

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True


class _Dead(BaseException):
    """Thrown into coroutines of killed processes. Neither an ``Exception`` nor a cancellation."""


def _end(task: asyncio.Task[Any]) -> None:
    if task.done():
        return
    task._log_destroy_pending = False  # type: ignore[attr-defined] # nobody is to be told
    coroutine: Any = task.get_coro()
    for _ in range(50):  # one that awaits in its ``finally`` has to be told again
        try:
            # Not close(): that would leave inner coroutines that wait in a ``finally`` to the collector.
            coroutine.throw(_Dead())
        except BaseException:  # whatever it says: it is dead
            return


class _Yield:
    """One bare step, as of ``asyncio.sleep(0)``."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def _nothing() -> None:
    """A moment at which a loop may run again."""
