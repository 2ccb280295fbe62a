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

from tidewheel.client.drivers.base import AsyncExternalConnection, ExternalConnection
from tidewheel.stores.external_transaction import PgStatement, SqliteCall


class Sqlite3Connection(ExternalConnection):
    """A ``sqlite3.Connection``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return "sqlite"

    def call_sqlite(self, call: SqliteCall) -> Any:
        return call.work(self._connection)


class AiosqliteConnection(AsyncExternalConnection):
    """An ``aiosqlite.Connection``: a thread that has one of the standard library's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return "sqlite"

    async def call_sqlite(self, call: SqliteCall) -> Any:
        return await run_on_connection_thread(self._connection, call)


async def run_on_connection_thread(connection: Any, call: SqliteCall) -> Any:
    """There is no public way to have more than one statement done at a time."""
    return await connection._execute(call.work, connection._conn)


_NOOP_STATEMENT = "SELECT 1"
"""A statement like any other, with which SQLAlchemy begins its transaction."""


class SqlalchemyConnection(ExternalConnection):
    """A ``SqlalchemyConnection``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return str(self._connection.dialect.name)

    def run_statement(self, statement: PgStatement) -> Any:
        return self._connection.execute(*_statement_text(statement)).scalar()

    def call_sqlite(self, call: SqliteCall) -> Any:
        return _call_sqlite(self._connection, call)


class SqlalchemySession(ExternalConnection):
    """A ``SqlalchemySession``, or a ``scoped_session``; the connection of its default engine."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @property
    def dialect(self) -> str:
        return str(self._session.get_bind().dialect.name)

    def run_statement(self, statement: PgStatement) -> Any:
        return self._session.connection().execute(*_statement_text(statement)).scalar()

    def call_sqlite(self, call: SqliteCall) -> Any:
        return _call_sqlite(self._session.connection(), call)


