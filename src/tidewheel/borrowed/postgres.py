"""Connections to PostgreSQL: asyncpg's, psycopg's, psycopg2's and pg8000's.

One text goes out and one comes back. Rows are made plain tuples where a driver lets its user choose.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from tidewheel.borrowed.connection import AsyncBorrowed, Borrowed
from tidewheel.stores.joining import Ask


class _Blocking(Borrowed):
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return "postgresql"


class _Awaiting(AsyncBorrowed):
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return "postgresql"


class Asyncpg(_Awaiting):
    """An ``asyncpg.Connection``, or what its pool gives out."""

    async def ask(self, question: Ask) -> Any:
        return await self._connection.fetchval(question.spoken("$1"), question.text)


class Psycopg(_Blocking):
    """A ``psycopg.Connection``."""

    def ask(self, question: Ask) -> Any:
        psycopg = sys.modules["psycopg"]
        with psycopg.Cursor(self._connection, row_factory=sys.modules["psycopg.rows"].tuple_row) as cursor:
            cursor.execute(question.spoken("%s"), (question.text,))
            return first(cursor.fetchone())


class PsycopgAsync(_Awaiting):
    """A ``psycopg.AsyncConnection``."""

    async def ask(self, question: Ask) -> Any:
        psycopg = sys.modules["psycopg"]
        plain = sys.modules["psycopg.rows"].tuple_row
        async with psycopg.AsyncCursor(self._connection, row_factory=plain) as cursor:
            await cursor.execute(question.spoken("%s"), (question.text,))
            return first(await cursor.fetchone())


class Psycopg2(_Blocking):
    """A ``psycopg2`` connection."""

    def __init__(self, connection: Any) -> None:
        if connection.async_:
            # It would take the statement, and raise where the answer is asked for: an error, and a job.
            raise TypeError(
                "using() was given an asynchronous psycopg2 connection, whose answers have to be polled for; "
                "use a plain one, or psycopg's AsyncConnection"
            )
        super().__init__(connection)

    def ask(self, question: Ask) -> Any:
        plain = sys.modules["psycopg2.extensions"].cursor
        with self._connection.cursor(cursor_factory=plain) as cursor:
            cursor.execute(question.spoken("%s"), (question.text,))
            return first(cursor.fetchone())


_PLACEHOLDERS: Final = {
    "format": "%s",
    "pyformat": "%(said)s",
    "qmark": "?",
    "numeric": ":1",
    "named": ":said",
}


class Pg8000(_Blocking):
    """A ``pg8000`` connection with cursors."""

    def ask(self, question: Ask) -> Any:
        cursor = self._connection.cursor()
        # Its users choose how they write parameters: for all cursors of pg8000.dbapi, or for one of pg8000's.
        style = getattr(cursor, "paramstyle", None) or sys.modules["pg8000.dbapi"].paramstyle
        said = {"said": question.text} if style in ("named", "pyformat") else (question.text,)
        try:
            cursor.execute(question.spoken(_PLACEHOLDERS[style]), said)
            return first(cursor.fetchone())
        finally:
            cursor.close()


class Pg8000Native(_Blocking):
    """A ``pg8000.native`` connection."""

    def ask(self, question: Ask) -> Any:
        rows = self._connection.run(question.spoken(":said"), said=question.text)
        return first(rows[0]) if rows else None


def first(row: Any) -> Any:
    """The one value of a row; None without a row."""
    return None if row is None else row[0]
