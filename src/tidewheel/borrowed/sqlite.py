"""Connections to SQLite: those of the standard library, and aiosqlite's."""

from __future__ import annotations

from typing import Any

from tidewheel.borrowed.connection import AsyncBorrowed, Borrowed
from tidewheel.stores.joining import Visit


class Sqlite3(Borrowed):
    """A ``sqlite3.Connection``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return "sqlite"

    def visit(self, visit: Visit) -> Any:
        return visit.work(self._connection)


class Aiosqlite(AsyncBorrowed):
    """An ``aiosqlite.Connection``: a thread that has one of the standard library's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return "sqlite"

    async def visit(self, visit: Visit) -> Any:
        return await on_its_thread(self._connection, visit)


async def on_its_thread(connection: Any, visit: Visit) -> Any:
    """There is no public way to have more than one statement done at a time."""
    return await connection._execute(visit.work, connection._conn)
