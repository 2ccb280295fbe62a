"""A row filter: what does not meet it is not there, whichever way it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.patience import PATIENCE
from tests.stores.all_stores.urls import STORES
from tidewheel import Job, JobNotFound, SecurityContext, Tidewheel, acting_as
from tidewheel.core.conditions import (
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    ContainsText,
    Field,
    InState,
    Not,
)
from tidewheel.core.model import DerivedState, State
from tidewheel.stores.bounds import MAX_COUNT

TENANT = SecurityContext("acme")
EQUAL = Comparison.EQUAL
MINE: dict[str, Condition] = {
    "topic": Compare(Field.TOPIC, EQUAL, "mine"),
    "not a topic": Not(Compare(Field.TOPIC, EQUAL, "theirs")),
    "task": Compare(Field.TASK, EQUAL, "mine"),
    "user": Compare(Field.USER_ID, EQUAL, "me"),
    "payload": ComparePayload(("owner",), EQUAL, "me"),
    "text": ContainsText('"me"'),
}
"""Rules that leave the same jobs."""


@pytest.fixture(params=STORES)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tidewheel]:
    app = Tidewheel(STORES[request.param](tmp_path), poll_interval=0.05)

    @app.task(name="mine", topic="mine")
    async def mine(owner: str) -> str:
        return owner

    @app.task(name="theirs", topic="theirs")
    async def theirs(owner: str) -> str:
        return owner

    async with app:
        yield app


async def _fill(app: Tidewheel) -> tuple[list[Job[Any]], list[Job[Any]]]:
    """Some jobs of this tenant: those in view, and those out of it."""
    with acting_as(TENANT):
        mine = [await app.enqueue("mine", {"owner": "me"}, user_id="me") for _ in range(2)]
        theirs = [await app.enqueue("theirs", {"owner": "them"}, user_id="them") for _ in range(3)]
    return mine, theirs


@pytest.mark.parametrize("only", MINE.values(), ids=MINE)
async def test_lists_counts_and_statistics_are_of_what_is_in_view(app: Tidewheel, only: Condition) -> None:
    """The same answers as if there were nothing else, whatever the rule is about."""
    mine, theirs = await _fill(app)
    with acting_as(replace(TENANT, only=only)):
        assert {job.id for job in await app.jobs()} == {job.id for job in mine}
        assert (await app.count()).total == 2
        assert (await app.count(topic="theirs")).total == 0
        assert (await app.count(where="topic:theirs OR state:pending")).total == 2
        assert [(topic.topic, topic.pending, topic.exact) for topic in await app.topics()] == [
            ("mine", 2, True)
        ]
        stats = await app.stats()
        assert (stats.pending, stats.delayed, stats.exact) == (2, 0, True)
        assert [topic.topic for topic in stats.topics] == ["mine"]
    with acting_as(TENANT):
        assert (await app.stats()).pending == len(mine) + len(theirs)


@pytest.mark.parametrize("only", [MINE["user"], MINE["payload"]], ids=["user", "payload"])
async def test_a_job_out_of_view_is_not_found_in_the_same_words(app: Tidewheel, only: Condition) -> None:
    """As one that does not exist, for whatever names it, and it is left as it was."""
    mine, (theirs, *_) = await _fill(app)
    nobody = uuid4()
    verbs: list[Callable[[Any], Awaitable[Any]]] = [
        app.get,
        app.requeue,
        app.cancel,
        app.take_back,
        app.delete,
        lambda job_id: asyncio.wait_for(app.result(job_id), PATIENCE),  # says so at once, and does not wait
        lambda job_id: app.result(job_id, 0),
    ]
    with acting_as(replace(TENANT, only=only)):
        for verb in verbs:
            words = []
            for job_id in (theirs.id, nobody):
                with pytest.raises(JobNotFound) as raised:
                    await verb(job_id)
                words.append(str(raised.value).replace(str(job_id), "ID"))
            assert words[0] == words[1]
        with pytest.raises(JobNotFound):
            await theirs.refresh()
        assert (await app.get(mine[0].id)).payload == {"owner": "me"}
        assert await app.cancel(mine[0].id)
    assert (await app.get(theirs.id)).state is State.PENDING


@pytest.mark.parametrize("only", MINE.values(), ids=MINE)
async def test_bulk_actions_change_what_is_in_view_only(app: Tidewheel, only: Condition) -> None:
    """Also with filters that say more."""
    mine, theirs = await _fill(app)
    with acting_as(replace(TENANT, only=only)):
        assert await app.cancel_all(where="owner") == len(mine)
        assert await app.requeue_all(state="cancelled") == len(mine)
        assert await app.delete_all(topic="theirs") == 0
        assert await app.delete_all(where="priority>=0") == len(mine)
    assert (await app.count()).total == len(theirs)


async def test_a_rule_about_states_is_told_by_the_time_of_the_store(app: Tidewheel) -> None:
    """A job comes into view when it becomes what the rule asks for."""
    with acting_as(TENANT):
        later = await app.enqueue("mine", {"owner": "me"}, delay=600)
        now = await app.enqueue("mine", {"owner": "me"})
    with acting_as(replace(TENANT, only=InState(DerivedState.DELAYED))):
        assert [job.id for job in await app.jobs()] == [later.id]
        assert (await app.get(later.id)).id == later.id
        with pytest.raises(JobNotFound):
            await app.get(now.id)
        stats = await app.stats()
        assert (stats.pending, stats.delayed, stats.oldest_due_at) == (1, 1, None)


async def test_a_rule_of_ones_own_tenant_changes_nothing(app: Tidewheel) -> None:
    """What holds of all jobs anyway costs nothing: statistics come from counters, with all there is."""
    await _fill(app)
    own = Compare(Field.TENANT, EQUAL, "acme")
    with acting_as(TENANT):
        expected = await app.stats(), await app.topics()
    with acting_as(replace(TENANT, only=own)):
        assert (await app.stats(), await app.topics()) == expected
    with acting_as(replace(TENANT, only=Compare(Field.TENANT, EQUAL, "globex"))):
        assert (await app.jobs()).total == 0
        assert (await app.stats()).pending == 0


async def test_statistics_under_a_row_filter_say_when_they_are_not_all(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted one by one up to a limit, then "at least"."""
    await _fill(app)
    from tidewheel.client import visibility

    monkeypatch.setattr(visibility, "MAX_COUNT", 1)
    with acting_as(replace(TENANT, only=MINE["user"])):
        stats = await app.stats()
        assert (stats.pending, stats.exact) == (1, False)
        assert [(topic.pending, topic.exact) for topic in await app.topics()] == [(1, False)]
    assert MAX_COUNT == 10_000
