"""``using``, on every kind of connection Python people hold."""

from __future__ import annotations

import pytest

from tests.client.external_transactions import django_kinds, postgres_kinds, sqlalchemy_kinds, sqlite_kinds  # noqa: F401 - kinds
from tests.client.external_transactions.caller import KINDS, Kind, done
from tests.client.external_transactions.conftest import Place
from tidewheel import InvalidPayload

pytestmark = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


async def test_a_commit_makes_the_job_exist(kind: Kind, place: Place) -> None:
    """With the caller's own row, and not before."""
    greet, mark = place.greeting()
    before = place.rows()
    async with kind.open(place.where) as caller:
        await caller.begin()
        job = await done(greet.using(caller.connection).enqueue(name="Ada"))
        more = await done(greet.using(caller.connection).enqueue_many([{"name": "Grace"}, {"name": "Alan"}]))
        assert (place.jobs(mark), place.rows()) == (0, before)
        assert not job.duplicate
        await done(caller.commit())
    assert (place.jobs(mark), place.rows()) == (3, before + 1)
    found = place.app.sync.get(job.id)
    assert (found.task, found.payload, found.state) == ("greet", {"name": "Ada"}, "pending")
    assert found.number == job.number
    assert [place.app.sync.get(one.id).payload["name"] for one in more] == ["Grace", "Alan"]


async def test_a_rollback_leaves_nothing(kind: Kind, place: Place) -> None:
    """No job, no count of one, and no key that is taken."""
    greet, mark = place.greeting()
    keyed = greet.options(key=mark)
    before = place.rows()
    async with kind.open(place.where) as caller:
        await caller.begin()
        await done(keyed.using(caller.connection).enqueue(name="Ada"))
        await done(caller.rollback())
        assert (place.jobs(mark), place.rows()) == (0, before)
        await caller.begin()
        job = await done(keyed.using(caller.connection).enqueue(name="Ada"))
        assert not job.duplicate
        await done(caller.commit())
    assert place.jobs(mark) == 1
    assert place.app.sync.check() == []


async def test_a_savepoint_takes_back_what_came_after_it(kind: Kind, place: Place) -> None:
    """The rest of the transaction goes on."""
    greet, mark = place.greeting()
    async with kind.open(place.where) as caller:
        await caller.begin()
        kept = await done(greet.using(caller.connection).enqueue(name="Ada"))
        await done(caller.execute("SAVEPOINT here"))
        await done(greet.using(caller.connection).enqueue(name="Grace"))
        await done(caller.execute("ROLLBACK TO SAVEPOINT here"))
        await done(caller.execute("RELEASE SAVEPOINT here"))
        also = await done(greet.using(caller.connection).enqueue(name="Alan"))
        await done(caller.commit())
    assert place.jobs(mark) == 2
    assert {place.app.sync.get(job.id).payload["name"] for job in (kept, also)} == {"Ada", "Alan"}
    assert place.app.sync.check() == []


async def test_a_duplicate_key_is_the_job_that_has_it(kind: Kind, place: Place) -> None:
    """Whether that is of another transaction or of this one; the transaction goes on."""
    greet, mark = place.greeting()
    keyed = greet.options(key=mark)
    other = greet.options(key=f"{mark}-2")
    holder = place.app.sync.enqueue("greet", {"name": "Ada"}, key=mark, correlation_id=mark)
    async with kind.open(place.where) as caller:
        await caller.begin()
        job = await done(keyed.using(caller.connection).enqueue(name="Grace"))
        assert (job.duplicate, job.id, job.payload) == (True, holder.id, {"name": "Ada"})
        first = await done(other.using(caller.connection).enqueue(name="Alan"))
        second = await done(other.using(caller.connection).enqueue(name="Alan"))
        assert (first.duplicate, second.duplicate, first.id) == (False, True, second.id)
        await done(caller.commit())
    assert place.jobs(mark) == 2


async def test_a_bad_payload_changes_nothing(kind: Kind, place: Place) -> None:
    """It is refused before anything is said to the database, so the transaction is as good as before."""
    greet, mark = place.greeting()
    before = place.rows()
    async with kind.open(place.where) as caller:
        await caller.begin()
        with pytest.raises(InvalidPayload, match="name"):
            await done(greet.using(caller.connection).enqueue(name=1))
        await caller.begin()
        await done(caller.commit())
    assert (place.jobs(mark), place.rows()) == (0, before + 2)