class AsyncSqlalchemyConnection(AsyncExternalConnection):
    """An ``AsyncSqlalchemyConnection``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return str(self._connection.dialect.name)

    async def run_statement(self, statement: PgStatement) -> Any:
        return (await self._connection.execute(*_statement_text(statement))).scalar()

    async def call_sqlite(self, call: SqliteCall) -> Any:
        return await _call_sqlite_async(self._connection, call)


class AsyncSqlalchemySession(AsyncExternalConnection):
    """An ``AsyncSqlalchemySession``, or an ``async_scoped_session``."""

    def __init__(self, session: Any) -> None:
        self._session = session

    @property
    def dialect(self) -> str:
        return str(self._session.get_bind().dialect.name)

    async def run_statement(self, statement: PgStatement) -> Any:
        connection = await self._session.connection()  # SQLModel wants no execute of its sessions
        return (await connection.execute(*_statement_text(statement))).scalar()

    async def call_sqlite(self, call: SqliteCall) -> Any:
        return await _call_sqlite_async(await self._session.connection(), call)


def _call_sqlite(connection: Any, call: SqliteCall) -> Any:
    connection.exec_driver_sql(_NOOP_STATEMENT)
    driver = connection.connection.driver_connection
    with _as_sqlalchemy_errors(connection.dialect):
        if hasattr(driver, "_execute"):  # aiosqlite's, inside of run_sync
            return sys.modules["sqlalchemy.util"].await_only(run_on_connection_thread(driver, call))
        return call.work(driver)


async def _call_sqlite_async(connection: Any, call: SqliteCall) -> Any:
    await connection.exec_driver_sql(_NOOP_STATEMENT)
    driver = (await connection.get_raw_connection()).driver_connection
    with _as_sqlalchemy_errors(connection.dialect):
        return await run_on_connection_thread(driver, call)


@contextlib.contextmanager
def _as_sqlalchemy_errors(dialect: Any) -> Iterator[None]:
    """SQLAlchemy's errors, as of any statement: nobody who uses it looks for the driver's."""
    errors = dialect.dbapi.Error
    try:
        yield
    except errors as error:
        made = sys.modules["sqlalchemy.exc"].DBAPIError.instance(None, None, error, errors, dialect=dialect)
        raise made from error


def _statement_text(statement: PgStatement) -> tuple[Any, dict[str, str]]:
    return sys.modules["sqlalchemy"].text(statement.with_placeholder(":tidewheel_text")), {
        "tidewheel_text": statement.text
    }


class _BlockingPgConnection(ExternalConnection):
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return "postgresql"


class _AsyncPgConnection(AsyncExternalConnection):
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return "postgresql"


class AsyncpgConnection(_AsyncPgConnection):
    """An ``asyncpg.Connection``, or what its pool gives out."""

    async def run_statement(self, statement: PgStatement) -> Any:
        return await self._connection.fetchval(statement.with_placeholder("$1"), statement.text)


class PsycopgConnection(_BlockingPgConnection):
    """A ``psycopg.Connection``."""

    def run_statement(self, statement: PgStatement) -> Any:
        psycopg = sys.modules["psycopg"]
        with psycopg.Cursor(self._connection, row_factory=sys.modules["psycopg.rows"].tuple_row) as cursor:
            cursor.execute(statement.with_placeholder("%s"), (statement.text,))
            return first_value(cursor.fetchone())


class PsycopgAsyncConnection(_AsyncPgConnection):
    """A ``psycopg.AsyncConnection``."""

    async def run_statement(self, statement: PgStatement) -> Any:
        psycopg = sys.modules["psycopg"]
        plain = sys.modules["psycopg.rows"].tuple_row
        async with psycopg.AsyncCursor(self._connection, row_factory=plain) as cursor:
            await cursor.execute(statement.with_placeholder("%s"), (statement.text,))
            return first_value(await cursor.fetchone())


class Psycopg2Connection(_BlockingPgConnection):
    """A ``psycopg2`` connection."""

    def __init__(self, connection: Any) -> None:
        if connection.async_:
            # It would take the statement, and raise where the answer is asked for: an error, and a job.
            raise TypeError(
                "using() was given an asynchronous psycopg2 connection, whose answers have to be polled for; "
                "use a plain one, or psycopg's AsyncConnection"
            )
        super().__init__(connection)

    def run_statement(self, statement: PgStatement) -> Any:
        plain = sys.modules["psycopg2.extensions"].cursor
        with self._connection.cursor(cursor_factory=plain) as cursor:
            cursor.execute(statement.with_placeholder("%s"), (statement.text,))
            return first_value(cursor.fetchone())


_PLACEHOLDERS: Final = {
    "format": "%s",
    "pyformat": "%(said)s",
    "qmark": "?",
    "numeric": ":1",
    "named": ":said",
}


class Pg8000Connection(_BlockingPgConnection):
    """A ``pg8000`` connection with cursors."""

    def run_statement(self, statement: PgStatement) -> Any:
        cursor = self._connection.cursor()
        # Its users choose how they write parameters: for all cursors of pg8000.dbapi, or for one of pg8000's.
        style = getattr(cursor, "paramstyle", None) or sys.modules["pg8000.dbapi"].paramstyle
        said = {"said": statement.text} if style in ("named", "pyformat") else (statement.text,)
        try:
            cursor.execute(statement.with_placeholder(_PLACEHOLDERS[style]), said)
            return first_value(cursor.fetchone())
        finally:
            cursor.close()


class Pg8000NativeConnection(_BlockingPgConnection):
    """A ``pg8000.native`` connection."""

    def run_statement(self, statement: PgStatement) -> Any:
        rows = self._connection.run(statement.with_placeholder(":said"), said=statement.text)
        return first_value(rows[0]) if rows else None


def first_value(row: Any) -> Any:
    """The one value of a row; None without a row."""
    return None if row is None else row[0]


class DjangoConnection(ExternalConnection):
    """In ``atomic()`` part of its transaction; in autocommit, which is Django's default, at once."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        return str(self._connection.vendor)

    def run_statement(self, statement: PgStatement) -> Any:
        with self._connection.cursor() as cursor:
            cursor.execute(statement.with_placeholder("%s"), [statement.text])
            return first_value(cursor.fetchone())

    def call_sqlite(self, call: SqliteCall) -> Any:
        connection = self._connection
        connection.ensure_connection()
        connection.validate_thread_sharing()
        connection.validate_no_broken_transaction()
        with connection.wrap_database_errors:
            return call.work(connection.connection)
