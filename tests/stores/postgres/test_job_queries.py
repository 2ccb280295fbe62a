"""Searches end in time, and find what is meant wherever it is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.stores.all_stores.job_pages import ids_of
from tidewheel.core.conditions import (
    AllOf,
    AnyOf,
    Compare,
    ComparePayload,
    Comparison,
    ContainsText,
    Field,
    InState,
    Not,
)
from tidewheel.core.model import BodyFormat, Count, Failed, JobError, JobFilter, Retried, State
from tidewheel.stores.condition_sql import condition_to_sql
from tidewheel.stores.postgres import PostgresStore, job_queries
from tidewheel.stores.postgres.condition_sql import PostgresDialect
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    claim_one,
    enqueue_many,
    enqueue_one,
    make_failed,
    settle_one,
)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def store(postgres_url: str, clock: FrozenClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, clock=clock)
    await store.open()
    await store.migrate()
    yield store
    await store.close()


SEARCHES = {
    "text": JobFilter(text="needle"),
    "column": JobFilter(condition=Compare(Field.USER_ID, Comparison.EQUAL, "needle")),
    "payload": JobFilter(condition=ComparePayload((), Comparison.EQUAL, "needle")),
}


@pytest.mark.parametrize("where", SEARCHES.values(), ids=SEARCHES)
async def test_a_search_that_runs_out_of_time_says_how_far_it_came(
    store: PostgresStore, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, where: JobFilter
) -> None:
    """The cursor goes on from there, until everything has been looked into."""
    monkeypatch.setattr(job_queries, "SEARCH_SECONDS", 0.0)
    [oldest] = await enqueue_many(store, 1, payload=b'"needle"', user_id="needle")
    created_at = []
    for _ in range(3):
        clock.advance(1)
        await enqueue_many(store, 100)
        created_at.append(clock.now())
    pages = []
    cursor = None
    for _ in range(4):
        pages.append(await store.list_jobs(where, limit=10, cursor=cursor))
        cursor = pages[-1].cursor
    assert [page.searched_back_to for page in pages] == [*reversed(created_at), None]
    assert [page.partial for page in pages] == [True, True, True, False]
    assert [[item.id for item in page.items] for page in pages] == [[], [], [], [oldest]]
    count = await store.count(where)
    assert (count.total, count.exact) == (0, False)


@pytest.mark.parametrize("kind", SEARCHES)
async def test_a_search_by_columns_gives_up_sooner(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It looks like any other filter, so people wait a second for it, with all that is on the way."""
    await enqueue_many(store, 300)
    monkeypatch.setattr(job_queries, "COLUMN_SEARCH_SECONDS", 0.0)
    page = await store.list_jobs(SEARCHES[kind], limit=10)
    assert page.partial == (kind == "column")


