"""The store's own check finds what has been tampered with."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers.shared import fresh_url
from tidewheel.core.model import Completed, JobError, NewStep, Report, Retried, Settlement
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import claim_jobs, enqueue_many, job

NOBODY = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    """With a key, a large body, progress, a step, an error and a result."""
    store = PostgresStore(fresh_url())
    await store.open()
    await store.migrate()
    await store.enqueue([job(key="k"), job(payload=b'"' + b"x" * 5000 + b'"', retention=60)])
    first, second = await claim_jobs(store)
    await store.report([Report(first.lease, checkpoint=b"{}", step=NewStep("fetch", b"1", 0.1))])
    retried = Retried(60, JobError("boom", "it broke"))
    await store.settle(
        [Settlement(first.lease, retried, 0.1), Settlement(second.lease, Completed(b"1"), 0.1)]
    )
    yield store
    await store._database.fetch("DROP SCHEMA {schema} CASCADE")
    await store.close()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DELETE FROM {schema}.bodies", "job 2 has no body"),
        ("UPDATE {schema}.jobs SET payload = NULL", "job 1 has no body"),
        ("UPDATE {schema}.bodies SET payload = NULL", "job 2 has no body"),
        ("DELETE FROM {schema}.counter_deltas", "there are"),
        ("UPDATE {schema}.counter_deltas SET waiting = waiting + 1", "says"),
        ("DELETE FROM {schema}.job_keys", "job 1 has lost its key k"),
        ("UPDATE {schema}.job_keys SET id = '00000000-0000-0000-0000-000000000001'", "does not hold it"),
        ("UPDATE {schema}.job_keys SET scope = 'other'", "does not hold it"),
        ("UPDATE {schema}.retention_queue SET ids = ARRAY[]::uuid[]", "job 2 would never be pruned"),
        (
            "UPDATE {schema}.finished_jobs SET prune_at = 1",
            "job 2 is not to be pruned when its retention ends",
        ),
        ("UPDATE {schema}.jobs SET attempt = 9", "job 1 had 9 attempts of 3"),
        ("UPDATE {schema}.jobs SET error_summary = NULL", "job 1 has attempts, but no error"),
        ("UPDATE {schema}.finished_jobs SET state = 4", "job 2 has a result, but has not completed"),
        ("SELECT setval('{schema}.numbers', 1)", "sequence numbers is behind"),
        ("SELECT setval('{schema}.fences', 1)", "sequence fences is behind"),
        ("UPDATE {schema}.finished_jobs SET number = 1", "number 1 was given to 2 jobs"),
        ("UPDATE {schema}.finished_jobs SET id = (SELECT id FROM {schema}.jobs)", "in more than one place"),
        (f"UPDATE {{schema}}.progress SET id = '{NOBODY}'", f"progress {NOBODY} has no job"),  # noqa: S608
        (f"UPDATE {{schema}}.attempts SET id = '{NOBODY}'", f"attempts of {NOBODY} have no job"),  # noqa: S608
        (f"UPDATE {{schema}}.steps SET id = '{NOBODY}'", f"steps of {NOBODY} have no job"),  # noqa: S608
        ("UPDATE {schema}.steps SET tenant = 'other'", "have no job of tenant other"),
        (f"INSERT INTO {{schema}}.bodies VALUES ('{NOBODY}', 'root', '1')", f"body {NOBODY} has no job"),  # noqa: S608
    ],
)
async def test_damage_is_found(store: PostgresStore, damage: str, words: str) -> None:
    """Each rule the code relies on is looked at."""
    assert await store.check() == []
    await store._database.fetch(damage)
    problems = await store.check()
    assert any(words in problem for problem in problems), problems


async def test_a_rule_broken_many_times_is_told_twenty_times(store: PostgresStore) -> None:
    """More would say little, and a million lines nothing."""
    await enqueue_many(store, 30)
    await store._database.fetch("UPDATE {schema}.jobs SET payload = NULL")
    assert sum("has no body" in problem for problem in await store.check()) == 20
