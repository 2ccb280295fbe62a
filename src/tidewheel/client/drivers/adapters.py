"""Adapters for the caller's own connections: SQLite, PostgreSQL, SQLAlchemy and Django.

SQLite: ``sqlite3`` and aiosqlite. PostgreSQL: asyncpg, psycopg, psycopg2 and pg8000; one text is sent and one
received, and rows are made plain tuples where a driver lets its user choose their type.
SQLAlchemy and SQLModel: connections and sessions, blocking and async. They go through SQLAlchemy where
possible: it has to know that a transaction has begun, or its commit would do nothing.
Django: ``django.db.connection``, or one of ``connections``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Final

from tidewheel.client.drivers.base import AsyncBorrowed, Borrowed
from tidewheel.stores.external_transaction import Ask, Visit


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


_NOTHING = "SELECT 1"
"""A statement like any other, with which SQLAlchemy begins its transaction."""


class SqlalchemyConnection(Borrowed):
    """A ``SqlalchemyConnection``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return str(self._connection.dialect.name)

    def ask(self, question: Ask) -> Any:
        return self._connection.execute(*_asked(question)).scalar()

    def visit(self, visit: Visit) -> Any:
        return _visit(self._connection, visit)


class Session(Borrowed):
    """A ``Session``, or a ``scoped_session``; the connection of its default engine."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @property
    def dialect(self) -> str:
        return str(self._session.get_bind().dialect.name)

    def ask(self, question: Ask) -> Any:
        return self._session.connection().execute(*_asked(question)).scalar()

    def visit(self, visit: Visit) -> Any:
        return _visit(self._session.connection(), visit)


class AsyncConnection(AsyncBorrowed):
    """An ``AsyncConnection``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return str(self._connection.dialect.name)

    async def ask(self, question: Ask) -> Any:
        return (await self._connection.execute(*_asked(question))).scalar()

    async def visit(self, visit: Visit) -> Any:
        return await _visit_async(self._connection, visit)


class AsyncSession(AsyncBorrowed):
    """An ``AsyncSession``, or an ``async_scoped_session``."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @property
    def dialect(self) -> str:
        return str(self._session.get_bind().dialect.name)

    async def ask(self, question: Ask) -> Any:
        connection = await self._session.connection()  # SQLModel wants no execute of its sessions
        return (await connection.execute(*_asked(question))).scalar()

    async def visit(self, visit: Visit) -> Any:
        return await _visit_async(await self._session.connection(), visit)


def _visit(connection: Any, visit: Visit) -> Any:
    connection.exec_driver_sql(_NOTHING)
    driver = connection.connection.driver_connection
    with _its_errors(connection.dialect):
        if hasattr(driver, "_execute"):  # aiosqlite's, inside of run_sync
            return sys.modules["sqlalchemy.util"].await_only(on_its_thread(driver, visit))
        return visit.work(driver)


async def _visit_async(connection: Any, visit: Visit) -> Any:
    await connection.exec_driver_sql(_NOTHING)
    driver = (await connection.get_raw_connection()).driver_connection
    with _its_errors(connection.dialect):
        return await on_its_thread(driver, visit)


@contextlib.contextmanager
def _its_errors(dialect: Any) -> Iterator[None]:
    """SQLAlchemy's errors, as of any statement: nobody who uses it looks for the driver's."""
    errors = dialect.dbapi.Error
    try:
        yield
    except errors as error:
        made = sys.modules["sqlalchemy.exc"].DBAPIError.instance(None, None, error, errors, dialect=dialect)
        raise made from error


def _asked(question: Ask) -> tuple[Any, dict[str, str]]:
    return sys.modules["sqlalchemy"].text(question.spoken(":tidewheel_text")), {
        "tidewheel_text": question.text
    }


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


class DjangoConnection(Borrowed):
    """In ``atomic()`` part of its transaction; in autocommit, which is Django's default, at once."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return str(self._connection.vendor)

    def ask(self, question: Ask) -> Any:
        with self._connection.cursor() as cursor:
            cursor.execute(question.spoken("%s"), [question.text])
            return first(cursor.fetchone())

    def visit(self, visit: Visit) -> Any:
        connection = self._connection
        connection.ensure_connection()
        connection.validate_thread_sharing()
        connection.validate_no_broken_transaction()
        with connection.wrap_database_errors:
            return visit.work(connection.connection)
