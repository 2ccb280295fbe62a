"""What is appended to the counters is added up in time, so that statistics and lists stay cheap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.patience import PATIENCE
from tests.servers.postgres import PostgresServer
from tests.servers.shared import fresh_url
from tests.stores.postgres.stores import opened, own_database
from tidewheel.core.model import Completed, Settlement
from tidewheel.stores.postgres import PostgresStore, maintenance
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import claim_one, enqueue_many, job, make_cancelled

HOUR = 3600.0


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    store = PostgresStore(fresh_url(), clock=FrozenClock())
    await store.open()
    await store.migrate()
    yield store
    await store._database.fetch("DROP SCHEMA {schema} CASCADE")
    await store.close()


async def _rows(store: PostgresStore, table: str) -> int:
    return int(await store._database.fetchval(f"SELECT count(*) FROM {{schema}}.{table}"))  # noqa: S608


async def _pages(store: PostgresStore, table: str) -> int:
    size = await store._database.fetchval(f"SELECT pg_relation_size('{{schema}}.{table}')")
    return int(size) // 8192


async def _complete(store: PostgresStore, topic: str) -> None:
    await store.settle([Settlement((await claim_one(store, topic)).lease, Completed(), 0.1)])


@pytest.mark.parametrize("verb", ["cancel", "requeue", "delete"])
async def test_operating_adds_the_counters_up_as_well(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A million jobs cancelled, by a program that does nothing else, leave no million rows behind."""
    jobs = await enqueue_many(store, 10)
    if verb != "cancel":
        await store.cancel(jobs)
    monkeypatch.setattr(maintenance, "ROLLUP_AFTER_JOBS", 10)
    await getattr(store, verb)(jobs)
    if store._counter_rollup.running is not None:  # it may be done by now
        await store._counter_rollup.running
    assert await _rows(store, "counter_deltas") == 0
    assert await store.check() == []


@pytest.mark.parametrize("verb", ["cancel", "requeue", "delete"])
async def test_operating_appends_a_row_for_each_lane(store: PostgresStore, verb: str) -> None:
    """Not one for each job, which others would have to read until it is added up and vacuumed."""
    jobs = [*await enqueue_many(store, 5, "a"), *await enqueue_many(store, 5, "b", delay=60)]
    if verb != "cancel":
        await store.cancel(jobs)
    await store._counter_rollup.run()
    await getattr(store, verb)(jobs)
    assert await _rows(store, "counter_deltas") == 2
    assert await store.check() == []


async def test_more_is_added_up_at_a_time_than_is_appended_meanwhile(store: PostgresStore) -> None:
    """Three rows for each job, which is what one that errs may take; otherwise they would gather for good."""
    await store._database.fetch(
        "INSERT INTO {schema}.counter_deltas (minute, tenant, topic, task, ready, cancelled_events)"
        " SELECT 0, 'root', 'mail', '', 0, 1 FROM generate_series(1, $1)",
        3 * maintenance.ROLLUP_AFTER_JOBS,
    )
    await store._counter_rollup.run()
    assert await _rows(store, "counter_deltas") == 0


async def test_a_burst_leaves_no_empty_pages_for_every_look_to_walk_through(postgres: PostgresServer) -> None:
    """A thousand busy topics leave a hundred megabytes; statistics took ten times as long for ever after."""
    # In a database of its own: snapshots of other tests would keep the rows.
    async with own_database(postgres) as database, opened(postgres.url(database)) as [store]:
        for _ in range(5):
            await store.enqueue([job(f"topic-{number}") for number in range(1000)])
        assert await _pages(store, "counter_deltas") > 20
        await store._counter_rollup.run()
        async with asyncio.timeout(PATIENCE):
            while await _pages(store, "counter_deltas") > 0:
                # Outside a transaction. While somebody looks at the table, it leaves pages and returns.
                await store._database.fetch("VACUUM {schema}.counter_deltas")


async def test_minutes_are_as_many_as_there_are_things_that_happened(store: PostgresStore) -> None:
    """Not more with a thousand topics, each of which would be read for every look at the statistics."""
    await store.enqueue([job(f"topic-{number}") for number in range(100)])
    await store._counter_rollup.run()
    assert await _rows(store, "minute_metrics") == 1


async def test_adding_up_changes_no_statistics(store: PostgresStore) -> None:
    """What was appended counts as much as what was added up, and all of it may be in both."""
    for topic in ("a", "b"):
        await enqueue_many(store, 3, topic)
        await _complete(store, topic)
        await make_cancelled(store, topic)
    appended = await store.stats(window_seconds=HOUR)
    await store._counter_rollup.run()
    assert await _rows(store, "counter_deltas") == 0
    assert await store.stats(window_seconds=HOUR) == appended
    for topic in ("b", "c"):
        await enqueue_many(store, 3, topic)
        await _complete(store, topic)
    partly = await store.stats(window_seconds=HOUR)
    assert partly.run_time.count == appended.run_time.count + 2
    await store._counter_rollup.run()
    assert await store.stats(window_seconds=HOUR) == partly
