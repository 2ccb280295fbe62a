"""SQLAlchemy's and SQLModel's connections and sessions, on every driver of theirs that we work on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import sqlalchemy
import sqlmodel
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy
from sqlmodel.ext.asyncio.session import AsyncSession as ModelAsyncSession

from tests.client.external_transactions.caller import Caller, kind

BLOCKING = {
    "pysqlite": ("sqlite", "sqlite:///"),
    "psycopg": ("postgres", "postgresql+psycopg://"),
    "psycopg2": ("postgres", "postgresql+psycopg2://"),
    "pg8000": ("postgres", "postgresql+pg8000://"),
}
AWAITED = {
    "aiosqlite": ("sqlite", "sqlite+aiosqlite:///"),
    "asyncpg": ("postgres", "postgresql+asyncpg://"),
    "psycopg-async": ("postgres", "postgresql+psycopg://"),
}


def engine_url(prefix: str, where: str) -> str:
    return prefix + where.partition("://")[2] if "://" in where else prefix + where


async def connection(where: str, prefix: str) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(engine_url(prefix, where))
    with engine.connect() as opened:
        yield Caller(opened, opened.exec_driver_sql, opened.commit, opened.rollback)
    engine.dispose()


async def session(where: str, prefix: str, make: Any) -> AsyncIterator[Caller]:
    engine = sqlalchemy.create_engine(engine_url(prefix, where))
    opened = make(engine)
    try:
        yield Caller(
            opened,
            lambda statement: opened.connection().exec_driver_sql(statement),
            opened.commit,
            opened.rollback,
        )
    finally:
        opened.close()
        engine.dispose()


async def async_connection(where: str, prefix: str) -> AsyncIterator[Caller]:
    engine = alchemy.create_async_engine(engine_url(prefix, where))
    async with engine.connect() as opened:
        yield Caller(opened, opened.exec_driver_sql, opened.commit, opened.rollback)
    await engine.dispose()


async def async_session(where: str, prefix: str, make: Any) -> AsyncIterator[Caller]:
    engine = alchemy.create_async_engine(engine_url(prefix, where))
    opened = make(engine)

    async def execute(statement: str) -> None:
        await (await opened.connection()).exec_driver_sql(statement)

    try:
        yield Caller(opened, execute, opened.commit, opened.rollback)
    finally:
        await opened.close()
        await engine.dispose()


def scoped(engine: Any) -> Any:
    return orm.scoped_session(orm.sessionmaker(engine))


def async_scoped(engine: Any) -> Any:
    return alchemy.async_scoped_session(alchemy.async_sessionmaker(engine), scopefunc=lambda: 1)


for driver, (database, prefix) in BLOCKING.items():
    kind(f"sqlalchemy-{driver}", database, prefix=prefix)(connection)
    kind(f"session-{driver}", database, prefix=prefix, make=orm.Session)(session)
for driver in ("pysqlite", "psycopg"):
    database, prefix = BLOCKING[driver]
    kind(f"scoped-session-{driver}", database, prefix=prefix, make=scoped)(session)
    kind(f"sqlmodel-{driver}", database, prefix=prefix, make=sqlmodel.Session)(session)
for driver, (database, prefix) in AWAITED.items():
    kind(f"sqlalchemy-{driver}", database, prefix=prefix)(async_connection)
    kind(f"session-{driver}", database, prefix=prefix, make=alchemy.AsyncSession)(async_session)
for driver in ("aiosqlite", "asyncpg"):
    database, prefix = AWAITED[driver]
    kind(f"scoped-session-{driver}", database, prefix=prefix, make=async_scoped)(async_session)
    kind(f"sqlmodel-{driver}", database, prefix=prefix, make=ModelAsyncSession)(async_session)
