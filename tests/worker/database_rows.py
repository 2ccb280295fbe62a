"""What the database of a kill run holds, read past the store: an independent witness for the books."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit, urlunsplit
from uuid import UUID

STATES = {3: "completed", 4: "failed", 5: "cancelled"}


class Row(NamedTuple):
    """One job as it is stored, finished or not."""

    id: UUID
    state: int
    attempt: int
    fence: int

    @property
    def state_name(self) -> str:
        return STATES.get(self.state, "unfinished")


class Rows(Protocol):
    """The rows of one store."""

    async def held_by(self, pid: int) -> set[int]:
        """The fences of the jobs a worker process holds."""

    async def all(self) -> list[Row]:
        """Every job there is."""


@dataclass(frozen=True)
class SqliteRows:
    path: Path

    async def held_by(self, pid: int) -> set[int]:
        rows = self._ask(
            "SELECT fence FROM tidewheel_jobs WHERE state = 2 AND worker LIKE ?", (f"%:{pid}:%",)
        )
        return {row[0] for row in rows}

    async def all(self) -> list[Row]:
        rows = self._ask("SELECT id, state, attempt, fence FROM tidewheel_jobs")
        return [Row(UUID(bytes=row[0]), *row[1:]) for row in rows]

    def _ask(self, question: str, values: tuple[str, ...] = ()) -> list[Any]:
        with sqlite3.connect(self.path) as connection:
            # Checkpoints belong to the store.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            rows = connection.execute(question, values).fetchall()
        connection.close()
        return rows


@dataclass(frozen=True)
class PostgresRows:
    url: str

    async def held_by(self, pid: int) -> set[int]:
        rows = await self._ask("SELECT fence FROM all_jobs WHERE state = 2 AND worker LIKE $1", f"%:{pid}:%")
        return {row[0] for row in rows}

    async def all(self) -> list[Row]:
        # A job that were in two tables would be there twice, and found out.
        rows = await self._ask("SELECT id, state, attempt, fence FROM all_jobs")
        return [Row(UUID(bytes=row[0].bytes), *row[1:]) for row in rows]

    async def _ask(self, question: str, *values: str) -> list[Any]:
        import asyncpg

        address, schema = split_schema(self.url)
        # Without prepared statements, which a pooler in transaction mode cannot keep for anybody.
        connection = await asyncpg.connect(address, statement_cache_size=0)
        try:
            async with connection.transaction(readonly=True):
                await connection.execute("SELECT set_config('search_path', $1, true)", schema)
                rows: list[Any] = await connection.fetch(question, *values)
                return rows
        finally:
            await connection.close()


def split_schema(url: str) -> tuple[str, str]:
    """The address a driver understands, and the schema that Tidewheel looks in."""
    parts = urlsplit(url)
    [schema] = parse_qs(parts.query).get("schema", ["tidewheel"])
    return urlunsplit(parts._replace(query="")), schema


def rows_of(url: str) -> Rows:
    """The rows behind a store's URL."""
    if url.startswith("sqlite:///"):
        return SqliteRows(Path(url.removeprefix("sqlite:///").partition("?")[0]))
    return PostgresRows(url)
