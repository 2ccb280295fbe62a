"""Documents: small records beside the jobs, such as keys, users and audit log lines (Q33).

A document and jobs can be written in one transaction; that is how a schedule fires once (Q24).
"""

from __future__ import annotations

import asyncio

import pytest

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import Document, NewDocument
from tidewheel.errors import InvalidInput, LimitExceeded, StoreError
from tidewheel.stores.bounds import MAX_BATCH, MAX_DOCUMENT_BYTES
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import claim_jobs, enqueue_one, get_job, ids, job


async def _write(store: Store, document: NewDocument) -> int | None:
    [version] = await store.write_documents([document])
    return version


async def _ids(store: Store, kind: str = "note", limit: int = MAX_BATCH) -> list[str]:
    return [document.id for document in await store.documents(kind, limit=limit)]


async def test_a_document_comes_back_as_it_was_written(store: Store, clock: FrozenClock) -> None:
    """Every byte of it, with the store's own times, in its own kind only."""
    body = bytes(range(256))
    assert await _write(store, NewDocument("note", "é 'quoted'", body, clock.now() + 1)) == 1
    assert await store.document("note", "é 'quoted'") == Document(
        "note", "é 'quoted'", body, clock.now(), clock.now(), clock.now() + 1, 1
    )
    assert await store.document("other", "é 'quoted'") is None
    assert await store.document("note", "é") is None


async def test_a_second_write_takes_the_place_of_the_first(store: Store, clock: FrozenClock) -> None:
    """The version grows; it stays as old as it was."""
    made_at = clock.now()
    await _write(store, NewDocument("note", "a", b"1", clock.now() + seconds_to_microseconds(60)))
    clock.advance(5)
    assert await _write(store, NewDocument("note", "a", b"2")) == 2
    assert await store.document("note", "a") == Document("note", "a", b"2", made_at, clock.now(), None, 2)


async def test_a_write_under_a_condition_tells_whether_it_was_made(store: Store) -> None:
    """Only where there is none, or only over the version one has read; what does not fit changes nothing."""
    assert await _write(store, NewDocument("note", "a", b"1", expected_version=1)) is None
    assert await store.document("note", "a") is None
    assert await _write(store, NewDocument("note", "a", b"1", expected_version=0)) == 1
    assert await _write(store, NewDocument("note", "a", b"2", expected_version=0)) is None
    assert await _write(store, NewDocument("note", "a", b"2", expected_version=2)) is None
    assert await _write(store, NewDocument("note", "a", b"3", expected_version=1)) == 2
    found = await store.document("note", "a")
    assert found is not None
    assert (found.body, found.version) == (b"3", 2)


async def test_of_many_that_write_where_there_is_none_one_does(store: Store) -> None:
    """However they meet: this is how a secret is made once."""
    written = await asyncio.gather(
        *(
            _write(store, NewDocument("secret", "s", b"%d" % number, expected_version=0))
            for number in range(10)
        )
    )
    assert sorted(written, key=lambda version: version or 0) == [None] * 9 + [1]
    found = await store.document("secret", "s")
    assert found is not None
    assert found.body == b"%d" % written.index(1)


async def test_documents_are_written_many_at_a_time_each_under_its_own_condition(store: Store) -> None:
    """One that does not fit does not keep the others out."""
    await _write(store, NewDocument("note", "b", b"old"))
    new = [NewDocument("note", name, b"new", expected_version=0) for name in ("c", "b", "a")]
    assert await store.write_documents(new) == [1, None, 1]
    assert await _ids(store) == ["c", "b", "a"]
    assert await store.write_documents([]) == []


async def test_a_kind_is_listed_newest_first_page_by_page(store: Store, clock: FrozenClock) -> None:
    """Of equal age by id, whatever language the database speaks; writing again makes none younger."""
    for name in ("B", "a"):
        await _write(store, NewDocument("note", name, b""))
    clock.advance(1)
    await store.write_documents([NewDocument("note", name, b"") for name in ("ä", "b", "A")])
    await _write(store, NewDocument("note", "B", b"again"))
    await _write(store, NewDocument("other", "z", b""))
    assert await _ids(store) == ["ä", "b", "A", "a", "B"]
    first = await store.documents("note", limit=2)
    last = first[-1]
    second = await store.documents("note", limit=2, before=(last.created_at, last.id))
    assert [document.id for document in second] == ["A", "a"]
    last = second[-1]
    third = await store.documents("note", limit=2, before=(last.created_at, last.id))
    assert [document.id for document in third] == ["B"]


