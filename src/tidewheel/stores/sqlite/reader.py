"""Reads on threads of their own, so that neither a long search nor a busy writer holds the others up."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidewheel.errors import StoreError
from tidewheel.stores.sqlite.connection import UNREADABLE, connect, translate
from tidewheel.stores.sqlite.home import Home
from tidewheel.stores.sqlite.location import Location
from tidewheel.stores.sqlite.presence import Presence

R = TypeVar("R")

THREADS = 4


class Reader:
    """A few threads, each with a read-only connection opened at its first use."""

    def __init__(self, location: Location, presence: Presence) -> None:
        self._location = location
        self._presence = presence
        self._home = Home()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tidewheel-sqlite-reader")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False

    async def run(self, read: Callable[[sqlite3.Connection], R]) -> R:
        """``read`` in one consistent snapshot."""
        self._home.check()
        if self._closed:
            raise StoreError("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, read)

    def close(self) -> None:
        """Blocks until running reads have ended."""
        if self._closed:
            return
        self._closed = True
        if self._home.left:
            return
        self._threads.shutdown(wait=True)
        for connection in self._connections:
            connection.close()

    def _read(self, read: Callable[[sqlite3.Connection], R]) -> R:
        try:
            # Also before connecting: another file under this name has nothing to do with our log.
            self._presence.check()
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                # A read transaction left open would keep the log from being reset.
                if connection.in_transaction:
                    connection.execute("COMMIT")
        except (sqlite3.Error, *UNREADABLE) as error:
            raise translate(error, self._location) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = connect(self._location, read_only=True)
            self._local.connection = connection
            with self._lock:
                self._connections.append(connection)
        return connection
