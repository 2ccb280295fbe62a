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
from tidewheel.client.drivers.base import AsyncExternalConnection, ExternalConnection


@dataclass(frozen=True, slots=True)
class _ConnectionKind:
    module: str
    name: str
    make: Callable[[Any], ExternalConnection | AsyncExternalConnection]
    inner: str = ""  # where the connection is, in something that has one (pg8000 warns of the public name)


_CONNECTION_KINDS: Final = (
    _ConnectionKind("sqlite3", "Connection", adapters.Sqlite3Connection),
    _ConnectionKind("sqlite3", "Cursor", adapters.Sqlite3Connection, "connection"),
    _ConnectionKind("aiosqlite", "Connection", adapters.AiosqliteConnection),
    _ConnectionKind("aiosqlite", "Cursor", adapters.AiosqliteConnection, "_conn"),
    _ConnectionKind("asyncpg", "Connection", adapters.AsyncpgConnection),
    _ConnectionKind("asyncpg.pool", "PoolConnectionProxy", adapters.AsyncpgConnection),
    _ConnectionKind("psycopg", "Connection", adapters.PsycopgConnection),
    _ConnectionKind("psycopg", "Cursor", adapters.PsycopgConnection, "connection"),
    _ConnectionKind("psycopg", "AsyncConnection", adapters.PsycopgAsyncConnection),
    _ConnectionKind("psycopg", "AsyncCursor", adapters.PsycopgAsyncConnection, "connection"),
    _ConnectionKind("psycopg2.extensions", "connection", adapters.Psycopg2Connection),
    _ConnectionKind("psycopg2.extensions", "cursor", adapters.Psycopg2Connection, "connection"),
    _ConnectionKind("pg8000.native", "Connection", adapters.Pg8000NativeConnection),
    _ConnectionKind("pg8000.dbapi", "Connection", adapters.Pg8000Connection),
    _ConnectionKind("pg8000.dbapi", "Cursor", adapters.Pg8000Connection, "_c"),
    _ConnectionKind("pg8000.legacy", "Connection", adapters.Pg8000Connection),
    _ConnectionKind("pg8000.legacy", "Cursor", adapters.Pg8000Connection, "_c"),
    _ConnectionKind("sqlalchemy.engine", "Connection", adapters.SqlalchemyConnection),
    _ConnectionKind("sqlalchemy.orm", "Session", adapters.SqlalchemySession),
    _ConnectionKind("sqlalchemy.orm", "scoped_session", adapters.SqlalchemySession),
    _ConnectionKind("sqlalchemy.ext.asyncio", "AsyncConnection", adapters.AsyncSqlalchemyConnection),
    _ConnectionKind("sqlalchemy.ext.asyncio", "AsyncSession", adapters.AsyncSqlalchemySession),
    _ConnectionKind("sqlalchemy.ext.asyncio", "async_scoped_session", adapters.AsyncSqlalchemySession),
    _ConnectionKind("django.db.backends.base.base", "BaseDatabaseWrapper", adapters.DjangoConnection),
    _ConnectionKind("django.db.backends.utils", "CursorWrapper", adapters.DjangoConnection, "db"),
    _ConnectionKind("django.utils.connection", "ConnectionProxy", adapters.DjangoConnection),
)

_SUPPORTED_KINDS: Final = (
    "sqlite3, aiosqlite, asyncpg, psycopg, psycopg2 and pg8000 connections, SQLAlchemy's and SQLModel's "
    "connections and sessions, blocking and async, and Django's connections"
)


def wrap_connection(connection: Any) -> ExternalConnection | AsyncExternalConnection:
    """The connection as something to work on; ``TypeError`` for anything else."""
    for kind in _CONNECTION_KINDS:
        module = sys.modules.get(kind.module)
        if module is not None and isinstance(connection, getattr(module, kind.name, ())):
            return kind.make(getattr(connection, kind.inner) if kind.inner else connection)
    described = f"{type(connection).__module__}.{type(connection).__qualname__}"
    if described.endswith(("Engine", "Pool", "sessionmaker")):
        described += ", which has no transaction of its own: take a connection or a session from it"
    raise TypeError(f"using() was given a {described}; it takes {_SUPPORTED_KINDS}")
