"""Ways to damage a database, and somebody who uses it all the same."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Awaitable
from pathlib import Path

from tests.faults.sqlite.workloads import RESULT, new_job
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    ClaimRequest,
    Completed,
    JobError,
    JobFilter,
    Lane,
    NewJob,
    Retried,
    Settlement,
)
from tidewheel.errors import StoreError
from tidewheel.stores.sqlite import SqliteStore

PAGE = 4096
LANES = (Lane("mail"), Lane("print"))


async def make_database(path: Path) -> None:
    """Jobs in every state, with keys, results and errors, in a file of some hundred pages and no log."""
    store = SqliteStore(f"sqlite:///{path}?synchronous=normal")
    await store.open()
    await store.migrate()
    await store.enqueue(
        [
            NewJob(
                id=new_id(),
                topic=LANES[n % 2].topic,
                payload=b'"' + b"x" * 10 * n + b'"',
                key=f"key {n}" if n % 5 == 0 else None,
            )
            for n in range(200)
        ]
    )
    jobs = (await store.claim(ClaimRequest("worker", LANES, 60, 600))).jobs
    errored = Retried(0.0, JobError("broken", "it broke"))
    await store.settle(
        [Settlement(job.lease, Completed(RESULT) if n % 3 else errored) for n, job in enumerate(jobs[:40])]
    )
    await store.close()


def sqlite_notices(path: Path) -> bool:
    """Whether SQLite's own check, which is all there is to notice by, finds anything."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            return connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]
        except (sqlite3.Error, UnicodeDecodeError):
            return True


def flip_bits(content: bytes, luck: random.Random) -> bytes:
    flipped = bytearray(content)
    for _ in range(luck.choice([1, 1, 3, 20])):
        flipped[luck.randrange(len(content))] ^= 1 << luck.randrange(8)
    return bytes(flipped)


async def use_everything(path: Path) -> list[str]:
    """Call every verb. What was said about the file: by an error of ours, or by the check.

    Any other error ends the test, and so does a crash.
    """
    said: list[str] = []
    store = SqliteStore(f"sqlite:///{path}?busy_timeout=1&synchronous=normal")
    try:
        await store.open()
    except StoreError as error:
        return [str(error)]
    try:
        said += await _said_by(store.migrate())
        said += await _said_by(_check(store, said))
        for use in (_read, _write, _tidy):
            said += await _said_by(use(store))
    finally:
        await store.close()
    return said


async def _said_by(call: Awaitable[object]) -> list[str]:
    try:
        await call
    except StoreError as error:
        return [str(error)]
    return []


async def _check(store: SqliteStore, said: list[str]) -> None:
    said += await store.check()


async def _tidy(store: SqliteStore) -> None:
    await store.rescue()
    await store.prune()
    await store.topics()
    await store.workers()


async def _read(store: SqliteStore) -> None:
    for listed in (await store.list_jobs(JobFilter(), limit=200)).items:
        await store.get(listed.id)
    await store.count(JobFilter(text="x"))
    await store.stats(window_seconds=3600)


async def _write(store: SqliteStore) -> None:
    jobs = (await store.claim(ClaimRequest("worker", LANES, 50, 600))).jobs
    await store.settle([Settlement(job.lease, Completed(RESULT)) for job in jobs])
    await store.enqueue([new_job()])
