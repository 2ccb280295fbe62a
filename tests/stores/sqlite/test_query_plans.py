"""The statements of the hot path read an index from its end and nothing else."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tidewheel.core.conditions import (
    AnyOf,
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    Field,
    InState,
    Not,
)
from tidewheel.core.model import ROOT_TENANT, Count, DerivedState, JobFilter, State
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite import SqliteStore, job_queries
from tidewheel.stores.sqlite.tenant_scope import execute_for_tenant

QUERIES = {
    name: SqlFile("tidewheel.stores.sqlite", f"sql/{name}.sql")
    for name in ("claims", "maintenance", "pull", "settlements", "statistics")
}

TOPIC_FEW = Compare(Field.TOPIC, Comparison.EQUAL, "few")
NOT_PENDING_OR_COMPLETED = Not(AnyOf((InState(State.PENDING), InState(State.COMPLETED))))
TOPIC_NONE = Compare(Field.TOPIC, Comparison.EQUAL, "none")


@pytest.mark.parametrize(
    ("file", "name", "index"),
    [
        ("claims", "ready_of_lane", "tidewheel_jobs_ready"),
        ("claims", "promote", "tidewheel_jobs_waiting"),
        ("claims", "tasks_of_topic", "tidewheel_jobs_ready"),
        ("claims", "lane_has_ready", "tidewheel_jobs_ready"),
        ("claims", "next_deadlines", "tidewheel_jobs_waiting"),
        ("claims", "next_deadlines", "tidewheel_jobs_leased"),
        ("claims", "next_deadlines", "tidewheel_jobs_expiring"),
        ("maintenance", "expired_leases", "tidewheel_jobs_leased"),
        ("maintenance", "expired_jobs", "tidewheel_jobs_expiring"),
        ("maintenance", "overdue_jobs", "tidewheel_jobs_retention"),
        ("settlements", "cancel_requests", "tidewheel_jobs_leased"),
        ("statistics", "unpromoted", "tidewheel_jobs_waiting"),
        ("statistics", "blocked", "tidewheel_jobs_blocked"),
        ("statistics", "oldest_waiting", "tidewheel_jobs_waiting"),
        ("statistics", "oldest_promoted", "tidewheel_jobs_promoted"),
        ("statistics", "first_never_delayed", "tidewheel_jobs_pending"),
        ("statistics", "next_of_priority", "tidewheel_jobs_ready"),
        ("pull", "failed_by_time", "tidewheel_jobs_failed"),
        ("pull", "delayed_by_time", "tidewheel_jobs_delayed"),
        ("pull", "first_failed", "tidewheel_jobs_failed"),
        ("pull", "first_delayed", "tidewheel_jobs_delayed"),
        ("pull", "first_ready_of_lane", "tidewheel_jobs_ready"),
        ("pull", "unpromoted_in_topics", "tidewheel_jobs_delayed"),
        ("pull", "lowest_priorities", "tidewheel_jobs_ready"),
        ("pull", "urgent", "tidewheel_jobs_ready"),
    ],
)
async def test_the_plan_uses_its_index_and_sorts_nothing(
    store: SqliteStore, path: Path, file: str, name: str, index: str
) -> None:
    """A claim costs the same beside a million finished, waiting or delayed jobs only if this holds.

    Whatever tenant the statement is about, where it is about one.
    """
    connection = sqlite3.connect(path)
    for tenant in (None, ROOT_TENANT, "acme") if "{tenant}" in QUERIES[file][name] else (None,):
        plan = _plan(connection, QUERIES[file][name], tenant, index)
        assert any(index in step for step in plan), plan
        assert not any("TEMP B-TREE" in step for step in plan), plan
        assert not any(step.startswith("SCAN tidewheel_jobs") and "INDEX" not in step for step in plan), plan
        assert not any(step.startswith("SCAN j") and "INDEX" not in step for step in plan), plan
    connection.close()


@pytest.mark.parametrize("index", ["tidewheel_jobs_tenant", "tidewheel_jobs_pending"])
async def test_a_tenants_longest_wait_is_found_by_either_index(
    store: SqliteStore, path: Path, index: str
) -> None:
    """Whichever has fewer jobs to look at; SQLite refuses an index that cannot serve."""
    connection = sqlite3.connect(path)
    statement = QUERIES["statistics"]["oldest_of_tenant"].replace("{index}", index)
    assert any(index in step for step in _plan(connection, statement, "acme"))
    connection.close()


def _plan(connection: sqlite3.Connection, statement: str, tenant: str | None, index: str = "") -> list[str]:
    explained = f"EXPLAIN QUERY PLAN {statement}"
    parameters = [0] * statement.count("?")
    if "{tenant}" in statement:
        parts = {"columns": "*", "urgent": "0", "index": index}
        return [row[3] for row in execute_for_tenant(connection, explained, tenant, parameters, **parts)]
    return [row[3] for row in connection.execute(explained, parameters or {"topic": ""})]


async def test_the_first_job_of_each_lane_is_looked_up_in_the_index(store: SqliteStore, path: Path) -> None:
    """Also from one priority to the next: a level costs the same, however many jobs are in it."""
    connection = sqlite3.connect(path)
    statement = f"EXPLAIN QUERY PLAN {QUERIES['statistics']['first_of_lanes']}"
    plan = [row[3] for row in connection.execute(statement, (1,))]
    connection.close()
    jobs = [step for step in plan if "tidewheel_jobs" in step]
    assert len(jobs) == 3
    assert all(step.startswith("SEARCH j USING") and "tidewheel_jobs_ready" in step for step in jobs), plan
    assert not any("TEMP B-TREE FOR ORDER BY" in step for step in plan), plan


@pytest.mark.parametrize(
    ("file", "name", "parameters"),
    [
        (
            "claims",
            "grant",
            {"first_fence": 1, "now": 0, "lease_us": 1, "worker": "w", "counts_if_lost": 0, "numbers": "[]"},
        ),
        ("settlements", "complete", (0, 0, 1, 1, 0, 0)),
    ],
)
async def test_granting_and_completing_find_rows_by_number(
    store: SqliteStore, path: Path, file: str, name: str, parameters: Any
) -> None:
    """The batch is read once and each row found by its key."""
    connection = sqlite3.connect(path)
    statement = QUERIES[file][name].replace("{rows}", "(?, ?, ?)")
    statement = statement.replace("{without_dependents}", "AND has_dependents = 0")
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    connection.close()
    assert any("SEARCH tidewheel_jobs USING INTEGER PRIMARY KEY" in step for step in plan), plan


async def test_a_claim_looks_at_the_chosen_jobs_in_their_order(store: SqliteStore, path: Path) -> None:
    """Best first: the list of numbers is the outer loop, and everything else is found by number."""
    connection = sqlite3.connect(path)
    parameters = {"numbers": "[]", "lease_us": 1, "small": 1}
    statement = f"EXPLAIN QUERY PLAN {QUERIES['claims']['chosen_jobs']}"
    plan = [row[3] for row in connection.execute(statement, parameters)]
    connection.close()
    assert plan[0].startswith("SCAN chosen VIRTUAL TABLE"), plan
    assert plan[1:] == [f"SEARCH {table} USING INTEGER PRIMARY KEY (rowid=?)" for table in "jb"]


@pytest.mark.parametrize(
    "condition",
    [None, Compare(Field.USER_ID, Comparison.EQUAL, "u"), ComparePayload((), Comparison.EQUAL, 1)],
    ids=["fields", "column", "payload"],
)
@pytest.mark.parametrize(
    ("where", "index"),
    [
        (JobFilter(state=State.PENDING), "tidewheel_jobs_pending"),
        (JobFilter(state=State.RUNNING), "tidewheel_jobs_leased"),
        (JobFilter(state=State.COMPLETED), "tidewheel_jobs_completed"),
        (JobFilter(state=State.FAILED), "tidewheel_jobs_failed_or_cancelled"),
        (JobFilter(state=State.CANCELLED), "tidewheel_jobs_failed_or_cancelled"),
        (JobFilter(state=DerivedState.RETRYING), "tidewheel_jobs_retrying"),
        (JobFilter(state=DerivedState.BLOCKED), "tidewheel_jobs_blocked"),
        (JobFilter(topic="mail"), "tidewheel_jobs_topic"),
        (JobFilter(key="k"), "tidewheel_jobs_key"),
        (JobFilter(correlation_id="c"), "tidewheel_jobs_correlation"),
        (JobFilter(tenant="acme"), "tidewheel_jobs_tenant"),
        (JobFilter(tenant="acme", state=State.RUNNING), "tidewheel_jobs_leased"),
        (JobFilter(tenant="acme", key="k"), "tidewheel_jobs_key"),
        (JobFilter(tenant="acme", correlation_id="c"), "tidewheel_jobs_correlation"),
        (JobFilter(tenant=ROOT_TENANT, state=State.PENDING), "tidewheel_jobs_pending"),
        (JobFilter(tenant=ROOT_TENANT, topic="mail"), "tidewheel_jobs_topic"),
    ],
)
async def test_a_list_reads_the_index_of_what_it_shows(
    store: SqliteStore, path: Path, where: JobFilter, index: str, condition: Condition | None
) -> None:
    """The first page is as quick beside a million other jobs; a search walks through the same ones."""
    statements: list[str] = []
    connection = sqlite3.connect(path)
    connection.set_trace_callback(statements.append)
    sought = replace(where, condition=condition)
    job_queries.list_jobs(connection, sought, limit=50, cursor=None, offset=0, now=0)
    connection.set_trace_callback(None)
    [page] = [statement for statement in statements if "ORDER BY j.number DESC" in statement]
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {page}")]
    connection.close()
    assert any(index in step for step in plan), plan
    # What leaves few jobs may be put in order; everything else has to come in order.
    few = ("tidewheel_jobs_leased", "tidewheel_jobs_key", "tidewheel_jobs_correlation")
    assert index in few or not any("TEMP B-TREE" in step for step in plan), plan


@pytest.mark.parametrize(
    ("where", "indexes"),
    [
        (JobFilter(topic="few", state=State.FAILED), ["failed_or_cancelled"]),
        (JobFilter(topic="few", state=State.COMPLETED), ["topic"]),
        (JobFilter(topic="many", state=State.COMPLETED), ["completed"]),
        (JobFilter(topic="many", state=State.PENDING), ["pending"]),
        (JobFilter(topic="few", state=State.PENDING), ["topic"]),
        (JobFilter(task="many", state=State.PENDING), ["pending"]),
        (JobFilter(task="few", state=State.PENDING), ["topic"]),
        (JobFilter(tenant="acme", state=State.PENDING), ["tenant"]),
        (JobFilter(tenant="acme", topic="few"), ["tenant"]),
        (JobFilter(tenant="acme", state=State.CANCELLED), ["failed_or_cancelled"]),
        (JobFilter(topic="many", state=DerivedState.RETRYING), ["retrying"]),
        (JobFilter(topic="many", state=DerivedState.DELAYED), ["waiting"]),
        (JobFilter(condition=NOT_PENDING_OR_COMPLETED), ["leased", *["failed_or_cancelled"] * 2]),
        (JobFilter(condition=AnyOf((TOPIC_FEW, TOPIC_NONE))), ["topic", "topic"]),
        (JobFilter(state=State.COMPLETED, condition=AnyOf((TOPIC_FEW, TOPIC_NONE))), ["topic", "topic"]),
    ],
)  # fmt: skip
async def test_counters_choose_the_index_with_the_fewest_jobs(
    store: SqliteStore, path: Path, where: JobFilter, indexes: list[str]
) -> None:
    """The planner, which has no statistics, would take any; several states or topics are several walks."""
    connection = sqlite3.connect(path)
    connection.executemany(
        "INSERT INTO tidewheel_job_counts (tenant, topic, task, state, n) VALUES (?, ?, ?, ?, ?)",
        [
            ("root", "few", "few", 1, 50),
            ("root", "few", "few", 3, 50),
            ("root", "many", "many", 1, 1000),
            ("root", "many", "many", 3, 600),
            ("root", "many", "many", 4, 900),
            ("acme", "many", "many", 1, 40),
            ("acme", "many", "many", 5, 9),
            ("acme", "few", "few", 3, 1),
        ],
    )
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    job_queries.list_jobs(connection, where, limit=50, cursor=10**6, offset=0, now=0)
    connection.set_trace_callback(None)
    pages = [statement for statement in statements if "ORDER BY j.number DESC" in statement]
    plans = [" ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {page}")) for page in pages]
    connection.close()
    assert len(plans) == len(indexes)
    for plan, index in zip(plans, indexes, strict=True):
        assert f"tidewheel_jobs_{index} " in plan, plans
        # What leaves few jobs may be put in order; everything else has to come in order.
        assert index in ("leased", "waiting") or "TEMP B-TREE" not in plan, plans


@pytest.mark.parametrize(
    "where",
    [
        JobFilter(),
        JobFilter(topic="few", state=State.FAILED),
        JobFilter(task="few", tenant="acme"),
        JobFilter(condition=AnyOf((InState(State.FAILED), TOPIC_FEW))),
        JobFilter(tenant="acme", condition=Not(InState(State.COMPLETED))),
    ],
)
async def test_counts_that_counters_tell_do_not_look_at_jobs(
    store: SqliteStore, path: Path, where: JobFilter
) -> None:
    """However many there are."""
    statements: list[str] = []
    connection = sqlite3.connect(path)
    connection.set_trace_callback(statements.append)
    assert job_queries.count(connection, where, 0, beyond=True) == Count(0)
    connection.close()
    assert statements
    assert not [statement for statement in statements if "tidewheel_jobs" in statement]


def test_no_parameter_has_a_number() -> None:
    """From Python 3.14 on the driver takes numbered ones only from a mapping, and before that it warns."""
    found = [
        file for file in (files("tidewheel.stores.sqlite") / "sql").iterdir() if file.name.endswith(".sql")
    ]
    assert found
    assert not [file.name for file in found if re.search(r"\?\d", file.read_text("utf-8"))]
