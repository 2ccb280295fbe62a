"""The statements of the hot path read an index from its end and nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from windlass.stores.queries import Queries
from windlass.stores.sqlite import SqliteStore

QUERIES = {
    name: Queries("windlass.stores.sqlite.sql", f"{name}.sql")
    for name in ("claim", "rescue", "settle", "stats")
}


@pytest.mark.parametrize(
    ("file", "name", "index"),
    [
        ("claim", "ready_of_lane", "windlass_jobs_ready"),
        ("claim", "promote", "windlass_jobs_waiting"),
        ("claim", "next_task_of_topic", "windlass_jobs_ready"),
        ("claim", "lane_has_ready", "windlass_jobs_ready"),
        ("claim", "next_waiting", "windlass_jobs_waiting"),
        ("claim", "next_lease_end", "windlass_jobs_leased"),
        ("rescue", "ended_leases", "windlass_jobs_leased"),
        ("rescue", "expired", "windlass_jobs_expiring"),
        ("rescue", "prunable", "windlass_jobs_prunable"),
        ("settle", "cancelling", "windlass_jobs_leased"),
        ("stats", "oldest_waiting", "windlass_jobs_waiting"),
        ("stats", "oldest_promoted", "windlass_jobs_promoted"),
        ("stats", "oldest_of_priority", "windlass_jobs_ready"),
    ],
)
async def test_the_plan_uses_its_index_and_sorts_nothing(
    store: SqliteStore, path: Path, file: str, name: str, index: str
) -> None:
    """A claim costs the same beside a million finished, waiting or delayed jobs only if this holds."""
    statement = QUERIES[file][name]
    connection = sqlite3.connect(path)
    parameters = [0] * statement.count("?")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    connection.close()
    assert any(index in step for step in plan), plan
    assert not any("TEMP B-TREE" in step for step in plan), plan
    assert not any(step.startswith("SCAN windlass_jobs") and "INDEX" not in step for step in plan), plan
    assert not any(step.startswith("SCAN j") and "INDEX" not in step for step in plan), plan


@pytest.mark.parametrize(
    ("file", "name", "parameters"),
    [
        (
            "claim",
            "grant",
            {"first_fence": 1, "now": 0, "lease_us": 1, "worker": "w", "alone": 0, "numbers": "[]"},
        ),
        ("settle", "complete", [0] * 6),
    ],
)
async def test_granting_and_completing_find_rows_by_number(
    store: SqliteStore, path: Path, file: str, name: str, parameters: Any
) -> None:
    """The batch is read once and each row found by its key."""
    connection = sqlite3.connect(path)
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[file][name]}", parameters)]
    connection.close()
    assert any("SEARCH windlass_jobs USING INTEGER PRIMARY KEY" in step for step in plan), plan
