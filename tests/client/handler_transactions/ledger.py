"""A program's own tables beside the queue: accounts, and a line for each transfer that happened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import asyncpg

ACCOUNTS = 10
OPENING = 1000


class Ledger(Protocol):
    """The tables, looked at from outside. ``names`` tells theirs: several tests share one PostgreSQL."""

    accounts: str
    transfers: str
    deferred: str

    async def make(self) -> None: ...

    async def balances(self) -> list[int]: ...

    async def happened(self) -> list[str]:
        """The jobs whose transfer is in the books, one entry for each time."""

    async def drop(self) -> None: ...


def ledger_of(url: str) -> Ledger:
    return SqliteLedger(url) if url.startswith("sqlite:") else PostgresLedger(url)


def mark(url: str, position: int) -> str:
    """A placeholder, as this database writes them."""
    return "?" if url.startswith("sqlite:") else f"${position}"


class SqliteLedger:
    accounts = "accounts"
    transfers = "transfers"
    deferred = "owed"

    def __init__(self, url: str) -> None:
        self._path = url.removeprefix("sqlite:///").partition("?")[0]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        try:
            # Nobody but the store makes checkpoints (see docs/how-to/sqlite.md).
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            yield connection
        finally:
            connection.close()

    async def make(self) -> None:
        with self._connection() as connection:
            for statement in _tables(self):
                connection.execute(statement)

    async def balances(self) -> list[int]:
        with self._connection() as connection:
            return [row[0] for row in connection.execute(f"SELECT balance FROM {self.accounts} ORDER BY id")]

    async def happened(self) -> list[str]:
        with self._connection() as connection:
            return [row[0] for row in connection.execute(f"SELECT job FROM {self.transfers}")]

    async def drop(self) -> None:
        return None  # the file goes with its directory


class PostgresLedger:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        schema = parse_qs(parts.query)["schema"][0]
        self._dsn = parts._replace(query="").geturl()
        self.accounts = f'public."accounts of {schema}"'
        self.transfers = f'public."transfers of {schema}"'
        self.deferred = f'public."owed of {schema}"'

    async def _run(self, how: str, *statements: str) -> Any:
        connection = await asyncpg.connect(self._dsn)
        try:
            for statement in statements:
                answer = await getattr(connection, how)(statement)
        finally:
            await connection.close()
        return answer

    async def make(self) -> None:
        await self.drop()
        await self._run("execute", *_tables(self))

    async def balances(self) -> list[int]:
        rows = await self._run("fetch", f"SELECT balance FROM {self.accounts} ORDER BY id")
        return [row[0] for row in rows]

    async def happened(self) -> list[str]:
        return [row[0] for row in await self._run("fetch", f"SELECT job FROM {self.transfers}")]

    async def drop(self) -> None:
        tables = ", ".join([self.deferred, self.transfers, self.accounts])
        await self._run("execute", f"DROP TABLE IF EXISTS {tables}")


def _reference(ledger: Ledger) -> str:
    return f"REFERENCES {ledger.accounts} (id) DEFERRABLE INITIALLY DEFERRED"


def _tables(ledger: Ledger) -> list[str]:
    rows = ", ".join(f"({number}, {OPENING})" for number in range(ACCOUNTS))
    return [
        f"CREATE TABLE {ledger.accounts} (id integer PRIMARY KEY, balance integer NOT NULL)",
        # No key: a transfer that happened twice has to be seen, not refused.
        f"CREATE TABLE {ledger.transfers} (job text NOT NULL)",
        f"CREATE TABLE {ledger.deferred} (account integer {_reference(ledger)})",
        f"INSERT INTO {ledger.accounts} (id, balance) VALUES {rows}",
    ]
