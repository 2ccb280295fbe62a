"""The view ``job_status``: what people's own SQL and dashboards read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from tests.stores.postgres.stores import opened, raw
from tidewheel.core.model import Completed, Failed, Progress, Report, Retried
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import (
    BOOM,
    claim_from,
    claim_one,
    enqueue_many,
    enqueue_one,
    settle_one,
)

COLUMNS = [
    "job_id", "tenant", "topic", "task", "state", "shown_state", "attempt", "max_attempts", "priority",
    "correlation_id", "user_id", "progress_percent", "progress_message", "progress_stage", "error_summary",
    "created_at", "run_at", "started_at", "finished_at",
]  # fmt: skip


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as [store]:
        yield store


async def test_every_job_is_there_in_words_and_times(store: PostgresStore, postgres_url: str) -> None:
    """Wherever it is kept, with the names of states that Tidewheel itself shows."""
    await enqueue_one(store, "done", correlation_id="c", user_id="u", priority=3, task="t", tenant="acme")
    lease = (await claim_one(store, "done")).lease
    await store.report([Report(lease, Progress(50.0, "half", "one"))])
    await settle_one(store, lease, Completed(b"1"), 0.5)
    await enqueue_one(store, "bad")
    await settle_one(store, (await claim_one(store, "bad")).lease, Failed(BOOM), 0.5)
    await store.cancel([await enqueue_one(store, "no")])
    await enqueue_one(store, "again")
    await settle_one(store, (await claim_one(store, "again")).lease, Retried(600.0, BOOM))
    await enqueue_one(store, "later", delay=600.0)
    await enqueue_one(store, "now")
    await enqueue_one(store, "claimed")
    await claim_one(store, "claimed")
    await enqueue_one(store, "running")
    await store.mark_started([(await claim_one(store, "running")).lease])
    await enqueue_many(store, 25, "packed")
    await claim_from(store, "packed")
    async with raw(postgres_url) as connection:
        rows = await connection.fetch("SELECT * FROM job_status")
        assert list(rows[0].keys()) == COLUMNS
    now = await store.now()
    assert len(rows) == 33
    for row in rows:
        record = await store.get(row["job_id"])
        assert record is not None
        assert (row["state"], row["shown_state"]) == (record.state.value, record.shown_state(now))
        for name in (
            "tenant",
            "topic",
            "task",
            "attempt",
            "max_attempts",
            "priority",
            "correlation_id",
            "user_id",
        ):
            assert row[name] == getattr(record, name)
        for name in ("created_at", "run_at", "started_at", "finished_at"):
            moment = getattr(record, name)
            expected = (
                None
                if moment is None
                else datetime.fromtimestamp(moment // 10**6, UTC).replace(microsecond=moment % 10**6)
            )
            assert row[name] == expected
        assert row["error_summary"] == record.error_summary
    [done] = [row for row in rows if row["topic"] == "done"]
    assert (done["progress_percent"], done["progress_message"], done["progress_stage"]) == (
        50.0,
        "half",
        "one",
    )
    assert {row["shown_state"] for row in rows} == {
        "pending", "delayed", "retrying", "claimed", "running", "completed", "failed", "cancelled",
    }  # fmt: skip


async def test_one_job_is_found_by_its_id_without_reading_all(
    store: PostgresStore, postgres_url: str
) -> None:
    """A dashboard may ask for a job among millions."""
    [job_id, *_] = await enqueue_many(store, 50)
    async with raw(postgres_url) as connection:
        await connection.execute("SET enable_seqscan = off")
        plan = await connection.fetch("EXPLAIN SELECT * FROM job_status WHERE job_id = $1", job_id)
        text = "\n".join(row[0] for row in plan)
        assert "jobs_pkey" in text
        assert "finished_jobs_pkey" in text
        assert "Seq Scan" not in text
