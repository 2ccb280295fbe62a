"""Adapt a connection or session of the caller, by its type.

No library is imported for this. A connection exists only if its library has been imported, so a look at
``sys.modules`` is enough.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidewheel.client.drivers import adapters
from tidewheel.client.drivers.base import AsyncBorrowed, Borrowed


@dataclass(frozen=True, slots=True)
class _Kind:
    module: str
    name: str
    make: Callable[[Any], Borrowed | AsyncBorrowed]
    inner: str = ""  # where the connection is, in something that has one (pg8000 warns of the public name)


_KINDS: Final = (
    _Kind("sqlite3", "Connection", adapters.Sqlite3),
    _Kind("sqlite3", "Cursor", adapters.Sqlite3, "connection"),
    _Kind("aiosqlite", "Connection", adapters.Aiosqlite),
    _Kind("aiosqlite", "Cursor", adapters.Aiosqlite, "_conn"),
    _Kind("asyncpg", "Connection", adapters.Asyncpg),
    _Kind("asyncpg.pool", "PoolConnectionProxy", adapters.Asyncpg),
    _Kind("psycopg", "Connection", adapters.Psycopg),
    _Kind("psycopg", "Cursor", adapters.Psycopg, "connection"),
    _Kind("psycopg", "AsyncConnection", adapters.PsycopgAsync),
    _Kind("psycopg", "AsyncCursor", adapters.PsycopgAsync, "connection"),
    _Kind("psycopg2.extensions", "connection", adapters.Psycopg2),
    _Kind("psycopg2.extensions", "cursor", adapters.Psycopg2, "connection"),
    _Kind("pg8000.native", "Connection", adapters.Pg8000Native),
    _Kind("pg8000.dbapi", "Connection", adapters.Pg8000),
    _Kind("pg8000.dbapi", "Cursor", adapters.Pg8000, "_c"),
    _Kind("pg8000.legacy", "Connection", adapters.Pg8000),
    _Kind("pg8000.legacy", "Cursor", adapters.Pg8000, "_c"),
    _Kind("sqlalchemy.engine", "Connection", adapters.SqlalchemyConnection),
    _Kind("sqlalchemy.orm", "Session", adapters.Session),
    _Kind("sqlalchemy.orm", "scoped_session", adapters.Session),
    _Kind("sqlalchemy.ext.asyncio", "AsyncConnection", adapters.AsyncConnection),
    _Kind("sqlalchemy.ext.asyncio", "AsyncSession", adapters.AsyncSession),
    _Kind("sqlalchemy.ext.asyncio", "async_scoped_session", adapters.AsyncSession),
    _Kind("django.db.backends.base.base", "BaseDatabaseWrapper", adapters.DjangoConnection),
    _Kind("django.db.backends.utils", "CursorWrapper", adapters.DjangoConnection, "db"),
    _Kind("django.utils.connection", "ConnectionProxy", adapters.DjangoConnection),
)

_WORKS: Final = (
    "sqlite3, aiosqlite, asyncpg, psycopg, psycopg2 and pg8000 connections, SQLAlchemy's and SQLModel's "
    "connections and sessions, blocking and async, and Django's connections"
)


def borrow(connection: Any) -> Borrowed | AsyncBorrowed:
    """The connection as something to work on; ``TypeError`` for anything else."""
    for kind in _KINDS:
        module = sys.modules.get(kind.module)
        if module is not None and isinstance(connection, getattr(module, kind.name, ())):
            return kind.make(getattr(connection, kind.inner) if kind.inner else connection)
    described = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if described.endswith(("Engine", "Pool", "sessionmaker")):
        described += ", which has no transaction of its own: take a connection or a session from it"
    raise TypeError(f"using() was given a {described}; it takes {_WORKS}")
