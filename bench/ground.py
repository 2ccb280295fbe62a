"""Where figures are taken: a new, empty store for each of them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from windlass import Windlass

if TYPE_CHECKING:
    from tests.servers import PostgresServer

STORES = ("sqlite", "postgres")

LOG_FILES = 60
"""Of 16 MB each: nearly as many as PostgreSQL keeps by default."""


class Ground(Protocol):
    """One kind of store, with as many empty queues as are asked for."""

    store: str

    def url(self, name: str = "jobs") -> str:
        """The queue of this name."""

    async def megabytes(self, name: str) -> int:
        """What it takes on the disk."""

    async def rest(self) -> None:
        """Let the store get over what was just done to it, so that the next figure is its own."""


class SqliteGround:
    """Files in a directory that goes afterwards."""

    store = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def url(self, name: str = "jobs") -> str:
        return f"sqlite:///{self._directory / name}.db"

    async def rest(self) -> None:
        """One file, one writer: nothing goes on behind our back."""

    async def megabytes(self, name: str) -> int:
        return round((self._directory / f"{name}.db").stat().st_size / 1e6)


class PostgresGround:
    """Schemas on a server of our own, as durable as PostgreSQL is by default."""

    store = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def url(self, name: str = "jobs") -> str:
        return self._server.url(schema=name)

    async def warm_up(self) -> None:
        """Bring a server that was just made to where one is that has run for a day.

        A new server makes each of its log files when it is needed, and commits wait until 16 MB of zeros have
        reached the disk; one that has run for a while uses its old files again.
        """
        async with self._connection() as connection:
            for _ in range(LOG_FILES):
                await connection.execute(
                    "SELECT pg_logical_emit_message(false, 'bench', 'x'), pg_switch_wal()"
                )
        await self.rest()

    async def rest(self) -> None:
        async with self._connection() as connection:
            await connection.execute("CHECKPOINT", timeout=300)

    async def megabytes(self, name: str) -> int:
        async with self._connection() as connection:
            size = await connection.fetchval(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
                " WHERE relnamespace = $1::text::regnamespace AND relkind = 'r'",
                name,
            )
        return round(float(size) / 1e6)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        import asyncpg

        connection = await asyncpg.connect(self._server.url())
        try:
            yield connection
        finally:
            await connection.close()


@contextlib.contextmanager
def ground(store: str) -> Iterator[Ground]:
    if store == "sqlite":
        with tempfile.TemporaryDirectory() as directory:
            yield SqliteGround(Path(directory))
        return
    from tests.servers import DURABLE, PostgresServer

    with PostgresServer(settings=DURABLE) as server:
        where = PostgresGround(server)
        asyncio.run(where.warm_up())
        yield where


def make_app(where: Ground, **settings: Any) -> Windlass:
    return Windlass(where.url(), **settings)
