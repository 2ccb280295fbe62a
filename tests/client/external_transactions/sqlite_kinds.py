"""Connections to SQLite, each as people open it."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiosqlite

from tests.client.external_transactions.caller import Caller, kind


class Subclass(sqlite3.Connection):
    """As some people make them."""


def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@kind("sqlite3", "sqlite")
@kind("sqlite3-subclass", "sqlite", factory=Subclass)
@kind("sqlite3-immediate", "sqlite", isolation_level="IMMEDIATE")
@kind("sqlite3-rows", "sqlite", row_factory=sqlite3.Row)
@kind("sqlite3-dicts", "sqlite", row_factory=as_dict)
@kind("sqlite3-bytes", "sqlite", text_factory=bytes)
@kind("sqlite3-cursor", "sqlite", cursor=True)
@kind("sqlite3-by-hand", "sqlite", isolation_level=None)
async def standard(path: str, **options: Any) -> AsyncIterator[Caller]:
    factories = {name: options.pop(name) for name in ("row_factory", "text_factory") if name in options}
    cursor = options.pop("cursor", False)
    connection = sqlite3.connect(path, **options)
    for name, factory in factories.items():
        setattr(connection, name, factory)

    def execute(statement: str) -> None:
        if connection.isolation_level is None and not connection.in_transaction:
            connection.execute("BEGIN")
        connection.execute(statement)

    given = connection.cursor() if cursor else connection
    with contextlib.closing(connection):
        yield Caller(given, execute, connection.commit, connection.rollback)
        for name, factory in factories.items():
            assert getattr(connection, name) is factory


if sys.version_info >= (3, 12):
    kind("sqlite3-autocommit-false", "sqlite", autocommit=False)(standard)


@kind("aiosqlite", "sqlite")
@kind("aiosqlite-rows", "sqlite", row_factory=True)
@kind("aiosqlite-cursor", "sqlite", cursor=True)
async def threaded(path: str, *, row_factory: bool = False, cursor: bool = False) -> AsyncIterator[Caller]:
    async with aiosqlite.connect(path) as connection:
        if row_factory:
            connection.row_factory = aiosqlite.Row
        given = await connection.cursor() if cursor else connection
        yield Caller(given, connection.execute, connection.commit, connection.rollback)