async def test_an_expired_document_is_gone(store: Store, clock: FrozenClock) -> None:
    """At that instant, for every verb, whether or not anything was pruned; what comes after it is new."""
    await _write(store, NewDocument("note", "a", b"1", clock.now() + seconds_to_microseconds(60)))
    await _write(store, NewDocument("note", "b", b"1", clock.now() + seconds_to_microseconds(60)))
    clock.advance(59.999999)
    assert await _ids(store) == ["b", "a"]
    clock.advance(0.000001)
    assert await _ids(store) == []
    assert await store.document("note", "a") is None
    assert not await store.remove_document("note", "b")
    assert await _write(store, NewDocument("note", "a", b"2", expected_version=1)) is None
    assert await _write(store, NewDocument("note", "a", b"2", expected_version=0)) == 1
    assert await store.document("note", "a") == Document("note", "a", b"2", clock.now(), clock.now(), None, 1)


async def test_pruning_forgets_expired_documents_a_few_at_a_time(store: Store, clock: FrozenClock) -> None:
    """It counts jobs only, and leaves alone what has not expired."""
    end = clock.now() + seconds_to_microseconds(60)
    await store.write_documents([NewDocument("note", str(number), b"", end + number) for number in range(3)])
    await _write(store, NewDocument("note", "kept", b""))
    clock.advance(61)
    assert await store.prune(2) == {}
    assert await store.prune(2) == {}
    assert await _ids(store) == ["kept"]


async def test_a_removed_document_is_gone(store: Store) -> None:
    """The others stay; removing it twice says so."""
    await store.write_documents([NewDocument("note", "a", b""), NewDocument("other", "a", b"")])
    assert await store.remove_document("note", "a")
    assert not await store.remove_document("note", "a")
    assert (await _ids(store), await _ids(store, "other")) == ([], ["a"])


@pytest.mark.parametrize("name", ["", "a\x00b", "\ud800", "a" * 100_000, "' OR 1 = 1 --", "%"])
async def test_who_asks_for_what_cannot_be_a_document_finds_none(store: Store, name: str) -> None:
    """Ids come from outside; whatever they are, they are no error."""
    await _write(store, NewDocument("note", "a", b""))
    assert await store.document("note", name) is None
    assert not await store.remove_document("note", name)
    assert await _ids(store) == ["a"]


async def test_documents_have_limits_and_a_bad_one_keeps_all_out(store: Store) -> None:
    """Too large, without a name, twice in one call, too many: an error, and nothing is written."""
    fine = NewDocument("note", "fine", bytes(MAX_DOCUMENT_BYTES))
    for bad in (
        NewDocument("note", "large", bytes(MAX_DOCUMENT_BYTES + 1)),
        NewDocument("note", "", b""),
        NewDocument("", "a", b""),
        NewDocument("note", "a\x00b", b""),
        NewDocument("note", "a" * 201, b""),
        NewDocument("note", "fine", b""),
    ):
        with pytest.raises(InvalidInput):
            await store.write_documents([fine, bad])
    with pytest.raises(LimitExceeded):
        await store.write_documents([NewDocument("note", str(n), b"") for n in range(MAX_BATCH + 1)])
    assert await _ids(store) == []
    assert await _write(store, fine) == 1


async def test_documents_have_nothing_to_do_with_jobs(store: Store) -> None:
    """They break no invariant, and are shared by siblings."""
    await enqueue_one(store)
    await _write(store, NewDocument("note", "a", b"{}"))
    assert await store.check() == []
    other = store.sibling()
    await other.open()
    try:
        assert await other.document("note", "a") is not None
    finally:
        await other.close()


