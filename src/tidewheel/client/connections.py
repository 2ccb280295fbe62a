"""Which opened store a piece of code uses: the one of the event loop it runs on.

A store's futures, locks and connections belong to the event loop that opened them. The app therefore keeps
one *recipe* (a store that is never opened) and gives every event loop a sibling of its own: the user's loop
gets one in ``async with app``, the thread behind ``.sync`` gets one at the first blocking call. Code asks for
"the store" and gets that of the running loop, so nothing above has to know on which side it runs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, cast

from tidewheel.client.results import ResultWaiter
from tidewheel.client.sync.portal import Portal
from tidewheel.core.clock import Clock
from tidewheel.core.urls import is_http_url
from tidewheel.errors import NotOpen
from tidewheel.settings import Settings
from tidewheel.stores import ExternalTransaction, Store, StoreLimits, create_external_transaction
from tidewheel.stores.external_transaction import UncommittedEnqueue

_MAX_PENDING_NOTIFICATIONS: Final = 1000
"""Transactions to be told of that are kept while a store is being opened; whoever polls finds the rest."""
_REOPEN_SECONDS: Final = 5.0


class LoopService(Protocol):
    """Something that runs beside a store on its event loop, and is closed before the store."""

    async def close(self) -> None: ...


S = TypeVar("S", bound=LoopService)


@dataclass(slots=True)
class LoopConnection:
    """One event loop's opened store."""

    store: Store
    results: ResultWaiter
    users: int = 0  # nested ``async with app`` on one loop share it; the last one closes it
    opened: bool = False
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    local_results: ResultWaiter | None = None  # for jobs of the lane, once somebody waits for one
    services: dict[str, LoopService] = field(default_factory=dict)  # in the order in which they were made
    pid: int = field(default_factory=os.getpid)  # a forked child inherits what its parent had open

    def waiter(self, store: Store, poll_interval: float) -> ResultWaiter:
        """Who waits here for jobs of this store: the connection's own, or the lane's."""
        if store is self.store:
            return self.results
        if self.local_results is None or self.local_results.store is not store:
            self.local_results = ResultWaiter(store, poll_interval)
        return self.local_results

    def service(self, name: str, make: Callable[[Store], S]) -> S:
        """The service of this name. The first caller makes it, and it is closed with the store."""
        found = self.services.get(name)
        if found is None:
            found = self.services[name] = make(self.store)
        return cast("S", found)


class LoopConnections:
    """The opened stores of one app, by event loop."""

    def __init__(
        self,
        recipe: Store,
        settings: Settings,
        limits: StoreLimits,
        clock: Clock,
        on_open: Callable[[Store], LoopService | None],
    ) -> None:
        """``on_open`` is called with every store that was opened, and may return a service for it."""
        self.settings = settings
        self.clock = clock
        self._template_store = recipe
        self._limits = limits
        self._on_open = on_open
        self._external_transaction: ExternalTransaction | None = (
            None  # once somebody has a transaction of their own
        )
        self._pending_notifications: deque[UncommittedEnqueue] = deque()
        self._open_again_at = 0.0
        self._by_loop: dict[asyncio.AbstractEventLoop, LoopConnection] = {}

    async def open(self) -> None:
        """Open this loop's store, or join those who already have."""
        self._forget_dead_loops()
        loop = asyncio.get_running_loop()
        connection = self._by_loop.get(loop)
        if connection is None:
            store = self._template_store.sibling()
            connection = LoopConnection(store, ResultWaiter(store, self.settings.poll_interval))
            self._by_loop[loop] = connection
        connection.users += 1
        try:
            async with connection.opening:
                if not connection.opened:
                    await connection.store.open()
                    if is_http_url(connection.store.url):
                        pass  # a schema is the business of the server, and it would not start on a wrong one
                    elif self.settings.migrate:
                        await connection.store.migrate()
                    else:  # whoever lets others migrate must not work on what it does not understand, either
                        await connection.store.pending_migrations()
                    connection.opened = True
                    service = self._on_open(connection.store)
                    if service is not None:
                        connection.services["on_open"] = service
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Leave; the last to leave closes the store. Harmless when nothing is open."""
        loop = asyncio.get_running_loop()
        connection = self._by_loop.get(loop)
        if connection is None:
            return
        connection.users -= 1
        if connection.users == 0:
            del self._by_loop[loop]
            for service in reversed(list(connection.services.values())):
                await service.close()
            await connection.results.close()
            if connection.local_results is not None:
                await connection.local_results.close()
            await connection.store.close()

    def count_users(self, excluding: asyncio.AbstractEventLoop) -> int:
        """How many in this process have it open, those on one event loop left out."""
        self._forget_dead_loops()
        return sum(
            connection.users
            for loop, connection in list(self._by_loop.items())
            if loop is not excluding and connection.pid == os.getpid()
        )

    def forget_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """A loop that is left to itself, because something blocks it, has nothing open any more."""
        self._by_loop.pop(loop, None)

    def is_open_here(self) -> bool:
        """Whether somebody on the running loop has it open."""
        return asyncio.get_running_loop() in self._by_loop

    def external_transaction(self, url: str) -> ExternalTransaction:
        """How jobs get into transactions of others. It needs nothing that is open."""
        if self._external_transaction is None:
            self._external_transaction = create_external_transaction(
                url, clock=self.clock, limits=self._limits
            )
        return self._external_transaction

    def notify_on_commit(self, uncommitted: UncommittedEnqueue, portal: Portal) -> None:
        """Have those who wait told once this transaction has committed, by any store of this process.

        From any thread. Without an open store it is kept, and one is opened behind the portal meanwhile.
        """
        for loop, connection in list(self._by_loop.items()):
            if connection.opened and connection.pid == os.getpid() and not loop.is_closed():
                connection.store.notify_on_commit(uncommitted)
                return
        if len(self._pending_notifications) < _MAX_PENDING_NOTIFICATIONS:
            self._pending_notifications.append(uncommitted)
        now = time.monotonic()
        if now >= self._open_again_at:  # where that failed, it is not tried with every job
            self._open_again_at = now + _REOPEN_SECONDS
            portal.submit(self._send_pending_notifications)

    async def _send_pending_notifications(self) -> None:
        store = self.current().store
        while self._pending_notifications:
            store.notify_on_commit(self._pending_notifications.popleft())

    def current(self) -> LoopConnection:
        """The running loop's connection; outside of any loop the only one there is."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            if len(self._by_loop) == 1:
                return next(iter(self._by_loop.values()))
            raise NotOpen("the app is not open; use it inside `async with app`, or through .sync") from None
        connection = self._by_loop.get(loop)
        if connection is None or not connection.opened:
            elsewhere = " (it is open on another one)" if self._by_loop else ""
            raise NotOpen(
                f"the app is not open on this event loop{elsewhere}; use it inside `async with app`, "
                "or through .sync"
            )
        return connection

    def _forget_dead_loops(self) -> None:
        # A loop that ended without closing the app (a test that failed, say) must not be kept alive by us.
        for loop in [loop for loop in list(self._by_loop) if loop.is_closed()]:
            self._by_loop.pop(loop, None)
