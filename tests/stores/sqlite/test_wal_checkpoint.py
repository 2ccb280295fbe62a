"""The write-ahead log stays bounded, and is only ever reset under the write lock."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidewheel.core.ids import new_id
from tidewheel.core.model import NewJob
from tidewheel.stores.sqlite import SqliteStore, wal_checkpoint
from tidewheel.stores.sqlite.connection import connect
from tidewheel.stores.sqlite.location import parse_url

BODY = b'"' + b"x" * 60_000 + b'"'


def _log_size(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def _write(store: SqliteStore, number: int) -> None:
    for _ in range(number):
        await store.enqueue([NewJob(id=new_id(), topic="mail", payload=BODY)])


@pytest.fixture
async def store(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteStore]:
    """With a log that is short from the start."""
    monkeypatch.setattr(wal_checkpoint, "CHECKPOINT_BYTES", 500_000)
    opened = SqliteStore(f"sqlite:///{path}")
    await opened.migrate()
    await opened.open()
    yield opened
    await opened.close()


async def test_the_log_is_restarted_when_it_has_grown_and_its_file_is_used_again(
    store: SqliteStore, path: Path
) -> None:
    """Hundreds of commits later it is as short as after the first few, and commits do not make it longer."""
    await _write(store, 20)
    sizes = set()
    for _ in range(100):
        await _write(store, 1)
        sizes.add(_log_size(path))
    assert max(sizes) < 700_000
    assert min(sizes) == 500_000


async def test_a_file_that_nobody_cut_off_is_not_taken_for_a_full_log(store: SqliteStore, path: Path) -> None:
    """Somebody else's connection was the first to write after the restart; one checkpoint was enough."""
    location = parse_url(store.url)
    connection, other = connect(location), sqlite3.connect(path, isolation_level=None)
    checkpointer = wal_checkpoint.Checkpointer(location, connection)
    other.execute("PRAGMA wal_autocheckpoint = 0")
    other.execute("CREATE TABLE theirs (x)")
    checkpoints: list[str] = []
    connection.set_trace_callback(lambda text: checkpoints.append(text) if "wal_checkpoint" in text else None)
    while not checkpoints:
        connection.execute("INSERT INTO theirs VALUES (zeroblob(60000))")
        checkpointer.after_commit()
    for writer in (other, connection, connection):
        writer.execute("INSERT INTO theirs VALUES (zeroblob(60000))")
        checkpointer.after_commit()
    assert _log_size(path) > 500_000
    assert len(checkpoints) == 1
    for each in (checkpointer, connection, other):
        each.close()


async def test_nothing_is_copied_while_somebody_else_can_commit(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that races a commit can corrupt the file in an old SQLite: no lock, no checkpoint."""
    monkeypatch.setattr(wal_checkpoint, "RETRY_SECONDS", 0.0)
    location = parse_url(store.url)
    connection, other = connect(location), sqlite3.connect(path, isolation_level=None)
    checkpointer = wal_checkpoint.Checkpointer(location, connection)
    connection.execute("CREATE TABLE theirs (x)")
    connection.execute("INSERT INTO theirs VALUES (zeroblob(1000000))")
    before = path.stat()
    other.execute("BEGIN IMMEDIATE")
    checkpointer.after_commit()
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    other.execute("ROLLBACK")
    checkpointer.after_commit()
    assert path.stat().st_size > before.st_size + 1_000_000
    for each in (checkpointer, connection, other):
        each.close()


async def test_nobody_can_commit_while_the_log_is_copied(store: SqliteStore, path: Path) -> None:
    """The lock is there before the copy begins, and until it has ended."""
    location = parse_url(store.url)
    connection, other = connect(location), sqlite3.connect(path, isolation_level=None, timeout=0)
    checkpointer = wal_checkpoint.Checkpointer(location, connection)
    connection.execute("CREATE TABLE theirs (x)")
    connection.execute("INSERT INTO theirs VALUES (zeroblob(1000000))")
    tried: list[str] = []

    def try_to_write(statement: str) -> None:
        if "wal_checkpoint" in statement:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                tried.append(str(error))

    connection.set_trace_callback(try_to_write)
    checkpointer.after_commit()
    assert tried == ["database is locked"]
    other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")
    for each in (checkpointer, connection, other):
        each.close()


async def test_the_log_stays_bounded_while_readers_come_and_go_without_a_gap(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overlapping readers would keep the log for ever; holding writers back lets the old ones end."""
    monkeypatch.setattr(wal_checkpoint, "BLOCKING_CHECKPOINT_BYTES", 1_000_000)
    monkeypatch.setattr(wal_checkpoint, "READER_WAIT_SECONDS", 0.15)
    monkeypatch.setattr(wal_checkpoint, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(wal_checkpoint, "PATIENT_RETRY_SECONDS", 0.0)
    stop = asyncio.Event()

    def read(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM tidewheel_jobs").fetchone()

    async def overlapping() -> None:
        readers = [sqlite3.connect(path, isolation_level=None, check_same_thread=False) for _ in range(2)]
        read(readers[0])
        turn = 0
        while not stop.is_set():
            await asyncio.sleep(0.02)
            old, new = readers[turn % 2], readers[(turn + 1) % 2]
            read(new)
            old.execute("COMMIT")
            turn += 1
        for reader in readers:
            reader.close()

    reading = asyncio.create_task(overlapping())
    sizes = []
    for _ in range(12):
        await _write(store, 20)
        sizes.append(_log_size(path))
    stop.set()
    await reading
    # 240 jobs are about 15 MB of log; with the old readers waited for, each round starts small again.
    assert max(sizes) < 5_000_000, sizes


async def test_a_reader_that_never_ends_is_reported_and_the_log_shrinks_after_it(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can reset a log somebody reads; the operator is told once, and writers go on."""
    monkeypatch.setattr(wal_checkpoint, "BLOCKING_CHECKPOINT_BYTES", 1_000_000)
    monkeypatch.setattr(wal_checkpoint, "READER_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(wal_checkpoint, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(wal_checkpoint, "PATIENT_RETRY_SECONDS", 0.0)
    caplog.set_level(logging.WARNING, "tidewheel.sqlite")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM tidewheel_jobs").fetchone()
    await _write(store, 40)
    assert _log_size(path) > 1_000_000
    assert caplog.text.count("cannot be reset") == 1
    reader.execute("COMMIT")
    reader.close()
    await _write(store, 2)  # the first restarts the log, the second cuts its file off
    assert _log_size(path) == 500_000


async def test_no_connection_of_ours_checkpoints_by_itself(store: SqliteStore) -> None:
    """SQLite's automatic checkpoint can race a commit; ours holds the write lock."""
    assert store._open is not None
    writer, reader, _ = store._open
    assert writer._connection.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    settings = await reader.run(
        lambda connection: [
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("wal_autocheckpoint", "query_only", "synchronous")
        ]
    )
    assert settings == [0, 1, 2]
    assert writer._connection.execute("PRAGMA synchronous").fetchone() == (2,)
