"""Searches on SQLite end in time, and say how far they came."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidewheel.core.conditions import (
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    ContainsText,
    Field,
)
from tidewheel.core.model import JobFilter
from tidewheel.stores.protocol import Store
from tidewheel.stores.sqlite import SqliteStore, job_queries
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import enqueue_many, enqueue_one

CONDITIONS: dict[str, Condition] = {
    "column": Compare(Field.USER_ID, Comparison.EQUAL, "needle"),
    "text": ContainsText("needle"),
    "payload": ComparePayload((), Comparison.EQUAL, "needle"),
}


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def store(tmp_path: Path, clock: FrozenClock) -> AsyncIterator[Store]:
    store = SqliteStore(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=normal", clock=clock)
    await store.open()
    await store.migrate()
    yield store
    await store.close()


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
async def test_a_search_that_runs_out_of_time_says_how_far_it_came(
    store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, condition: Condition
) -> None:
    """The cursor goes on from there, until everything has been looked into; a count is not exact."""
    oldest = await enqueue_one(store, payload=b'"needle"', user_id="needle")
    clock.advance(1)
    [middle, _] = await enqueue_many(store, 2)
    moment = clock.now()
    monkeypatch.setattr(job_queries, "SEARCH_SECONDS", -1.0)  # over before it began: one job a page
    where = JobFilter(condition=condition)
    first = await store.list_jobs(where, limit=10)
    assert (first.items, first.partial, first.searched_back_to) == ((), True, moment)
    second = await store.list_jobs(where, limit=10, cursor=first.cursor)
    assert second.cursor == (await _number(store, middle))
    third = await store.list_jobs(where, limit=10, cursor=second.cursor)
    assert [item.id for item in third.items] == [oldest]
    count = await store.count(where)
    assert (count.total, count.exact) == (0, False)


@pytest.mark.parametrize("kind", CONDITIONS)
async def test_a_search_by_columns_gives_up_sooner(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It looks like any other filter, so people wait a second for it, with all that is on the way."""
    await enqueue_many(store, 2)
    monkeypatch.setattr(job_queries, "COLUMN_SEARCH_SECONDS", -1.0)
    page = await store.list_jobs(JobFilter(condition=CONDITIONS[kind]), limit=10)
    assert page.partial == (kind == "column")


async def test_a_search_in_a_time_long_ago_ends_in_time_as_well(
    store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No index knows when jobs were created, so the walk there is part of the search."""
    oldest = await enqueue_one(store, user_id="needle")
    clock.advance(60)
    before = clock.now()
    await enqueue_many(store, 2, user_id="needle")
    where = JobFilter(
        condition=CONDITIONS["column"], created_before=before, created_after=before - 60_000_000
    )
    assert [item.id for item in (await store.list_jobs(where, limit=10)).items] == [oldest]
    monkeypatch.setattr(job_queries, "SEARCH_SECONDS", -1.0)
    page = await store.list_jobs(where, limit=10)
    assert (page.items, page.partial, page.searched_back_to) == ((), True, before)


@pytest.mark.parametrize("condition", CONDITIONS.values(), ids=CONDITIONS)
async def test_how_far_a_search_came_tells_nothing_of_other_tenants(
    store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, condition: Condition
) -> None:
    """It is stopped by the tenant's own jobs, and says when one of those was made, or says nothing."""
    own = clock.now()
    await enqueue_many(store, 2, tenant="mine")
    clock.advance(60)
    await enqueue_many(store, 3, tenant="other")
    monkeypatch.setattr(job_queries, "SEARCH_SECONDS", -1.0)
    page = await store.list_jobs(JobFilter(condition=condition, tenant="mine"), limit=10)
    assert (page.partial, page.searched_back_to) == (True, own)
    page = await store.list_jobs(JobFilter(condition=condition, tenant="nobody"), limit=10)
    assert (page.partial, page.searched_back_to, page.cursor) == (False, None, None)


async def _number(store: Store, job_id: object) -> int:
    page = await store.list_jobs(JobFilter(), limit=100)
    return next(item.number for item in page.items if item.id == job_id)
