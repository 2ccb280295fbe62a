"""Get, states, list and count (Q27)."""

from __future__ import annotations

from typing import Any

import pytest

from tidewheel.ids import new_id
from tidewheel.model import (
    ROOT_TENANT,
    BodyFormat,
    Count,
    JobError,
    JobFilter,
    JobRecord,
    Progress,
    Report,
    Shown,
    State,
)
from tidewheel.outcome import Completed, Failed, Retried
from tidewheel.stores.protocol import COUNT_LIMIT, MAX_ENQUEUE_BATCH, Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import (
    BOOM,
    claim_one,
    completed,
    end,
    failed,
    job,
    look,
    put,
    put_many,
)


async def _found(store: Store, **where: Any) -> list[Any]:
    """The ids a filter finds, oldest first, checked against the count."""
    found = [item.id for item in (await store.list_jobs(JobFilter(**where), limit=100)).items]
    count = await store.count(JobFilter(**where))
    assert (count.total, count.exact) == (len(found), True)
    return found[::-1]


async def test_an_unknown_job_is_none(store: Store) -> None:
    """Not an error: the caller knows what it means."""
    assert await store.get(new_id()) is None


async def test_states_answers_in_the_order_asked(store: Store) -> None:
    """One by one, None for what is not there, twice for what is asked twice."""
    done, waiting = await completed(store), await put(store)
    answers = await store.states([waiting, new_id(), done, waiting])
    assert answers == [State.PENDING, None, State.COMPLETED, State.PENDING]


async def test_lists_are_newest_first_and_carry_no_bodies(store: Store) -> None:
    """Everything but payload, result, checkpoint and attempts is what ``get`` shows."""
    await put(store, payload=b'"secret"', format=BodyFormat.BYTES, tenant="acme", priority=2)
    claimed = await claim_one(store)
    await store.start([claimed.lease])
    await store.report([Report(claimed.lease, Progress(5, "m", "s"), b'"checkpoint"')])
    await end(store, claimed.lease, Retried(0, BOOM), 1.0)
    await end(store, (await claim_one(store)).lease, Completed(b'"result"'))
    newest = await put(store)
    page = await store.list_jobs(JobFilter(), limit=10)
    assert [item.id for item in page.items] == [newest, claimed.lease.job_id]
    for item in page.items:
        assert (item.payload, item.result, item.checkpoint, item.attempts) == (None, None, None, ())
        full = await look(store, item.id)
        shown = full.__struct_fields__[: full.__struct_fields__.index("format")]
        assert item == JobRecord(**{name: getattr(full, name) for name in shown})


async def test_an_empty_store_lists_nothing(store: Store) -> None:
    """And has no next page."""
    page = await store.list_jobs(JobFilter(), limit=10)
    assert (page.items, page.cursor, page.partial) == ((), None, False)
    assert (await store.count(JobFilter())).total == 0


async def test_cursors_walk_through_everything_once(store: Store) -> None:
    """Also while new jobs come in; None means there is nothing further."""
    job_ids = await put_many(store, 7)
    seen = []
    cursor = None
    for _ in range(10):
        page = await store.list_jobs(JobFilter(), limit=3, cursor=cursor)
        seen += [item.id for item in page.items]
        await put(store)
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == job_ids[::-1]


async def test_a_page_that_ends_exactly_has_no_cursor(store: Store) -> None:
    """A full page is not a promise of another."""
    await put_many(store, 4)
    first = await store.list_jobs(JobFilter(), limit=2)
    assert first.cursor is not None
    second = await store.list_jobs(JobFilter(), limit=2, cursor=first.cursor)
    assert (len(second.items), second.cursor) == (2, None)


async def test_a_cursor_survives_the_deletion_of_its_job(store: Store) -> None:
    """It is a place, not a job."""
    job_ids = await put_many(store, 4)
    page = await store.list_jobs(JobFilter(), limit=2)
    await store.delete([item.id for item in page.items])
    rest = await store.list_jobs(JobFilter(), limit=2, cursor=page.cursor)
    assert [item.id for item in rest.items] == job_ids[1::-1]


async def test_offsets_work_too(store: Store) -> None:
    """Counted from the newest, or from the cursor."""
    job_ids = (await put_many(store, 5))[::-1]
    page = await store.list_jobs(JobFilter(), limit=2, offset=1)
    assert [item.id for item in page.items] == job_ids[1:3]
    after = await store.list_jobs(JobFilter(), limit=2, cursor=page.cursor, offset=1)
    assert [item.id for item in after.items] == job_ids[4:]
    assert (await store.list_jobs(JobFilter(), limit=2, offset=9)).items == ()


async def test_filters_by_what_a_job_is(store: Store) -> None:
    """Topic, task, tenant, key and correlation, each by itself and together."""
    a = await put(store, "a", task="x", tenant="t1", key="k1", correlation_id="c1")
    b = await put(store, "a", task="y", tenant="t2", key="k1", correlation_id="c2")
    c = await put(store, "b", task="x", tenant="t1", correlation_id="c1")
    d = await put(store, "b")
    assert await _found(store) == [a, b, c, d]
    assert await _found(store, topic="a") == [a, b]
    assert await _found(store, task="x") == [a, c]
    assert await _found(store, task="") == [d]
    assert await _found(store, tenant="t1") == [a, c]
    assert await _found(store, key="k1") == [a, b]
    assert await _found(store, correlation_id="c1") == [a, c]
    assert await _found(store, topic="b", correlation_id="c1") == [c]
    assert await _found(store, topic="a", task="x", tenant="t2") == []
    assert await _found(store, topic="A") == [], "names are compared exactly"


