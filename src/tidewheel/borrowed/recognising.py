"""Which kind of connection this is. No library is imported for it: one nobody has imported has made none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidewheel.borrowed import django, postgres, sqlalchemy, sqlite
from tidewheel.borrowed.connection import AsyncBorrowed, Borrowed


@dataclass(frozen=True, slots=True)
class _Kind:
    module: str
    name: str
    make: Callable[[Any], Borrowed | AsyncBorrowed]
    inner: str = ""  # where the connection is, in something that has one (pg8000 warns of the public name)


_KINDS: Final = (
    _Kind("sqlite3", "Connection", sqlite.Sqlite3),
    _Kind("sqlite3", "Cursor", sqlite.Sqlite3, "connection"),
    _Kind("aiosqlite", "Connection", sqlite.Aiosqlite),
    _Kind("aiosqlite", "Cursor", sqlite.Aiosqlite, "_conn"),
    _Kind("asyncpg", "Connection", postgres.Asyncpg),
    _Kind("asyncpg.pool", "PoolConnectionProxy", postgres.Asyncpg),
    _Kind("psycopg", "Connection", postgres.Psycopg),
    _Kind("psycopg", "Cursor", postgres.Psycopg, "connection"),
    _Kind("psycopg", "AsyncConnection", postgres.PsycopgAsync),
    _Kind("psycopg", "AsyncCursor", postgres.PsycopgAsync, "connection"),
    _Kind("psycopg2.extensions", "connection", postgres.Psycopg2),
    _Kind("psycopg2.extensions", "cursor", postgres.Psycopg2, "connection"),
    _Kind("pg8000.native", "Connection", postgres.Pg8000Native),
    _Kind("pg8000.dbapi", "Connection", postgres.Pg8000),
    _Kind("pg8000.dbapi", "Cursor", postgres.Pg8000, "_c"),
    _Kind("pg8000.legacy", "Connection", postgres.Pg8000),
    _Kind("pg8000.legacy", "Cursor", postgres.Pg8000, "_c"),
    _Kind("sqlalchemy.engine", "Connection", sqlalchemy.Connection),
    _Kind("sqlalchemy.orm", "Session", sqlalchemy.Session),
    _Kind("sqlalchemy.orm", "scoped_session", sqlalchemy.Session),
    _Kind("sqlalchemy.ext.asyncio", "AsyncConnection", sqlalchemy.AsyncConnection),
    _Kind("sqlalchemy.ext.asyncio", "AsyncSession", sqlalchemy.AsyncSession),
    _Kind("sqlalchemy.ext.asyncio", "async_scoped_session", sqlalchemy.AsyncSession),
    _Kind("django.db.backends.base.base", "BaseDatabaseWrapper", django.Connection),
    _Kind("django.db.backends.utils", "CursorWrapper", django.Connection, "db"),
    _Kind("django.utils.connection", "ConnectionProxy", django.Connection),
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