async def test_payloads_come_in_portions_and_time_is_looked_at_between_them(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large they are, a few megabytes are here at once; a search stops in the middle of a batch."""
    job_ids = await enqueue_many(store, 10, payload=b'"' + b"x" * 20_000 + b'"')
    await enqueue_one(store, payload=b"1")
    monkeypatch.setattr(job_queries, "MAX_PAYLOAD_BYTES", 50_000)
    fetched: list[int] = []
    decide = job_queries.JobSearch._filter_by_payload

    async def counted(self: job_queries.JobSearch, jobs: dict[int, Any]) -> list[int]:
        fetched.append(sum(closer.size for closer in jobs.values()))
        return await decide(self, jobs)

    monkeypatch.setattr(job_queries.JobSearch, "_filter_by_payload", counted)
    where = JobFilter(condition=ComparePayload((), Comparison.CONTAINS, "xx"))
    page = await store.list_jobs(where, limit=20)
    assert [item.id for item in page.items] == job_ids[::-1]
    assert len(fetched) == 5
    assert max(fetched) <= 50_000
    monkeypatch.setattr(job_queries, "SEARCH_SECONDS", 0.0)
    found, cursor = [], None
    for _ in range(20):
        page = await store.list_jobs(where, limit=20, cursor=cursor)
        assert len(page.items) <= 3
        found += [item.id for item in page.items]
        if (cursor := page.cursor) is None:
            break
    assert found == job_ids[::-1]


@pytest.mark.parametrize("comparison", ["<", "<=", ">", ">="])
def test_texts_are_ordered_by_code_point_in_every_database(comparison: str) -> None:
    """The test servers order so by themselves; one that was set up for a language does not."""
    told = condition_to_sql(
        Compare(Field.USER_ID, Comparison(comparison), "x"), PostgresDialect(lambda _, kind: f"$1::{kind}", 0)
    )
    assert told == f"(coalesce(j.user_id, '') COLLATE \"C\" {comparison} $1::text)"


async def test_statements_of_conditions_are_not_kept(store: PostgresStore) -> None:
    """There are as many as callers think of; a server that runs for months must not remember them."""
    await store.list_jobs(JobFilter(condition=Compare(Field.PRIORITY, Comparison.EQUAL, 1)), limit=1)
    kept = len(store._database._qualified)
    for number in range(5):
        parts = (Compare(Field.PRIORITY, Comparison.EQUAL, number),) * (number + 1)
        where = JobFilter(
            condition=AllOf((AnyOf(parts), ContainsText("x"), ComparePayload((), Comparison.EQUAL, 1)))
        )
        await store.list_jobs(where, limit=1)
        await store.count(where)
    assert len(store._database._qualified) == kept


async def test_searches_look_into_bodies_wherever_they_are_kept(store: PostgresStore) -> None:
    """In the row or apart from it, as text or as bytes."""
    long = b"x" * 100_000
    found = [
        await enqueue_one(store, payload=b'{"a":"needle"}'),
        await enqueue_one(store, payload=b'{"a":"needle' + long + b'"}'),
        await enqueue_one(store, payload=b"\x00needle", format=BodyFormat.BYTES),
        await enqueue_one(store, payload=b"\xff" + long + b"needle", format=BodyFormat.BYTES),
        await enqueue_one(
            store, payload=b'"\x00needle"'
        ),  # no JSON any door lets in, but a store keeps what it is given
        await enqueue_one(store, payload=b'"' + long + b'\xffneedle"'),
    ]
    await enqueue_one(store, payload=b'"' + long + b'"')
    assert (await ids_of(store, JobFilter(text="needle")))[::-1] == found


@pytest.mark.parametrize(
    "text", ["100%", "a_b", "back\\slash", "'quoted'", "\\x00", "\\u0000", "{schema}", "$1"]
)
async def test_nothing_in_a_search_means_anything_but_itself(store: PostgresStore, text: str) -> None:
    """Neither to LIKE, nor to bytea, nor to JSON, nor to the statement it becomes a part of."""
    others = await enqueue_one(store, payload=b'"100 axb backslash quoted u0000 schema 1"')
    in_bytes = await enqueue_one(store, payload=text.encode(), format=BodyFormat.BYTES)
    await store.cancel([others, in_bytes])
    in_message = await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Retried(0, JobError("boom", f"<{text}>")))
    await settle_one(store, (await claim_one(store)).lease, Failed(JobError("boom", "hay")))
    assert await ids_of(store, JobFilter(text=text)) == [in_message, in_bytes]


async def test_errors_with_a_nul_do_not_break_a_search(store: PostgresStore) -> None:
    """PostgreSQL has no text with a NUL, but JSON can spell one."""
    job_id = await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Retried(0, JobError("boom", "to be replaced")))
    await settle_one(store, (await claim_one(store)).lease, Failed(JobError("other", "hay")))
    await make_failed(store)
    error = r'{"code":"boom","message":"before\u0000\u0000after \\u0000 \\\u0000"}'
    statement = "UPDATE {schema}.attempts SET error = $1 WHERE ordinal = 1 AND id = $2"
    await store._database.fetch(statement, error, job_id)
    assert await ids_of(store, JobFilter(text="after")) == [job_id]
    assert await ids_of(store, JobFilter(text="after \\u0000 \\")) == [job_id], "spelled out is not a NUL"


async def test_counts_that_counters_tell_do_not_look_at_jobs(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many states, lanes and tenants are asked for, and however many jobs there are."""
    await enqueue_many(store, 3, topic="a", tenant="acme")
    await enqueue_many(store, 2, topic="b")
    await make_failed(store, "c")
    monkeypatch.setattr(job_queries, "JobSearch", None)
    monkeypatch.setattr(job_queries, "QueryPlanner", None)
    topics = [Compare(Field.TOPIC, Comparison.EQUAL, name) for name in ("a", "c")]
    for where, expected in (
        (JobFilter(), 6),
        (JobFilter(tenant="acme"), 3),
        (JobFilter(topic="b", state=State.PENDING), 2),
        (JobFilter(condition=AnyOf((*topics, InState(State.RUNNING)))), 4),
        (JobFilter(condition=AllOf((AnyOf(tuple(topics)), InState(State.FAILED)))), 1),
        (JobFilter(condition=Not(InState(State.FAILED))), 5),
        (JobFilter(state=State.FAILED, condition=InState(State.PENDING)), 0),
    ):
        assert await store.count(where) == Count(expected), where
