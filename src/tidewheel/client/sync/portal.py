"""The way from blocking code into the app: one thread with an event loop of its own, behind ``.sync``.

Every blocking call is the async call, run on that loop with that loop's store (see ``connections``). The
thread is started by the first call, opens the app there, and closes it at ``app.sync.close()`` or when the
program ends. After a fork the child starts one of its own: threads do not survive a fork.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - its own exit handler has to be registered before ours
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, Protocol, Self, TypeVar

from tidewheel.errors import NotOpen, TidewheelError

logger = logging.getLogger(__name__)

Q = ParamSpec("Q")
T = TypeVar("T")

_INTERRUPTIBLE_WAIT_SECONDS: Final = 0.2
"""Waiting is done in pieces: a Ctrl-C in the instant before a wait begins does not end it, on any system."""
_CLEANUP_SECONDS: Final = 1.0
"""After an interrupt waiting is done in pieces, because the interrupt may have eaten the one release."""
_CLOSE_SECONDS: Final = 10.0
"""How long the end of the program waits for the store to finish what it accepted."""
_NO_LATE_THREADS: Final = {(3, 12, 0), (3, 12, 1), (3, 12, 2)}
"""Python versions that start no thread while the program ends (CPython issue 113964)."""


class AsyncResource(Protocol):
    """What the portal opens on its loop and closes again."""

    async def open(self) -> Any: ...

    async def close(self) -> None: ...


class Portal:
    """Runs coroutines of one app on a thread of its own and waits for them."""

    def __init__(self, app: AsyncResource) -> None:
        self._app = app
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._running: _LoopThread | None = None

    def run(self, function: Callable[Q, Coroutine[Any, Any, T]], *args: Q.args, **kwargs: Q.kwargs) -> T:
        """``await function(*args, **kwargs)``, blocking. Errors arrive as they were raised."""
        return self._start().run(function(*args, **kwargs))

    def submit(
        self, function: Callable[Q, Coroutine[Any, Any, T]], *args: Q.args, **kwargs: Q.kwargs
    ) -> None:
        """Have it done there without waiting, not even for the app to be opened.

        For hints: nobody learns whether it failed.
        """

        def run() -> None:
            try:
                self.run(function, *args, **kwargs)
            except Exception as error:
                logger.debug("a hint was not given: %s", error)

        threading.Thread(target=run, name="tidewheel-post", daemon=True).start()

    def open(self) -> None:
        """Start the thread and open the app there, if that has not happened yet."""
        self._start()

    def close(self) -> None:
        """Close the store behind ``.sync`` and end its thread. The next blocking call starts anew."""
        if self._pid != os.getpid():
            return  # the parent's thread is not ours to end
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            _portals.discard(self)
            running.stop(self._app.close)

    def _start(self) -> _LoopThread:
        if self._pid != os.getpid():
            # A forked child: the thread is gone, and the lock may have been held when the fork happened.
            self._pid, self._lock, self._running = os.getpid(), threading.Lock(), None
        running = self._running
        if running is not None:
            return running
        with self._lock:
            if self._running is None:
                started = _LoopThread()
                try:
                    started.run(self._app.open())
                except BaseException:
                    started.stop(None)
                    raise
                self._running = started
                _portals.add(self)
            return self._running


class _LoopThread:
    """The thread and its loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._serve, name="tidewheel-sync", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        answer: _ThreadResult[T] = _ThreadResult()
        tasks: list[asyncio.Task[None]] = []

        async def carry() -> None:
            try:
                answer.give(await coroutine, None)
            except BaseException as error:  # all of them belong to the caller, cancellation included
                answer.give(None, error)

        def start() -> None:
            task = self._loop.create_task(carry())
            task.add_done_callback(ended)
            tasks.append(task)

        def withdraw() -> None:
            for task in tasks:
                task.cancel()
            if not tasks:
                coroutine.close()

        def ended(_: asyncio.Task[None]) -> None:
            if not answer.done:  # cancelled before its first step, so that carry never ran
                coroutine.close()
                answer.give(None, asyncio.CancelledError())

        try:
            if threading.current_thread() is self._thread:
                raise TidewheelError("a blocking call on the thread that serves them would never return")
            # The callback runs in the caller's context variables, and the task it creates inherits them.
            self._schedule(start)
        except Exception:
            coroutine.close()
            raise
        except BaseException:  # Ctrl-C, before or after the work was handed over: only the loop can tell
            self._schedule(withdraw)
            raise
        try:
            answer.wait(_INTERRUPTIBLE_WAIT_SECONDS)
        except BaseException:  # Ctrl-C: stop the work too, and let it tidy up; a second Ctrl-C does not wait
            while not answer.done:
                # Again and again: in Python 3.11 wait_for may lose a cancellation.
                self._schedule(withdraw)
                answer.wait_at_most(_CLEANUP_SECONDS)
            raise
        try:
            return answer.take()
        except asyncio.CancelledError:
            raise NotOpen("the app was closed while this blocking call was running") from None

    def stop(self, close: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        try:
            if close is not None:
                self.run(close())
        finally:
            with self._lock:
                self._ended = True
                # What was scheduled before still starts, and _serve then cancels it: nobody is left waiting.
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CLOSE_SECONDS)

    def _schedule(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if self._ended:
                raise NotOpen("the app was closed while this blocking call began; call again to reopen it")
            self._loop.call_soon_threadsafe(callback)

    def _serve(self) -> None:
        # A runner cancels what is left, closes generators and executors, and closes the loop.
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.get_loop().run_forever()
        except RuntimeError:
            # The runner starts a thread that waits for the executor. If that fails, it still closes the loop.
            if sys.version_info[:3] not in _NO_LATE_THREADS or not self._loop.is_closed():
                raise


class _ThreadResult(Generic[T]):
    """One value or error, handed from the loop's thread to a caller who may be interrupted at any point.

    Futures and events of the standard library guard themselves with locks in Python code; a Ctrl-C between
    two of its lines leaves such a lock taken, and the loop's thread stands still at it. Here the only lock is
    one the loop's thread releases and never waits for.
    """

    def __init__(self) -> None:
        self.done: list[tuple[T | None, BaseException | None]] = []
        self._closed = threading.Lock()
        self._closed.acquire()

    def give(self, value: T | None, error: BaseException | None) -> None:
        self.done.append((value, error))
        self._closed.release()

    def wait(self, seconds: float) -> None:
        # What is given is looked at first: an interrupt may strike right after the lock was obtained.
        while not self.done:
            self._closed.acquire(timeout=seconds)

    def wait_at_most(self, seconds: float) -> None:
        """Like ``wait``, but not longer than this."""
        if not self.done:
            self._closed.acquire(timeout=seconds)

    def take(self) -> T:
        ((value, error),) = self.done
        if error is not None:
            raise error
        return value  # type: ignore[return-value]  # without an error it is what the coroutine returned


_portals: set[Portal] = set()
"""The portals that run; an app that used ``.sync`` lives until it is closed or the program ends."""


def _close_all() -> None:
    for portal in list(_portals):
        try:
            portal.close()
        except Exception:  # the other portals still have to close, and nobody is left to catch this
            logger.exception("a store behind .sync could not be closed")


# A store needs its threads to close, and ordinary exit handlers run when thread pools are already shut down.
# Handlers of the threading module run before, in reverse order: ours is registered after the pools' own.
getattr(threading, "_register_atexit", atexit.register)(_close_all)


class BlockingWrapper(Generic[T]):
    """A blocking class: the async object it wraps, and the portal that runs its calls."""

    def __init__(self, inner: T, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    @property
    def inner(self) -> T:
        """The same with calls that are awaited."""
        return self._inner

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"

    def __eq__(self, other: object) -> bool:
        return self._inner == other._inner if isinstance(other, BlockingWrapper) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._inner)


class BlockingAppBase(BlockingWrapper[T]):
    """The blocking app, which can also be opened and closed. It opens itself at the first call."""

    def open(self) -> Self:
        """Start the thread behind the blocking calls and open the store there."""
        self._portal.open()
        return self

    def close(self) -> None:
        """Close that store and end the thread. The next blocking call starts anew."""
        self._portal.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
