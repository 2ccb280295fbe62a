"""SQLAlchemy's connections and sessions, blocking and awaited, and with them SQLModel's.

Everything goes through SQLAlchemy where it can: it has to know that a transaction has begun, or its commit
would do nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from tidewheel.borrowed.connection import AsyncBorrowed, Borrowed
from tidewheel.borrowed.sqlite import on_its_thread
from tidewheel.stores.joining import Ask, Visit

_NOTHING = "SELECT 1"
"""A statement like any other, with which SQLAlchemy begins its transaction."""


class Connection(Borrowed):
    """A ``Connection``."""

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
