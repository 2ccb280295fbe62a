"""Jobs that run after others, enqueued in transactions of somebody else's."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.client.external_transactions import django_kinds, postgres_kinds, sqlalchemy_kinds, sqlite_kinds  # noqa: F401 - kinds
from tests.client.external_transactions.caller import KINDS, Kind, done
from tests.client.external_transactions.conftest import Place
from tidewheel import KeyInUse, ParentNotFound, SecurityContext, acting_as
from tidewheel.core.conditions import Compare, Comparison, Field

_FEW = ("sqlite3", "aiosqlite", "asyncpg", "psycopg", "psycopg2", "pg8000")
FEW = [kind for kind in KINDS if kind.name in _FEW] or KINDS

pytestmark = pytest.mark.parametrize("kind", FEW, ids=lambda kind: kind.name)


async def test_a_job_runs_after_one_of_the_same_transaction_and_one_that_was_there(
    kind: Kind, place: Place
) -> None:
    """Both are marked with the commit."""
    greet, _ = place.greeting()
    before = greet.sync.enqueue(name="Ada")
    async with kind.open(place.where) as caller:
        await caller.begin()
        inside = await done(greet.using(caller.connection).enqueue(name="Grace"))
        child = await done(
            greet.options(after=[before, inside]).using(caller.connection).enqueue(name="Alan")
        )
        await done(caller.commit())
    found = place.app.sync.get(child.id)
    assert (found.shown_state, [one.job_id for one in found.after]) == ("blocked", [before.id, inside.id])
    assert place.app.sync.get(before.id).dependents().total.total == 1
    assert place.app.sync.check() == []


async def test_a_missing_parent_leaves_the_transaction_as_it_was(kind: Kind, place: Place) -> None:
    """It goes on, and what else is done in it is kept."""
    greet, mark = place.greeting()
    rows = place.rows()
    missing = uuid4()
    async with kind.open(place.where) as caller:
        await caller.begin()
        kept = await done(greet.using(caller.connection).enqueue(name="Ada"))
        with pytest.raises(ParentNotFound, match=str(missing)):
            await done(greet.options(after=missing).using(caller.connection).enqueue(name="Grace"))
        await done(greet.options(after=kept).using(caller.connection).enqueue(name="Alan"))
        await done(caller.commit())
    assert (place.jobs(mark), place.rows()) == (2, rows + 1)
    assert place.app.sync.check() == []


async def test_hidden_job_is_not_met_in_a_transaction_which_goes_on(kind: Kind, place: Place) -> None:
    """A hidden holder of a key is refused, and a hidden parent is not there. The rest of the transaction is
    kept.
    """
    greet, mark = place.greeting()
    key = f'{mark} "ä\\'
    hidden = greet.options(user_id="ben", key=key, delay=60).sync.enqueue(name="Ben")
    only = Compare(Field.USER_ID, Comparison.EQUAL, "ann")
    own = SecurityContext("root", user_id="ann", only=only, allow_root=True)
    async with kind.open(place.where) as caller:
        await caller.begin()
        with acting_as(own):
            kept = await done(greet.using(caller.connection).enqueue(name="Ann"))
            for choice in ("keep", "replace"):
                keyed = greet.options(key=key, on_duplicate=choice)
                with pytest.raises(KeyInUse) as refusal:
                    await done(keyed.using(caller.connection).enqueue(name="Ann"))
                assert str(hidden.id) not in str(refusal.value)
            with pytest.raises(ParentNotFound):
                await done(greet.options(after=hidden.id).using(caller.connection).enqueue(name="Ann"))
            await done(greet.options(after=kept.id).using(caller.connection).enqueue(name="Ann"))
        await done(caller.commit())
    assert place.jobs(mark) == 3
    assert place.app.sync.get(hidden.id).payload["name"] == "Ben"
    assert place.app.sync.check() == []


async def test_a_rollback_leaves_nobody_waiting(kind: Kind, place: Place) -> None:
    """The job that was named does not know of it, and ends as any other."""
    greet, mark = place.greeting()
    before = greet.sync.enqueue(name="Ada")
    async with kind.open(place.where) as caller:
        await caller.begin()
        await done(greet.options(after=before).using(caller.connection).enqueue(name="Grace"))
        await done(caller.rollback())
    assert place.jobs(mark) == 1
    assert place.app.sync.get(before.id).dependents().total.total == 0
    assert place.app.sync.check() == []


async def test_a_job_that_had_failed_ends_the_new_one(kind: Kind, place: Place) -> None:
    """With the transaction."""
    greet, _ = place.greeting()
    before = greet.sync.enqueue(name="Ada")
    before.cancel()
    async with kind.open(place.where) as caller:
        await caller.begin()
        child = await done(greet.options(after=before).using(caller.connection).enqueue(name="Grace"))
        await done(caller.commit())
    found = place.app.sync.get(child.id)
    assert (found.state, found.error and found.error.code) == ("cancelled", "parent_failed")
    assert place.app.sync.check() == []
