"""The store's own check finds what has been tampered with."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    ClaimRequest,
    Completed,
    JobError,
    Lane,
    NewJob,
    NewStep,
    Report,
    Retried,
    Settlement,
)
from tidewheel.errors import StoreError
from tidewheel.stores.sqlite import SqliteStore


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DELETE FROM tidewheel_bodies WHERE number = 1", "job 1 has no body"),
        ("DELETE FROM tidewheel_job_counts", "there are"),
        ("UPDATE tidewheel_job_counts SET n = n + 1", "says"),
        ("DELETE FROM tidewheel_job_keys", "has lost its key"),
        (
            "UPDATE tidewheel_jobs SET prune_at = 1 WHERE state = 3",
            "not to be pruned when its retention ends",
        ),
        ("UPDATE tidewheel_job_keys SET number = 2", "does not hold it"),
        ("UPDATE tidewheel_jobs SET attempt = 9 WHERE number = 1", "had 9 attempts of 3"),
        ("UPDATE tidewheel_sequences SET value = 0 WHERE name = 'number'", "sequence number is behind"),
        ("UPDATE tidewheel_sequences SET value = 0 WHERE name = 'fence'", "sequence fence is behind"),
        ("DELETE FROM tidewheel_sequences WHERE name = 'number'", "sequence number is missing"),
        ("DELETE FROM tidewheel_sequences WHERE name = 'fence'", "sequence fence is missing"),
        ("UPDATE tidewheel_jobs SET error_summary = NULL", "has attempts, but no error"),
        ("UPDATE tidewheel_results SET number = 77", "result 77 has no completed job"),
        ("UPDATE tidewheel_progress SET number = 77", "progress 77 has no job"),
        ("UPDATE tidewheel_attempts SET number = 77", "attempts of 77 have no job"),
        ("UPDATE tidewheel_steps SET number = 77", "steps of 77 have no job"),
        ("INSERT INTO tidewheel_bodies VALUES (77, 0, x'7b7d')", "body 77 has no job"),
    ],
)
async def test_damage_is_found(store: SqliteStore, path: Path, damage: str, words: str) -> None:
    """Each rule the code relies on is looked at."""
    await store.enqueue([NewJob(id=new_id(), topic="mail", key="k"), NewJob(id=new_id(), topic="mail")])
    first, second = (await store.claim(ClaimRequest("w", (Lane("mail"),), 2, 60))).jobs
    await store.report([Report(first.lease, checkpoint=b"{}", step=NewStep("fetch", b"1", 0.1))])
    await store.settle(
        [
            Settlement(first.lease, Retried(60, JobError("boom", "it broke")), 0.1),
            Settlement(second.lease, Completed(b"1"), 0.1),
        ]
    )
    assert await store.check() == []
    connection = sqlite3.connect(path)
    connection.execute(damage)
    connection.commit()
    connection.close()
    problems = await store.check()
    assert any(words in problem for problem in problems), problems


async def test_a_damaged_file_is_found(store: SqliteStore, path: Path) -> None:
    """Pages that were overwritten by somebody else are reported, at the latest by the check."""
    await store.enqueue([NewJob(id=new_id(), topic="mail") for _ in range(500)])
    await store.close()
    content = bytearray(path.read_bytes())
    for offset in range(8 * 4096, len(content), 4096):
        content[offset : offset + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        await _open_and_check(store)


async def _open_and_check(store: SqliteStore) -> None:
    await store.open()
    if problems := await store.check():
        raise StoreError(f"damaged: {problems}")
