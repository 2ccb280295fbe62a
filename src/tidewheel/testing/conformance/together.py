"""A document and jobs in one transaction: how a schedule fires once (Q24)."""

from __future__ import annotations

import asyncio

import pytest

from tidewheel.errors import InvalidInput, StoreError
from tidewheel.model import NewDocument
from tidewheel.stores.protocol import MAX_DOCUMENT_BYTES, Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import claim, ids, job, look, put


def _turn(version: int | None, body: bytes = b"{}") -> NewDocument:
    return NewDocument("turn", "t", body, only_version=version)


async def _version(store: Store) -> int:
    found = await store.document("turn", "t")
    return 0 if found is None else found.version


async def test_a_document_and_its_jobs_are_written_together(store: Store, clock: FrozenClock) -> None:
    """Answered as an enqueue is, in order, and ready to be claimed."""
    first, second = job(priority=1, headers='{"a":"b"}'), job(delay=60)
    answers = await store.enqueue_with(_turn(0, b"1"), [first, second])
    assert answers is not None
    assert [(one.job_id, one.duplicate) for one in answers] == [(first.id, False), (second.id, False)]
    assert answers[1].run_at == clock.now() + 60_000_000
    assert await _version(store) == 1
    [claimed] = await claim(store)
    assert (claimed.lease.job_id, claimed.headers) == (first.id, '{"a":"b"}')
    assert await store.check() == []


async def test_a_document_of_another_version_keeps_its_jobs_out(store: Store) -> None:
    """Nothing of the call is there, and the counters know of nothing."""
    assert await store.enqueue_with(_turn(0), [job()]) is not None
    late = job()
    for version in (0, 2):
        assert await store.enqueue_with(_turn(version, b"late"), [late]) is None
        assert await store.enqueue_with(_turn(version, b"late"), []) is None
    found = await store.document("turn", "t")
    assert found is not None
    assert (found.version, found.body) == (1, b"{}")
    assert await store.get(late.id) is None
    assert len(await claim(store)) == 1
    assert await store.check() == []


async def test_of_many_that_write_over_one_version_one_does(store: Store) -> None:
    """However they meet: so a firing is one firing, whoever is late."""
    await store.enqueue_with(_turn(0), [])
    rivals = [job() for _ in range(8)]
    answers = await asyncio.gather(*(store.enqueue_with(_turn(1), [rival]) for rival in rivals))
    won = [rival.id for rival, answer in zip(rivals, answers, strict=True) if answer is not None]
    assert len(won) == 1
    assert ids(await claim(store)) == won
    assert await _version(store) == 2


async def test_jobs_that_are_refused_keep_their_document_out(store: Store) -> None:
    """An id that is taken: the document stays as it was, and so do its neighbours of the call."""
    there = await put(store)
    fine = job()
    taken = job()
    taken = type(taken)(id=there, topic=taken.topic)
    with pytest.raises(StoreError):
        await store.enqueue_with(_turn(0), [fine, taken])
    assert await _version(store) == 0
    assert await store.get(fine.id) is None
    assert await store.check() == []


async def test_a_bad_document_keeps_its_jobs_out(store: Store) -> None:
    """Refused before anything is written."""
    new = job()
    for bad in (NewDocument("turn", "", b""), NewDocument("turn", "t", bytes(MAX_DOCUMENT_BYTES + 1))):
        with pytest.raises(InvalidInput):
            await store.enqueue_with(bad, [new])
    assert await store.get(new.id) is None


async def test_a_document_is_written_also_when_a_key_is_taken(store: Store) -> None:
    """The answer names the job that holds it, as an enqueue's does."""
    holder = await put(store, key="k")
    answers = await store.enqueue_with(_turn(None), [job(key="k")])
    assert answers is not None
    assert [(one.job_id, one.duplicate) for one in answers] == [(holder, True)]
    assert await _version(store) == 1


async def test_a_document_alone_can_be_written_like_any_other(store: Store) -> None:
    """Without jobs the answer is an empty list; without a condition it always is written."""
    assert await store.enqueue_with(_turn(None), []) == []
    assert await store.enqueue_with(_turn(None), []) == []
    assert await _version(store) == 2
    assert (await look(store, await put(store))).priority == 0
