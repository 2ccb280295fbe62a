"""Read on separate threads, so that long searches and busy writers do not delay other reads.

``ReadCoalescer`` joins lookups of single jobs. A lookup takes microseconds, but the way to a thread and back
takes many times as long. Calls that arrive during a lookup share the next one, up to 100 jobs. A caller that
is alone does not wait.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from tidewheel.core.model import JobRecord
from tidewheel.errors import StoreError
from tidewheel.stores.sqlite import job_queries
from tidewheel.stores.sqlite.connection import DECODE_ERRORS, ForkGuard, connect, translate_error
from tidewheel.stores.sqlite.file_identity import FileIdentity
from tidewheel.stores.sqlite.location import Location

R = TypeVar("R")

THREADS = 4


class Reader:
    """A few threads, each with a read-only connection opened at its first use."""

    def __init__(self, location: Location, file_identity: FileIdentity) -> None:
        self._location = location
        self._presence = file_identity
        self._home = ForkGuard()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tidewheel-sqlite-reader")
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[sqlite3.Connection] = []
        self._closed = False

    async def run(self, read: Callable[[sqlite3.Connection], R]) -> R:
        """``read`` in one consistent snapshot."""
        self._home.check()
        if self._closed:
            raise StoreError("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._read, read)

    def close(self) -> None:
        """Blocks until running reads have ended."""
        if self._closed:
            return
        self._closed = True
        if self._home.forked:
            return
        self._threads.shutdown(wait=True)
        for connection in self._connections:
            connection.close()

    def _read(self, read: Callable[[sqlite3.Connection], R]) -> R:
        try:
            # Also before connecting: another file under this name has nothing to do with our log.
            self._presence.check()
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                return read(connection)
            finally:
                # A read transaction left open would keep the log from being reset.
                if connection.in_transaction:
                    connection.execute("COMMIT")
        except (sqlite3.Error, *DECODE_ERRORS) as error:
            raise translate_error(error, self._location) from error

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = connect(self._location, read_only=True)
            self._local.connection = connection
            with self._lock:
                self._connections.append(connection)
        return connection


MAX_READS_PER_BATCH: Final = 100
"""Jobs of one look: the first of them waits for the last."""


class _PendingGet(NamedTuple):
    job_id: UUID
    tenant: str | None
    answer: asyncio.Future[JobRecord | None]


class ReadCoalescer:
    """For one event loop."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._waiting: list[_PendingGet] = []
        self._looking: asyncio.Task[None] | None = None

    async def get(self, job_id: UUID, tenant: str | None) -> JobRecord | None:
        answer: asyncio.Future[JobRecord | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_PendingGet(job_id, tenant, answer))
        if self._looking is None:
            self._looking = asyncio.create_task(self._read_batch())
        return await answer

    async def _read_batch(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = (
                    self._waiting[:MAX_READS_PER_BATCH],
                    self._waiting[MAX_READS_PER_BATCH:],
                )
                wanted = [one for one in asked if not one.answer.done()]  # others were given up
                if not await self._answer(wanted) and len(wanted) > 1:
                    # What is wrong may be wrong with one of them; the others are not to suffer for it.
                    for one in wanted:
                        await self._answer([one])
        finally:
            self._looking = None

    async def _answer(self, wanted: Sequence[_PendingGet]) -> bool:
        """Whether all of them have one; a single caller gets the error as its answer."""

        def look(connection: sqlite3.Connection) -> list[JobRecord | None]:
            return [job_queries.get(connection, one.job_id, one.tenant) for one in wanted]

        try:
            records = await self._reader.run(look)
        except Exception as error:
            if len(wanted) == 1 and not wanted[0].answer.done():
                wanted[0].answer.set_exception(error)
            return False
        for one, record in zip(wanted, records, strict=True):
            if not one.answer.done():
                one.answer.set_result(record)
        return True