async def test_filters_by_time_of_creation(store: Store, clock: FrozenClock) -> None:
    """After is inclusive, before is exclusive, so that days can be laid side by side."""
    first = await put(store)
    start = clock.now()
    clock.advance(10)
    second = await put(store)
    middle = clock.now()
    clock.advance(10)
    third = await put(store)
    assert await _found(store, created_after=middle) == [second, third]
    assert await _found(store, created_before=middle) == [first]
    assert await _found(store, created_after=start, created_before=middle + 1) == [first, second]


async def test_filters_by_state_stored_and_derived(store: Store, clock: FrozenClock) -> None:
    """A derived state is a finer view: its jobs are among those of the stored one."""
    done = await completed(store)
    lost = await failed(store)
    dropped = await put(store)
    await store.cancel([dropped])
    retrying = await put(store)
    await end(store, (await claim_one(store)).lease, Retried(0, BOOM))
    put_off = await put(store, priority=1)
    await end(store, (await claim_one(store)).lease, Retried(60, BOOM))
    running = await put(store, priority=2)
    await store.start([(await claim_one(store)).lease])
    claimed = await put(store, priority=2)
    await claim_one(store)
    waiting, delayed = await put(store), await put(store, delay=60)
    assert await _found(store, state=State.COMPLETED) == [done]
    assert await _found(store, state=State.FAILED) == [lost]
    assert await _found(store, state=State.CANCELLED) == [dropped]
    assert await _found(store, state=State.RUNNING) == [running, claimed]
    assert await _found(store, state=State.PENDING) == [retrying, put_off, waiting, delayed]
    assert await _found(store, state=Shown.CLAIMED) == [claimed]
    assert await _found(store, state=Shown.RETRYING) == [retrying, put_off]
    assert await _found(store, state=Shown.DELAYED) == [put_off, delayed]
    assert await _found(store, state=Shown.BLOCKED) == []
    clock.advance(60)
    assert await _found(store, state=Shown.DELAYED) == [], "due jobs are not delayed, claimed or not"


async def test_filters_by_text(store: Store) -> None:
    """A substring of the payload or of an error's code or message, case by case."""
    in_payload = await put(store, payload='{"name":"Éva Needle"}'.encode())
    in_bytes = await put(store, payload=b"\xff\x00Needle\x00", format=BodyFormat.BYTES)
    await store.cancel([in_payload, in_bytes])
    in_old_error = await put(store)
    await end(store, (await claim_one(store)).lease, Retried(0, JobError("boom", 'a "Needle"\nin hay')))
    await end(store, (await claim_one(store)).lease, Failed(JobError("other", "hay")))
    expected = [in_payload, in_bytes, in_old_error]
    assert await _found(store, text="Needle") == expected
    assert await _found(store, text="needle") == []
    assert await _found(store, text="Éva") == [in_payload]
    assert await _found(store, text='"Needle"\nin') == [in_old_error]
    assert await _found(store, text="other: hay") == [in_old_error]
    assert await _found(store, text="Needle", state=State.FAILED) == [in_old_error]
    assert await _found(store, text="job_canceled") == [in_payload, in_bytes]
    assert await _found(store, text="100%_") == [], "nothing is a wildcard"
    assert await _found(store, text="retryable") == [], "only what people wrote is searched"


async def test_text_pages_continue_by_cursor(store: Store) -> None:
    """Like any other list."""
    job_ids = [await put(store, payload=b'"hit"' if index % 2 else b'"miss"') for index in range(8)]
    first = await store.list_jobs(JobFilter(text="hit"), limit=3)
    second = await store.list_jobs(JobFilter(text="hit"), limit=3, cursor=first.cursor)
    assert [item.id for item in (*first.items, *second.items)] == job_ids[7::-2]
    assert second.cursor is None


@pytest.mark.parametrize("extra", [0, 1])
async def test_counts_are_exact_up_to_the_limit_and_say_when_not(store: Store, extra: int) -> None:
    """Ten thousand is exact, one more is "at least ten thousand", unless counters are asked for all."""
    assert COUNT_LIMIT <= MAX_ENQUEUE_BATCH
    await store.enqueue([job() for _ in range(COUNT_LIMIT)])
    await store.enqueue([job() for _ in range(extra)])
    count = await store.count(JobFilter())
    assert (count.total, count.exact) == (COUNT_LIMIT, not extra)
    every = COUNT_LIMIT + extra
    for where in (
        JobFilter(),
        JobFilter(state=State.PENDING, topic=job().topic),
        JobFilter(tenant=ROOT_TENANT),
    ):
        assert await store.count(where, beyond=True) == Count(every), where
    assert await store.count(JobFilter(state=State.FAILED), beyond=True) == Count(0)
    # No counters are kept of times: those are walked through, and not without an end.
    found = await store.count(JobFilter(created_after=0), beyond=True)
    assert (found.total, found.exact) == (COUNT_LIMIT, not extra)
