"""Connections to PostgreSQL, each as people open it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncpg
import pg8000
import pg8000.dbapi
import pg8000.native
import psycopg
import psycopg2
import psycopg2.extras
from psycopg.rows import dict_row

from tests.client.external_transactions.caller import Caller, kind


@kind("asyncpg", "postgres")
@kind("asyncpg-codecs", "postgres", codecs=True)
@kind("asyncpg-record-class", "postgres", record_class=type("Mine", (asyncpg.Record,), {}))
async def asyncpg_connection(url: str, *, codecs: bool = False, **options: Any) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url, **options)
    if codecs:
        for name in ("json", "jsonb"):
            await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        await connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")
        await connection.set_type_codec("int8", encoder=str, decoder=float, schema="pg_catalog")
    try:
        yield _of_asyncpg(connection)
    finally:
        await connection.close()


@kind("asyncpg-pool", "postgres")
async def asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        yield _of_asyncpg(connection)


def _of_asyncpg(connection: Any) -> Caller:
    async def execute(statement: str) -> None:
        if not connection.is_in_transaction():
            await connection.execute("BEGIN")
        await connection.execute(statement)

    return Caller(
        connection, execute, lambda: connection.execute("COMMIT"), lambda: connection.execute("ROLLBACK")
    )


@kind("psycopg", "postgres")
@kind("psycopg-dicts", "postgres", row_factory=dict_row)
@kind("psycopg-client-cursor", "postgres", cursor_factory=psycopg.ClientCursor)
@kind("psycopg-cursor", "postgres", cursor=True)
async def psycopg_connection(url: str, *, cursor: bool = False, **options: Any) -> AsyncIterator[Caller]:
    with psycopg.connect(url, **options) as connection:
        given = connection.cursor() if cursor else connection
        yield Caller(given, connection.execute, connection.commit, connection.rollback)


@kind("psycopg-async", "postgres")
@kind("psycopg-async-dicts", "postgres", row_factory=dict_row)
@kind("psycopg-async-cursor", "postgres", cursor=True)
async def psycopg_async(url: str, *, cursor: bool = False, **options: Any) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url, **options) as connection:
        given = connection.cursor() if cursor else connection
        yield Caller(given, connection.execute, connection.commit, connection.rollback)


@kind("psycopg2", "postgres")
@kind("psycopg2-dicts", "postgres", cursor_factory=psycopg2.extras.RealDictCursor)
@kind("psycopg2-cursor", "postgres", cursor=True)
async def psycopg2_connection(url: str, *, cursor: bool = False, **options: Any) -> AsyncIterator[Caller]:
    with contextlib.closing(psycopg2.connect(url, **options)) as connection:
        given = connection.cursor() if cursor else connection
        yield _with_cursors(connection, given)


@kind("pg8000", "postgres", module=pg8000)
@kind("pg8000-dbapi", "postgres", module=pg8000.dbapi)
@kind("pg8000-cursor", "postgres", module=pg8000.dbapi, cursor=True)
async def pg8000_connection(url: str, module: Any, *, cursor: bool = False) -> AsyncIterator[Caller]:
    with contextlib.closing(module.connect(**_parts(url))) as connection:
        given = connection.cursor() if cursor else connection
        yield _with_cursors(connection, given)


def _with_cursors(connection: Any, given: Any) -> Caller:
    return Caller(
        given,
        lambda statement: connection.cursor().execute(statement),
        connection.commit,
        connection.rollback,
    )


@kind("pg8000-native", "postgres")
async def pg8000_native(url: str) -> AsyncIterator[Caller]:
    connection = pg8000.native.Connection(**_parts(url))
    inside = False

    def execute(statement: str) -> None:
        nonlocal inside
        if not inside:
            connection.run("BEGIN")
            inside = True
        connection.run(statement)

    def end(word: str) -> None:
        nonlocal inside
        connection.run(word)
        inside = False

    with contextlib.closing(connection):
        yield Caller(connection, execute, lambda: end("COMMIT"), lambda: end("ROLLBACK"))


def _parts(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "user": unquote(parts.username or ""),
        "password": None if parts.password is None else unquote(parts.password),
        "host": parts.hostname,
        "port": parts.port,
        "database": parts.path.lstrip("/"),
    }
