"""However jobs are found, the same ones are found."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from windlass.conditions import AllOf, AnyOf, Compare, ComparePayload, Comparison, Field, HoldsText
from windlass.ids import new_id
from windlass.model import (
    BodyFormat,
    ClaimRequest,
    JobError,
    JobFilter,
    Lane,
    NewJob,
    Settlement,
    Shown,
    State,
)
from windlass.outcome import Cancelled, Completed, Failed, Outcome, Retried
from windlass.stores.compiling import to_sql
from windlass.stores.memory import MemoryStore
from windlass.stores.postgres import PostgresStore, narrowing, searching, selecting
from windlass.stores.postgres.compiling import Words
from windlass.stores.protocol import Store
from windlass.testing.clock import FrozenClock
from windlass.testing.conformance.building import BOOM, claim_one, end, failed, put, put_many

OUTCOMES: list[Outcome] = [
    Completed(b"1"),
    Failed(BOOM),
    Cancelled(BOOM),
    Retried(0, BOOM),
    Retried(300, BOOM),
]

WAYS: dict[str, dict[Any, dict[str, Any]]] = {
    "as usual": {},
    "walking by number": {selecting: {"MOST_LANES": 0, "FEW_LANES": 0}},
    "narrowing by time": {narrowing: {"WALKED": 0, "DISORDER": 0}},
}


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


async def _live(stores: tuple[Store, ...], clock: FrozenClock) -> list[int]:
    """The same life of some hundred jobs on each store; the times at which jobs were created."""
    chance = random.Random(11)
    moments = []
    for _ in range(60):
        clock.advance(chance.choice([1, 30, 120]))
        moments.append(clock.now())
        jobs = [
            NewJob(
                id=new_id(),
                topic=chance.choice(["a", "a", "a", "b", "c"]),
                task=chance.choice(["x", "x", "y", ""]),
                tenant=chance.choice(["root", "root", "root", "acme", "tiny"]),
                priority=chance.choice([0, 0, 1, -5]),
                delay=chance.choice([0, 0, 60, 6000]),
                correlation_id=chance.choice([None, "c"]),
                key=chance.choice([None, new_id().hex]),
            )
            for _ in range(5)
        ]
        lanes = tuple(Lane(topic) for topic in chance.sample(["a", "b", "c"], 2))
        number = chance.choice([0, 1, 3, 4])
        outcomes = chance.choices([*OUTCOMES, None], k=number)
        for store in stores:
            await store.enqueue(jobs)
            if number:
                claimed = (await store.claim(ClaimRequest("w", lanes, number, 100_000))).jobs
                pairs = zip(claimed, outcomes, strict=False)
                ends = [Settlement(one.lease, outcome, 1.0) for one, outcome in pairs if outcome is not None]
                assert all(await store.settle(ends))
    return moments


def _filters(moments: list[int]) -> list[JobFilter]:
    """All kinds, in many of their combinations."""
    early, late = moments[15], moments[40]
    times = [(None, None), (early, None), (None, early), (early, late)]
    combined = product(
        [None, "a", "b", "none"], [None, "x", "nobody"], [None, "root", "tiny"], [None, *State, *Shown]
    )
    filters = [
        JobFilter(topic=topic, task=task, tenant=tenant, state=state)
        for topic, task, tenant, state in combined
    ]
    filters += [
        JobFilter(topic=topic, tenant=tenant, state=state, correlation_id=correlation, created_after=after,
                  created_before=before)
        for topic, tenant, state, correlation, (after, before) in product(
            [None, "a"], [None, "acme"], [None, State.PENDING, State.FAILED, Shown.DELAYED], [None, "c"],
            times,
        )
    ]  # fmt: skip
    return random.Random(5).sample(filters, 150)


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_the_jobs_finds_the_same(
    store: PostgresStore, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The reference has one way, a walk past all jobs; here there are many, and counters choose."""
    memory = MemoryStore("memory://", clock=clock)
    await memory.open()
    moments = await _live((memory, store), clock)
    for module, values in WAYS[way].items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    for where in _filters(moments):
        expected = await _ids(memory, where)
        assert await _ids(store, where) == expected, where
        assert await store.count(where) == await memory.count(where), where
        if len(expected) > 20:
            assert await _ids(store, where, limit=7) == expected, where
            page = await store.list_jobs(where, limit=5, offset=10)
            assert [item.id for item in page.items] == expected[10:15], where
    assert await store.check() == []


async def _ids(store: Store, where: JobFilter, limit: int = 1000) -> list[UUID]:
    """All jobs of a filter, page by page."""
    found: list[UUID] = []
    cursor = None
    while True:
        page = await store.list_jobs(where, limit=limit, cursor=cursor)
        found += [item.id for item in page.items]
        if page.cursor is None:
            return found
        assert len(page.items) == limit
        cursor = page.cursor


