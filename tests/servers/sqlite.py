"""Empty databases of SQLite's: one is made and copied, because migrating takes as long as many a test."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidewheel.stores.sqlite import SqliteStore


def empty_database(directory: Path) -> str:
    """The URL of a database in this directory that is migrated and has no jobs."""
    path = directory / "jobs.db"
    path.write_bytes(_migrated())
    return f"sqlite:///{path.as_posix()}"


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(1) as thread:
        path = Path(directory) / "jobs.db"
        # On a thread of its own: whoever asks may have an event loop already.
        thread.submit(asyncio.run, _migrate(path)).result()
        assert [left.name for left in path.parent.iterdir()] == [path.name], "not all is in the file yet"
        return path.read_bytes()


async def _migrate(path: Path) -> None:
    store = SqliteStore(f"sqlite:///{path.as_posix()}")
    await store.open()
    try:
        await store.migrate()
    finally:
        await store.close()
