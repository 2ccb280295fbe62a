"""Call handlers: plain functions on threads, coroutines in a context of their own.

Threads are daemon threads, unlike those of ``concurrent.futures``: a handler that never returns must not keep
the process alive. A thread is started when none is idle, up to the worker's concurrency. A coroutine runs
inside the slot that awaits it, at half the price of a task per job. Its context is dropped with it, because
the next job in the slot may belong to another tenant. A child that a handler forked ends where the handler
returns: it shares the worker's epoll object and sockets, so waiting on them or closing them would deafen the
worker, even to SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import queue
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, NoReturn

_log = logging.getLogger("tidewheel.worker")


class ForkCounter:
    """How often this process's ancestors forked since this was loaded; it changes only by being a child."""

    count = 0


def exit_forked_child(error: BaseException | None) -> NoReturn:
    """For a process whose ``ForkCounter.count`` is another after a handler's code ran than before."""
    code = 1
    if isinstance(error, SystemExit):  # it meant to end, and says how
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    else:
        _log.error("process %d was forked by a handler and came back to its worker; it ends", os.getpid())
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # full, closed or absent: there is nobody to tell
            continue
    os._exit(code)


def _count() -> None:
    ForkCounter.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)


class HandlerThreads:
    """Runs calls on threads and answers on the event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[
            tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]] | None
        ]
        self._calls = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._made = 0

    def run(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Start ``call`` on a thread, with a copy of the caller's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()

        def answer(value: Any, error: BaseException | None) -> None:
            try:
                loop.call_soon_threadsafe(_set, future, value, error)
            except RuntimeError:
                if not loop.is_closed():  # closed: the worker is gone, nobody waits for this answer
                    raise

        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._made += 1
                threading.Thread(
                    target=self._work, name=f"tidewheel-{self._name}-{self._made}", daemon=True
                ).start()
        self._calls.put((lambda: context.run(call), answer))
        return future

    def close(self) -> None:
        """Let the idle threads end; busy ones end after their call."""
        with self._lock:
            for _ in range(self._made):
                self._calls.put(None)

    def _work(self) -> None:
        while True:
            item = self._calls.get()
            if item is None:
                return
            call, answer = item
            value, error = None, None
            forks = ForkCounter.count
            try:
                value = call()
            except BaseException as raised:
                error = raised
            if ForkCounter.count != forks:
                exit_forked_child(error)
            # Idle before answering: the loop may hand out the next call as soon as it has the answer.
            with self._lock:
                self._idle += 1
            answer(value, error)
            del item, call, answer, value, error  # keep nothing of this call alive while waiting


def _set(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):
        # A future refuses StopIteration, because it would end the coroutine that awaits it.
        future.set_exception(RuntimeError(f"the handler raised {error!r}"))
    else:
        future.set_exception(error)


ABANDONED_MESSAGE: Final = "given up by its worker"
"""The message of a cancellation that is not offered to the handler any more: it has ignored others."""


@types.coroutine
def run_in_context(
    context: contextvars.Context, coroutine: Coroutine[Any, Any, Any]
) -> Generator[Any, Any, Any]:
    """Await ``coroutine``, with every step of it run in ``context``."""
    step: Callable[[Any], Any] = coroutine.send
    value: Any = None
    forks = ForkCounter.count
    while True:
        try:
            waits_for = context.run(step, value)
        except StopIteration as done:
            return done.value
        finally:
            if ForkCounter.count != forks:
                exit_forked_child(sys.exception())
        try:
            value = yield waits_for
            step = coroutine.send
        except BaseException as error:  # a cancellation, mostly: it belongs to the handler
            if isinstance(error, asyncio.CancelledError) and ABANDONED_MESSAGE in error.args:
                _close(context, coroutine)
                raise
            step, value = coroutine.throw, error


def _close(context: contextvars.Context, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Let it run what it has to run at its end, as far as that needs no waiting; it is never resumed."""
    try:
        context.run(coroutine.close)
    except BaseException as error:  # it waits even now, or its clean-up failed
        _log.warning("a handler that was given up did not end well: %r", error)


async def as_coroutine(started: Awaitable[Any]) -> Any:
    """What else can be awaited (a compiled handler's coroutine, a future), so that its steps, too, are run in
    the handler's context: in the slot's own it would act for all tenants.
    """
    return await started
