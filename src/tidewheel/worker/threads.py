"""Threads for handlers that are plain functions.

Daemon threads, unlike those of ``concurrent.futures``: a handler that never returns must not keep the process
from ending. A thread is made when no idle one is left, up to the worker's concurrency.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from tidewheel.worker.forks import Forks, end_child


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
            forks = Forks.count
            try:
                value = call()
            except BaseException as raised:
                error = raised
            if Forks.count != forks:
                end_child(error)
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
