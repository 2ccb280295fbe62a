"""Connections that outlive the store that made them, for the next store on the same event loop.

A server process that has just started has planned nothing yet: the first call of a verb takes ten times as
long as the second, and most tests make each call once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from tidewheel.stores.postgres import PostgresStore
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.protocol import Store

MOST_RESTING: Final = 32
"""Kept at once; each is a process of the server's."""
RESET_SECONDS: Final = 5.0


class WarmConnections:
    """Gives a store's connections, once closed, to the next store that wants the same."""

    def __init__(self) -> None:
        self._resting: list[tuple[tuple[object, ...], Any]] = []

    def lend_to(self, store: Store) -> None:
        """Stores that have no connections are left as they are."""
        if isinstance(store, PostgresStore):
            database = store._database
            database.__dict__["connect"] = lambda: self._connect(database)

    async def _connect(self, database: Database) -> Any:
        """As the store would have made it, from one that rests where there is one."""
        arguments = database._arguments()
        kind = (database.location.dsn, database.application_name, arguments["statement_cache_size"])
        for place in reversed(range(len(self._resting))):
            if self._resting[place][0] == kind:
                _, connection = self._resting.pop(place)
                if not connection.is_closed():
                    lent = _Lent(self, kind, connection)
                    try:
                        await database._set_up(connection)
                    except BaseException:  # also when cancelled: nobody else knows of this connection
                        lent.terminate()
                        raise
                    return lent
        return _Lent(self, kind, await Database.connect(database))

    async def take_back(self, kind: tuple[object, ...], connection: Any) -> None:
        """Keep it, without anything that its session knew, or end it."""
        if connection.is_in_transaction() or len(self._resting) >= MOST_RESTING:
            connection.terminate()
            return
        try:
            await connection.reset(timeout=RESET_SECONDS)
            self._resting.append((kind, connection))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            connection.terminate()  # a test has broken it: nobody else shall have it
        except BaseException:  # a store that closes waits for so long and no longer, and lets go of it
            connection.terminate()
            raise

    def close(self) -> None:
        while self._resting:
            self._resting.pop()[1].terminate()


class _Lent:
    """A connection that is closed for whoever closes it, and goes on for others."""

    def __init__(self, home: WarmConnections, kind: tuple[object, ...], connection: Any) -> None:
        self._home = home
        self._kind = kind
        self._connection = connection
        self._given_back = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def is_closed(self) -> bool:
        return self._given_back or bool(self._connection.is_closed())

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ARG002 - the driver's
        if not self.is_closed():
            self._given_back = True
            await self._home.take_back(self._kind, self._connection)

    def terminate(self) -> None:
        if not self.is_closed():
            self._given_back = True
            self._connection.terminate()


class KeptRunner:
    """An event loop for many examples, and connections that each of them leaves to the next."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.warm = WarmConnections()

    def close(self) -> None:
        self.runner.run(self._close_warm())
        self.runner.close()

    async def _close_warm(self) -> None:
        self.warm.close()


@asynccontextmanager
async def warm_connections() -> AsyncIterator[WarmConnections]:
    """For all stores of one event loop, until the end of the block."""
    warm = WarmConnections()
    try:
        yield warm
    finally:
        warm.close()
