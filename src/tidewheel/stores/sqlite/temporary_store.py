"""A scratch file in the directory of the real one: the same disk, the same settings."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from tidewheel.errors import NotOpen, StoreError
from tidewheel.stores.sqlite.connection import begin_immediate, connect, translate_error
from tidewheel.stores.sqlite.health import check_environment
from tidewheel.stores.sqlite.location import check_location, file_system_of, parse_url
from tidewheel.stores.temporary_store import DatabaseProfile, temporary_name

T = TypeVar("T")

SIDE_FILES: Final = ("", "-wal", "-shm", "-journal")
"""What SQLite may put beside a database, the database itself first."""


class SqliteTemporaryStore:
    """A file ``tidewheel_scratch_….db`` beside the one of the URL, which is not even opened."""

    def __init__(self, url: str) -> None:
        beside = Path(parse_url(url).path)
        path = beside.with_name(f"{temporary_name()}.db")
        options = url.partition("?")[2]
        self.url = f"sqlite:///{quote(path.as_posix(), safe='/:')}{'?' if options else ''}{options}"
        self.location = str(path)
        self.profile = DatabaseProfile(f"SQLite {sqlite3.sqlite_version}")
        self._location = replace(parse_url(url), path=str(path))
        self._connection: sqlite3.Connection | None = None
        self._made = False  # or may have been
        # One thread, so that what is asked last (to close) comes after everything that was asked before.
        self._thread = ThreadPoolExecutor(1, "tidewheel-scratch")

    async def inspect(self) -> None:
        await self._on_thread(self._look)

    async def create(self) -> None:
        await self._on_thread(self._make)

    async def remove(self) -> None:
        try:
            await self._on_thread(self._remove)
        finally:
            self._thread.shutdown(wait=False)

    async def measure_round_trip(self) -> float | None:
        return None

    async def measure_commit(self) -> float | None:
        return await self._on_thread(self._commit)

    async def inject_fault(self, seconds: float) -> str | None:
        await self._on_thread(lambda: self._hold_the_lock(seconds))
        return "another program held the write lock"

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- on the thread ----------------------------------------------------------------------------------

    def _make(self) -> None:
        self._look()
        self._made = True
        self._connection = connect(self._location)
        try:
            self._connection.execute("CREATE TABLE scratch_commits (number INTEGER)")
            self._connection.execute("INSERT INTO scratch_commits VALUES (0)")
        except sqlite3.Error as error:
            raise translate_error(error, self._location) from error

    def _look(self) -> None:
        check_location(self._location)
        settings = {"synchronous": self._location.synchronous.lower()}
        kind = file_system_of(Path(self._location.path).parent)
        if kind is not None:
            settings["file system"] = kind
        self.profile = replace(
            self.profile, settings=settings, health_findings=tuple(check_environment(self._location))
        )

    def _commit(self) -> float:
        connection = self._connection
        if connection is None:
            raise NotOpen(f"{self.location} is not there")
        began = time.perf_counter()
        begin_immediate(connection, self._location)
        try:
            connection.execute("UPDATE scratch_commits SET number = number + 1")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate_error(error, self._location) from error
        return time.perf_counter() - began

    def _hold_the_lock(self, seconds: float) -> None:
        """What an editor of databases, a backup or a long transaction of the application does."""
        connection = self._connection
        if connection is None:
            raise NotOpen(f"{self.location} is not there")
        begin_immediate(connection, self._location)
        try:
            time.sleep(seconds)
        finally:
            connection.execute("ROLLBACK")

    def _remove(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if not self._made:
            return  # on a disk that is read-only one may not even remove what is not there
        left = []
        for ending in SIDE_FILES:
            try:
                Path(self._location.path + ending).unlink(missing_ok=True)
            except OSError as error:
                left.append(f"{self._location.path}{ending} ({error.strerror})")
        if left:
            raise StoreError(f"the scratch file could not be removed: {', '.join(left)}; delete it by hand")