async def test_a_body_is_not_shown(clock: FrozenClock) -> None:
    """It may be a secret, and what has a repr ends up in a log."""
    assert "hunter2" not in repr(NewDocument("note", "a", b"hunter2"))
    assert "hunter2" not in repr(Document("note", "a", b"hunter2", clock.now(), clock.now(), None, 1))


def _lock_document(version: int | None, body: bytes = b"{}") -> NewDocument:
    return NewDocument("turn", "t", body, expected_version=version)


async def _version(store: Store) -> int:
    found = await store.document("turn", "t")
    return 0 if found is None else found.version


async def test_a_document_and_its_jobs_are_written_together(store: Store, clock: FrozenClock) -> None:
    """Answered as an enqueue is, in order, and ready to be claimed."""
    first, second = job(priority=1, headers='{"a":"b"}'), job(delay=60)
    answers = await store.enqueue_with_document(_lock_document(0, b"1"), [first, second])
    assert answers is not None
    assert [(one.job_id, one.duplicate) for one in answers] == [(first.id, False), (second.id, False)]
    assert answers[1].run_at == clock.now() + 60_000_000
    assert await _version(store) == 1
    [claimed] = await claim_jobs(store)
    assert (claimed.lease.job_id, claimed.headers) == (first.id, '{"a":"b"}')
    assert await store.check() == []


async def test_a_document_of_another_version_keeps_its_jobs_out(store: Store) -> None:
    """Nothing of the call is there, and the counters know of nothing."""
    assert await store.enqueue_with_document(_lock_document(0), [job()]) is not None
    late = job()
    for version in (0, 2):
        assert await store.enqueue_with_document(_lock_document(version, b"late"), [late]) is None
        assert await store.enqueue_with_document(_lock_document(version, b"late"), []) is None
    found = await store.document("turn", "t")
    assert found is not None
    assert (found.version, found.body) == (1, b"{}")
    assert await store.get(late.id) is None
    assert len(await claim_jobs(store)) == 1
    assert await store.check() == []


async def test_of_many_that_write_over_one_version_one_does(store: Store) -> None:
    """However they meet: so a firing is one firing, whoever is late."""
    await store.enqueue_with_document(_lock_document(0), [])
    rivals = [job() for _ in range(8)]
    answers = await asyncio.gather(
        *(store.enqueue_with_document(_lock_document(1), [rival]) for rival in rivals)
    )
    won = [rival.id for rival, answer in zip(rivals, answers, strict=True) if answer is not None]
    assert len(won) == 1
    assert ids(await claim_jobs(store)) == won
    assert await _version(store) == 2


async def test_jobs_that_are_refused_keep_their_document_out(store: Store) -> None:
    """An id that is taken: the document stays as it was, and so do its neighbours of the call."""
    there = await enqueue_one(store)
    fine = job()
    taken = job()
    taken = type(taken)(id=there, topic=taken.topic)
    with pytest.raises(StoreError):
        await store.enqueue_with_document(_lock_document(0), [fine, taken])
    assert await _version(store) == 0
    assert await store.get(fine.id) is None
    assert await store.check() == []


async def test_a_bad_document_keeps_its_jobs_out(store: Store) -> None:
    """Refused before anything is written."""
    new = job()
    for bad in (NewDocument("turn", "", b""), NewDocument("turn", "t", bytes(MAX_DOCUMENT_BYTES + 1))):
        with pytest.raises(InvalidInput):
            await store.enqueue_with_document(bad, [new])
    assert await store.get(new.id) is None


async def test_a_document_is_written_also_when_a_key_is_taken(store: Store) -> None:
    """The answer names the job that holds it, as an enqueue's does."""
    holder = await enqueue_one(store, key="k")
    answers = await store.enqueue_with_document(_lock_document(None), [job(key="k")])
    assert answers is not None
    assert [(one.job_id, one.duplicate) for one in answers] == [(holder, True)]
    assert await _version(store) == 1


async def test_a_document_alone_can_be_written_like_any_other(store: Store) -> None:
    """Without jobs the answer is an empty list; without a condition it always is written."""
    assert await store.enqueue_with_document(_lock_document(None), []) == []
    assert await store.enqueue_with_document(_lock_document(None), []) == []
    assert await _version(store) == 2
    assert (await get_job(store, await enqueue_one(store))).priority == 0
