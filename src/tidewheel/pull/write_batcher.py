"""Batch writes of many callers: ends of pulled jobs, and jobs that servers enqueue.

Each caller waits until its write is durable. Calls that arrive during one write form the next batch, so 100
clients that end a job share a few commits. Callers that were answered together usually call again at once, so
``CommitWindow`` waits a moment for them. Otherwise the first of ten clients that delete jobs has a commit to
itself while the others wait, and the store's thread competes with the event loop for the interpreter. Ten
clients in step were served twice as fast as ten out of step.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from tidewheel.errors import StoreUnavailable, TidewheelError
from tidewheel.stores.bounds import MAX_BATCH

QUIET_SECONDS: Final = 0.001
"""Seconds. When nobody has called for so long, those who are missing do not come.
Event loops know no less."""
MAX_WINDOW_SECONDS: Final = 0.003
"""Seconds that anybody waits for others in any case."""


class CommitWindow:
    """Whose next call is still expected. A single caller is never waited for, and never waits."""

    def __init__(self) -> None:
        self._expected = 0
        self._complete: asyncio.Future[None] | None = None
        self._last_call_at = False  # somebody, since the last look
        self._ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def record_call(self) -> None:
        """Somebody wants something of the store."""
        if self._expected:
            self._last_call_at = True
            self._expected -= 1
            if not self._expected:
                self._go()

    def expect_callers(self, callers: int) -> None:
        """So many got what they wanted, and are expected to call again at once."""
        self._expected += callers

    async def wait_for_callers(self) -> None:
        """Until those who were answered have called again, or for a moment."""
        if not self._expected:
            return
        if self._complete is None:
            loop = asyncio.get_running_loop()
            self._complete = loop.create_future()
            self._last_call_at = False
            self._ends_at = loop.time() + MAX_WINDOW_SECONDS
            self._timer = loop.call_later(QUIET_SECONDS, self._look)
        await asyncio.shield(self._complete)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if self._last_call_at and loop.time() < self._ends_at:
            self._last_call_at = False
            self._timer = loop.call_later(QUIET_SECONDS, self._look)
        else:
            self._go()

    def _go(self) -> None:
        self._expected = 0
        if self._timer is not None:
            self._timer.cancel()  # it would end the next round before its time
        complete, self._complete = self._complete, None
        if complete is not None and not complete.done():
            complete.set_result(None)


A = TypeVar("A")
R = TypeVar("R")

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of bodies in one write. A statement of PostgreSQL cannot have a gigabyte."""


class _PendingWrite(NamedTuple, Generic[A, R]):
    argument: A
    answer: asyncio.Future[R]
    calls_again: bool  # its caller will call again at once
    size: int  # bytes


class WriteBatcher(Generic[A, R]):
    """Arguments on their way to one verb of the store. Lives on one event loop, next to that."""

    def __init__(self, write: Callable[[Sequence[A]], Awaitable[Sequence[R]]], window: CommitWindow) -> None:
        self._write_all = write
        self._commit_window = window
        self._waiting: deque[_PendingWrite[A, R]] = deque()
        self._writing: asyncio.Task[None] | None = None

    def add(self, argument: A, *, calls_again: bool, size: int = 0) -> asyncio.Future[R]:
        """Have it written with others; what came of it. The write goes on when nobody waits for it."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(_PendingWrite(argument, answer, calls_again, size))
        self._commit_window.record_call()
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="tidewheel-together")
        return answer

    async def wait_for_write(self) -> None:
        """When all that waits for the next write is written, well or badly."""
        if self._waiting:
            await asyncio.wait((self._waiting[-1].answer,))

    async def close(self) -> None:
        """Wait until everything that was handed in is written."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _write(self) -> None:
        try:
            while self._waiting:
                await self._commit_window.wait_for_callers()
                batch = self._next()
                await self._write_together(batch)
                self._commit_window.expect_callers(sum(call.calls_again for call in batch))
        finally:
            self._writing = None
            while self._waiting:  # only when this was cancelled: the event loop ends
                self._waiting.popleft().answer.cancel()

    def _next(self) -> list[_PendingWrite[A, R]]:
        batch = [self._waiting.popleft()]
        size = batch[0].size
        while self._waiting and len(batch) < MAX_BATCH:
            size += self._waiting[0].size
            if size > MAX_BATCH_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _write_together(self, batch: list[_PendingWrite[A, R]]) -> None:
        try:
            answers = await self._write_all([call.argument for call in batch])
        except asyncio.CancelledError:
            for call in batch:
                call.answer.cancel()
            raise
        except Exception as error:
            if (
                len(batch) > 1
                and isinstance(error, TidewheelError)
                and not isinstance(error, StoreUnavailable)
            ):
                # Something the store will not take: its neighbours must not suffer for it.
                for one in batch:
                    await self._write_together([one])
                return
            for call in batch:
                if not call.answer.done():
                    call.answer.set_exception(error)
        else:
            for call, answer in zip(batch, answers, strict=True):
                if not call.answer.done():
                    call.answer.set_result(answer)
