"""A few connections, each lent to one caller at a time.

The driver has a pool of its own, but it makes a task of the event loop for every connection given back, which
costs more than most of our statements do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg

ACQUIRE_TIMEOUT_SECONDS: Final = 10.0
"""How long to wait for a connection when all are lent."""
MAX_IDLE_SECONDS: Final = 60.0
"""A connection nobody has needed for so long is closed: the server keeps a process for each."""


class ConnectionPool:
    """Made when they are needed, up to ``most``; the one used last is lent first, so that others can rest."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], most: int) -> None:
        self._connect = connect
        self._max_size = most
        self._number = 0  # lent, resting or being made
        self._lent: set[Any] = set()
        self._resting: list[tuple[Any, float]] = []  # with the time since when, by the loop's clock
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._all_back = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    async def acquire(self) -> Any:
        """One to give back. Raises what connecting raises, or ``TimeoutError`` when none comes free."""
        deadline = asyncio.get_running_loop().time() + ACQUIRE_TIMEOUT_SECONDS
        while not self._closing:
            while self._resting:
                connection, _ = self._resting.pop()
                if not connection.is_closed():
                    self._lent.add(connection)
                    return connection
                self._number -= 1
            if self._number < self._max_size:
                return await self._make()
            if (connection := await self._wait_for_one(deadline)) is not None:
                return connection
        raise asyncpg.InterfaceError("the connections are being closed")

    def release(self, connection: Any) -> None:
        if self._closing:
            connection.terminate()
        if connection.is_closed():
            self._lent.discard(connection)
            self._number -= 1
            self._hand_to_waiter(None)  # whoever waits may make another one
        elif not self._hand_to_waiter(connection):
            self._lent.discard(connection)
            loop = asyncio.get_running_loop()
            self._resting.append((connection, loop.time()))
            if self._timer is None:
                self._timer = loop.call_later(MAX_IDLE_SECONDS, self._close_rested)
        if not self._lent:
            self._all_back.set()

    def close_resting_since(self, since: float) -> None:
        """One of them has been silent since then. Close those that have rested for longer.

        When the other end has vanished they are all dead, and each would be found out by another long wait.
        """
        doubted = [connection for connection, rested in self._resting if rested <= since]
        self._resting = [(connection, rested) for connection, rested in self._resting if rested > since]
        for connection in doubted:
            connection.terminate()
            self._number -= 1

    async def close(self, seconds: float) -> None:
        """Wait so long for those that are lent, then close all, politely where there is time for it."""
        self._closing = True
        while self._hand_to_waiter(None):
            pass
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._lent and loop.time() < deadline:
            self._all_back.clear()
            await _until(self._all_back.wait(), deadline)
        for connection in self._lent:
            connection.terminate()
        resting, self._resting = self._resting, []
        for connection, _ in resting:
            if loop.time() < deadline:
                await _until(connection.close(), deadline)
            connection.terminate()

    async def _make(self) -> Any:
        self._number += 1
        try:
            connection = await self._connect()
        except BaseException:  # also when cancelled: somebody else may make one instead
            self._number -= 1
            self._hand_to_waiter(None)
            raise
        self._lent.add(connection)
        return connection

    async def _wait_for_one(self, deadline: float) -> Any:
        """One that was given back to us, or None: look again."""
        turn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                return await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # it was our turn, but we are gone
                if (connection := turn.result()) is None:
                    self._hand_to_waiter(None)
                else:
                    self.release(connection)
            raise

    def _hand_to_waiter(self, connection: Any) -> bool:
        """To whoever has waited longest. Not through the resting ones: others might be quicker."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return True
        return False

    def _close_rested(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        rested = loop.time() - MAX_IDLE_SECONDS
        while self._resting and self._resting[0][1] <= rested:
            connection, _ = self._resting.pop(0)
            connection.terminate()
            self._number -= 1
        if self._resting:
            wait = max(0.0, self._resting[0][1] - rested)
            self._timer = loop.call_later(wait, self._close_rested)


async def _until(waiting: Awaitable[Any], deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await waiting
    except (TimeoutError, OSError):
        return  # closed the hard way by the caller
