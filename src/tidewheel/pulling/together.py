"""Many callers, one write: how jobs that are pulled by hand end, and how servers put new ones.

Each caller waits for the write to be durable. What comes in while one batch is being written is the next one,
so a hundred clients who end a job each share a handful of commits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from tidewheel.errors import StoreUnavailable, TidewheelError
from tidewheel.pulling.rounds import Rounds
from tidewheel.stores.protocol import MAX_BATCH

A = TypeVar("A")
R = TypeVar("R")

MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Of bodies in one write. A statement of PostgreSQL cannot have a gigabyte."""


class _Call(NamedTuple, Generic[A, R]):
    argument: A
    answer: asyncio.Future[R]
    quick: bool  # its caller will call again at once
    size: int  # bytes


class Together(Generic[A, R]):
    """Arguments on their way to one verb of the store. Lives on one event loop, next to that."""

    def __init__(self, write: Callable[[Sequence[A]], Awaitable[Sequence[R]]], rounds: Rounds) -> None:
        self._write_all = write
        self._rounds = rounds
        self._waiting: deque[_Call[A, R]] = deque()
        self._writing: asyncio.Task[None] | None = None

    def add(self, argument: A, *, quick: bool, size: int = 0) -> asyncio.Future[R]:
        """Have it written with others; what came of it. The write goes on when nobody waits for it."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(argument, answer, quick, size))
        self._rounds.called()
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="tidewheel-together")
        return answer

    async def written(self) -> None:
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
                await self._rounds.gather()
                batch = self._next()
                await self._write_together(batch)
                self._rounds.answered(sum(call.quick for call in batch))
        finally:
            self._writing = None
            while self._waiting:  # only when this was cancelled: the event loop ends
                self._waiting.popleft().answer.cancel()

    def _next(self) -> list[_Call[A, R]]:
        batch = [self._waiting.popleft()]
        size = batch[0].size
        while self._waiting and len(batch) < MAX_BATCH:
            size += self._waiting[0].size
            if size > MAX_BATCH_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _write_together(self, batch: list[_Call[A, R]]) -> None:
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
