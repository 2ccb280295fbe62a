"""Pruning holds SQLite's one write lock for a moment only, and the file does not grow by it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tidewheel.core.model import Completed, JobFilter, Settlement, State
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.stores.sqlite import SqliteStore, maintenance
from tidewheel.testing.conformance.helpers import claim_jobs, enqueue_many


async def _complete(store: SqliteStore, number: int, payload: bytes = b"{}") -> None:
    await enqueue_many(store, number, payload=payload, retention=0.0)
    jobs = await claim_jobs(store, limit=number)
    await store.settle([Settlement(job.lease, Completed()) for job in jobs])


async def test_a_call_ends_when_it_has_held_the_lock_long_enough(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is for the next one; each part is counted once."""
    monkeypatch.setattr(maintenance, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr(maintenance, "PRUNE_BATCH", 5)
    await _complete(store, 12)
    removed = [(await store.prune()).get(State.COMPLETED) for _ in range(4)]
    assert removed == [5, 5, 2, None]
    assert await store.check() == []


async def test_a_part_is_bounded_by_bytes_as_well(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large bodies are chains of pages; fifty of them at once would be a long pause. One goes in any case."""
    monkeypatch.setattr(maintenance, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr(maintenance, "PRUNE_BATCH_BYTES", 12_000)
    await _complete(store, 5, b'"' + b"x" * 5_000 + b'"')
    removed = [(await store.prune()).get(State.COMPLETED) for _ in range(4)]
    assert removed == [2, 2, 1, None]
    await _complete(store, 1, b'"' + b"x" * 20_000 + b'"')
    assert await store.prune() == {State.COMPLETED: 1}


async def test_the_room_of_pruned_jobs_is_used_again(store: SqliteStore, path: Path) -> None:
    """The file does not shrink, and does not grow either."""

    def pages() -> int:
        with closing(sqlite3.connect(path)) as connection:
            return int(connection.execute("PRAGMA page_count").fetchone()[0])

    most = 0
    for turn in range(4):
        await _complete(store, 300, b'"' + b"x" * 1_000 + b'"')
        if turn == 1:
            most = pages()
        while await store.prune():
            pass
        assert (await store.count(JobFilter())).total == 0
    assert pages() <= most


async def test_a_pause_that_has_ended_leaves_nothing_for_claims_to_look_at(
    store: SqliteStore, path: Path
) -> None:
    """Nor does it take a limit with it."""
    now = await store.now()
    await store.set_limits("limited", TopicLimits(concurrency=1))
    for topic, until in (("over", now - 1), ("limited", now - 1), ("paused", now + 60_000_000)):
        await store.pause(topic, until)
    await store.prune()
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT topic FROM tidewheel_topics ORDER BY topic").fetchall()
    connection.close()
    assert [topic for (topic,) in rows] == ["limited", "paused"]
