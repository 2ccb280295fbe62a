"""What a condition means is the same in Python and in SQL."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.servers.shared import recycle
from tests.stores.all_stores.urls import PACKED, STORES, made
from tidewheel.core.conditions import Compare, Condition, InState, Leaf, leaves, matches
from tidewheel.core.model import BodyFormat, Completed, Failed, JobFilter, JobRecord, Retried
from tidewheel.stores.protocol import Store
from tidewheel.testing.agreement.strategies import column_conditions, conditions, shift_times
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import BOOM, claim_from, get_job, job, settle_one

JOBS = 60


class Filled:
    """A store with all kinds of jobs, and all that can be known of them."""

    def __init__(self, store: Store, clock: FrozenClock) -> None:
        self.store = store
        self.clock = clock
        self.start = clock.now()
        self.records: list[JobRecord] = []

    async def fill(self) -> None:
        random = Random(7)
        some: dict[str, list[Any]] = {
            "task": ["", "x", "y"],
            "tenant": ["root", "root", "other"],
            "priority": [0, 0, -1, 5],
            "delay": [0.0, 0.0, 60.0],
            "max_attempts": [1, 3, None],
            "key": [None, "k{}", "é{}"],
            "correlation_id": [None, "c", "Z"],
            "user_id": [None, "u", "\ue000", "\U0001f0a1"],
            "service_id": [None, "s"],
            "limit_key": [None, "a", "b"],
            "payload": [b"{}", b'"hit"', '{"name":"é","n":1}'.encode(), b'{"list":["hit",{"name":"1"}]}'],
            "format": list(BodyFormat),
        }
        for number in range(JOBS):
            options = {name: random.choice(values) for name, values in some.items()}
            options["key"] = options["key"] and options["key"].format(number % 20)
            await self.store.enqueue([job(random.choice("abc"), **options)])
            self.clock.advance(random.choice([0, 1, 3]))
            if number % 2:
                for claimed in (await claim_from(self.store, "a", "b", limit=1)).jobs:
                    if random.random() < 0.7:
                        await self.store.mark_started([claimed.lease])
                    outcome = random.choice(
                        [None, Completed(b"1"), Failed(BOOM), Retried(0, BOOM), Retried(90, BOOM)]
                    )
                    if outcome is not None:
                        await settle_one(self.store, claimed.lease, outcome)
        await claim_from(self.store, "a", "c", limit=3)  # claimed, and not started
        page = await self.store.list_jobs(JobFilter(), limit=JOBS)
        self.records = [await get_job(self.store, item.id) for item in page.items]

    async def agrees(self, condition: Condition) -> None:
        wanted = shift_times(condition, self.start)
        told = [record.id for record in self.records if matches(wanted, record, self.clock.now())]
        page = await self.store.list_jobs(JobFilter(condition=wanted), limit=JOBS)
        assert [item.id for item in page.items] == told
        count = await self.store.count(JobFilter(condition=wanted))
        assert (count.total, count.exact) == (len(told), True)


@pytest.fixture(scope="module", params=[*STORES, PACKED])
def filled(request: pytest.FixtureRequest) -> Iterator[tuple[Filled, asyncio.Runner]]:
    name: str = request.param
    clock = FrozenClock()
    with tempfile.TemporaryDirectory(prefix="tidewheel-conditions-") as directory, asyncio.Runner() as runner:
        url = {**STORES, PACKED: STORES["postgres"]}[name](Path(directory))
        store = made(name, url, clock=clock)
        filled = Filled(store, clock)
        runner.run(store.open())
        try:
            runner.run(store.migrate())
            runner.run(filled.fill())
            yield filled, runner
        finally:
            runner.run(store.close())
            recycle()


def test_there_are_jobs_of_all_kinds(filled: tuple[Filled, asyncio.Runner]) -> None:
    """Otherwise the tests below would compare nothing with nothing."""
    records, now = filled[0].records, filled[0].clock.now()
    assert len(records) > JOBS // 2
    shown = {record.shown_state(now) for record in records}
    assert {"pending", "delayed", "retrying", "claimed", "running", "completed", "failed"} <= shown
    assert {record.tenant for record in records} == {"root", "other"}


@given(condition=column_conditions)
@settings(max_examples=max(150, settings().max_examples))
def test_a_condition_on_columns_is_the_same_in_python_and_in_sql(
    filled: tuple[Filled, asyncio.Runner], condition: Condition
) -> None:
    """Missing values, code points, numbers beyond 64 bits and all under NOT included."""
    store, runner = filled
    runner.run(store.agrees(condition))


@given(
    condition=conditions.filter(
        lambda one: any(not isinstance(leaf, Compare | InState) for leaf in leaves(one))
    )
)
@settings(max_examples=max(60, settings().max_examples // 2))
def test_a_condition_on_bodies_is_told_right_wherever_it_is_told(
    filled: tuple[Filled, asyncio.Runner], condition: Condition
) -> None:
    """Partly by the database, partly by Python: what either leaves out is no match."""
    store, runner = filled
    runner.run(store.agrees(condition))


def test_strategies_reach_every_kind_of_leaf() -> None:
    """A condition that is never drawn is never compared."""
    seen: set[type] = set()

    @given(st.data())
    @settings(max_examples=100, database=None)
    def draw(data: st.DataObject) -> None:
        seen.update(type(leaf) for leaf in leaves(data.draw(conditions)))

    draw()
    assert seen == set(get_args(Leaf))
