"""However jobs are found, the same ones are found."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.stores.all_stores.job_pages import ids_of
from tests.stores.all_stores.urls import STORES, made
from tidewheel.core.conditions import (
    AllOf,
    AnyOf,
    Compare,
    Comparison,
    Condition,
    Field,
    InState,
    Not,
)
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    Cancelled,
    ClaimRequest,
    Completed,
    DerivedState,
    Failed,
    JobFilter,
    Lane,
    NewJob,
    Outcome,
    Retried,
    Settlement,
    State,
)
from tidewheel.stores import query_plan
from tidewheel.stores.postgres import query_plan as postgres
from tidewheel.stores.protocol import Store
from tidewheel.stores.sqlite import query_plan as sqlite
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import BOOM

OUTCOMES: list[Outcome] = [
    Completed(b"1"),
    Failed(BOOM),
    Cancelled(BOOM),
    Retried(0, BOOM),
    Retried(300, BOOM),
]

Changes: TypeAlias = dict[Any, dict[str, Any]]

BY_TIME: Changes = {query_plan: {"WALKED": 0, "DISORDER": 0}}
IN_ONE: Changes = {query_plan: {"MOST": 0}}
WAYS: dict[str, dict[str, Changes]] = {
    "sqlite": {
        "as usual": {},
        "by what leaves most": {sqlite: {"min": max}},
        "by the lanes of failed jobs": {sqlite: {"COVERED": 1_000_000, "FEW": 0}},
        "narrowing by time": BY_TIME,
        "in one walk": IN_ONE,
    },
    "postgres": {
        "as usual": {},
        "walking by number": {postgres: {"MOST_LANES": 0, "FEW_LANES": 0}},
        "narrowing by time": BY_TIME,
    },
}


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
        [None, "a", "b", "none"], [None, "x", "nobody"], [None, "root", "tiny"], [None, *State, *DerivedState]
    )
    filters = [
        JobFilter(topic=topic, task=task, tenant=tenant, state=state)
        for topic, task, tenant, state in combined
    ]
    filters += [
        JobFilter(topic=topic, tenant=tenant, state=state, correlation_id=correlation, created_after=after,
                  created_before=before)
        for topic, tenant, state, correlation, (after, before) in product(
            [None, "a"], [None, "acme"], [None, State.PENDING, State.FAILED, DerivedState.DELAYED],
            [None, "c"], times,
        )
    ]  # fmt: skip
    conditions: list[Condition] = [
        _either(Field.TOPIC, "a", "none"),
        _either(Field.KEY, "k", "none"),
        AnyOf((InState(State.FAILED), InState(State.CANCELLED))),
        AnyOf((InState(State.RUNNING), InState(DerivedState.RETRYING))),
        AllOf((_either(Field.TOPIC, "b", "c"), Not(InState(State.COMPLETED)))),
        AnyOf((Compare(Field.TASK, Comparison.EQUAL, "x"), InState(State.FAILED))),
        AllOf((InState(State.FAILED), Not(InState(State.FAILED)))),
    ]
    searches = [
        JobFilter(topic=topic, tenant=tenant, created_after=after, created_before=before, condition=condition)
        for topic, tenant, (after, before), condition in product(
            [None, "a"], [None, "root", "acme"], times, conditions
        )
    ]
    chance = random.Random(5)
    return [*chance.sample(filters, 150), *chance.sample(searches, 50)]


def _either(field: Field, *values: str) -> AnyOf:
    return AnyOf(tuple(Compare(field, Comparison.EQUAL, value) for value in values))


@pytest.mark.parametrize(("name", "way"), [(name, way) for name, ways in WAYS.items() for way in ways])
async def test_every_way_to_the_jobs_finds_the_same(
    name: str, way: str, tmp_path: Path, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference has one way, a walk past all jobs; here there are many, and counters choose."""
    memory, store = (made(one, STORES[one](tmp_path), clock=clock) for one in ("memory", name))
    async with AsyncExitStack() as stack:
        for opened in (memory, store):
            await opened.open()
            stack.push_async_callback(opened.close)
            await opened.migrate()
        await _compare(memory, store, clock, monkeypatch, WAYS[name][way])


async def _compare(
    memory: Store, store: Store, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, way: Changes
) -> None:
    moments = await _live((memory, store), clock)
    for module, values in way.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value, raising=False)
    for where in _filters(moments):
        expected = await ids_of(memory, where)
        assert await ids_of(store, where) == expected, where
        assert await store.count(where) == await memory.count(where), where
        if len(expected) > 20:
            assert await ids_of(store, where, limit=7) == expected, where
            page = await store.list_jobs(where, limit=5, offset=10)
            assert [item.id for item in page.items] == expected[10:15], where
        failures = await store.failures(where, window_seconds=600, limit=5)
        assert failures == await memory.failures(where, window_seconds=600, limit=5), where
    assert await store.check() == []