@pytest.mark.parametrize(
    "where",
    [
        JobFilter(text="needle"),
        JobFilter(condition=Compare(Field.USER_ID, Comparison.EQUAL, "needle")),
        JobFilter(condition=ComparePayload((), Comparison.EQUAL, "needle")),
    ],
    ids=["text", "column", "payload"],
)
async def test_a_search_that_runs_out_of_time_says_how_far_it_came(
    store: PostgresStore, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, where: JobFilter
) -> None:
    """The cursor goes on from there, until everything has been looked into."""
    monkeypatch.setattr(searching, "SEARCH_SECONDS", 0.0)
    [oldest] = await put_many(store, 1, payload=b'"needle"', user_id="needle")
    created_at = []
    for _ in range(3):
        clock.advance(1)
        await put_many(store, 100)
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


async def test_payloads_come_in_portions_and_time_is_looked_at_between_them(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large they are, a few megabytes are here at once; a search stops in the middle of a batch."""
    job_ids = await put_many(store, 10, payload=b'"' + b"x" * 20_000 + b'"')
    await put(store, payload=b"1")
    monkeypatch.setattr(searching, "MOST_BYTES", 50_000)
    fetched: list[int] = []
    decide = searching.Search._decide

    async def counted(self: searching.Search, jobs: dict[int, Any]) -> list[int]:
        fetched.append(sum(closer.size for closer in jobs.values()))
        return await decide(self, jobs)

    monkeypatch.setattr(searching.Search, "_decide", counted)
    where = JobFilter(condition=ComparePayload((), Comparison.CONTAINS, "xx"))
    page = await store.list_jobs(where, limit=20)
    assert [item.id for item in page.items] == job_ids[::-1]
    assert len(fetched) == 5
    assert max(fetched) <= 50_000
    monkeypatch.setattr(searching, "SEARCH_SECONDS", 0.0)
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
    told = to_sql(
        Compare(Field.USER_ID, Comparison(comparison), "x"), Words(lambda _, kind: f"$1::{kind}", 0)
    )
    assert told == f"(coalesce(j.user_id, '') COLLATE \"C\" {comparison} $1::text)"


async def test_statements_of_conditions_are_not_kept(store: PostgresStore) -> None:
    """There are as many as callers think of; a server that runs for months must not remember them."""
    await store.list_jobs(JobFilter(condition=Compare(Field.PRIORITY, Comparison.EQUAL, 1)), limit=1)
    kept = len(store._database._qualified)
    for number in range(5):
        parts = (Compare(Field.PRIORITY, Comparison.EQUAL, number),) * (number + 1)
        where = JobFilter(
            condition=AllOf((AnyOf(parts), HoldsText("x"), ComparePayload((), Comparison.EQUAL, 1)))
        )
        await store.list_jobs(where, limit=1)
        await store.count(where)
    assert len(store._database._qualified) == kept


async def test_searches_look_into_bodies_wherever_they_are_kept(store: PostgresStore) -> None:
    """In the row or apart from it, as text or as bytes."""
    long = b"x" * 100_000
    found = [
        await put(store, payload=b'{"a":"needle"}'),
        await put(store, payload=b'{"a":"needle' + long + b'"}'),
        await put(store, payload=b"\x00needle", format=BodyFormat.BYTES),
        await put(store, payload=b"\xff" + long + b"needle", format=BodyFormat.BYTES),
        await put(
            store, payload=b'"\x00needle"'
        ),  # no JSON any door lets in, but a store keeps what it is given
        await put(store, payload=b'"' + long + b'\xffneedle"'),
    ]
    await put(store, payload=b'"' + long + b'"')
    assert (await _ids(store, JobFilter(text="needle")))[::-1] == found


@pytest.mark.parametrize(
    "text", ["100%", "a_b", "back\\slash", "'quoted'", "\\x00", "\\u0000", "{schema}", "$1"]
)
async def test_nothing_in_a_search_means_anything_but_itself(store: PostgresStore, text: str) -> None:
    """Neither to LIKE, nor to bytea, nor to JSON, nor to the statement it becomes a part of."""
    others = await put(store, payload=b'"100 axb backslash quoted u0000 schema 1"')
    in_bytes = await put(store, payload=text.encode(), format=BodyFormat.BYTES)
    await store.cancel([others, in_bytes])
    in_message = await put(store)
    await end(store, (await claim_one(store)).lease, Retried(0, JobError("boom", f"<{text}>")))
    await end(store, (await claim_one(store)).lease, Failed(JobError("boom", "hay")))
    assert await _ids(store, JobFilter(text=text)) == [in_message, in_bytes]


async def test_errors_with_a_nul_do_not_break_a_search(store: PostgresStore) -> None:
    """PostgreSQL has no text with a NUL, but JSON can spell one."""
    job_id = await put(store)
    await end(store, (await claim_one(store)).lease, Retried(0, JobError("boom", "to be replaced")))
    await end(store, (await claim_one(store)).lease, Failed(JobError("other", "hay")))
    await failed(store)
    error = r'{"code":"boom","message":"before\u0000\u0000after \\u0000 \\\u0000"}'
    statement = "UPDATE {schema}.attempts SET error = $1 WHERE ordinal = 1 AND id = $2"
    await store._database.fetch(statement, error, job_id)
    assert await _ids(store, JobFilter(text="after")) == [job_id]
    assert await _ids(store, JobFilter(text="after \\u0000 \\")) == [job_id], "spelled out is not a NUL"
