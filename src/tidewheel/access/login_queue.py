"""A bounded, fair queue in front of the password hash.

A hash takes 64 MiB and a tenth of a second on purpose, two at a time. Without a bound, 1,500 logins from 300
addresses would make everyone wait for minutes. Clients that have logged in before are served first. All
others share a short queue by network, in turn; when it is full, the network with the most logins in it gives
way, or the new login is refused.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tidewheel.access.passwords import AT_ONCE
from tidewheel.errors import TooManyAttempts

MAX_WAITING: Final = 32
"""Max logins that wait: of unknown clients, and as many of known ones."""
RETRY_SECONDS: Final = 5.0
"""When a refused client should come back."""

_Queue = deque["asyncio.Future[None]"]


class LoginQueue:
    """Logins that wait for their turn. For one event loop."""

    def __init__(self) -> None:
        self._running = 0
        self._known: _Queue = deque()
        self._others: OrderedDict[str, _Queue] = OrderedDict()  # by network, the next one first

    @asynccontextmanager
    async def turn(self, network: str, *, known: bool) -> AsyncIterator[None]:
        """Wait for a turn and hold it. ``TooManyAttempts`` if there is no room to wait."""
        if self._running < AT_ONCE:
            self._running += 1
        else:
            await self._wait(network, known=known)
        try:
            yield
        finally:
            self._pass_on()

    @property
    def waiting(self) -> int:
        return len(self._known) + sum(map(len, self._others.values()))

    async def _wait(self, network: str, *, known: bool) -> None:
        queue = self._known if known else self._others.get(network, deque())
        if known:
            if len(queue) >= MAX_WAITING:
                raise TooManyAttempts(RETRY_SECONDS)
        else:
            self._make_room(len(queue))
            queue = self._others.setdefault(network, queue)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # it had the turn already
            elif turn in queue:
                queue.remove(turn)
                if not known and not queue:
                    del self._others[network]
            raise

    def _make_room(self, own: int) -> None:
        """Refuse the newest login of the network with the most, if that leaves it more than the new one's."""
        if sum(map(len, self._others.values())) < MAX_WAITING:
            return
        longest = max(self._others.values(), key=len)
        if len(longest) <= own + 1:
            raise TooManyAttempts(RETRY_SECONDS)
        refused = longest.pop()
        if not refused.done():  # else it is being cancelled
            refused.set_exception(TooManyAttempts(RETRY_SECONDS))

    def _pass_on(self) -> None:
        """Give the turn to the next that waits."""
        turn = self._next()
        while turn is not None and turn.done():  # it is being cancelled
            turn = self._next()
        if turn is None:
            self._running -= 1
        else:
            turn.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        if self._known:
            return self._known.popleft()
        if not self._others:
            return None
        network, queue = self._others.popitem(last=False)
        turn = queue.popleft()
        if queue:
            self._others[network] = queue  # behind the other networks
        return turn
