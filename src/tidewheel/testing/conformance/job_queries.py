"""Job queries: get, states, list and count, by fields and by condition (Q27).

Conditions cover filters that no index serves; the store scans for them newest first.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tidewheel.core.conditions import (
    NEVER,
    AllOf,
    AnyOf,
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    ContainsText,
    Field,
    HasFingerprint,
    InState,
    LastErrorContains,
    Not,
)
from tidewheel.core.fingerprints import job_fingerprint
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    ROOT_TENANT,
    BodyFormat,
    Completed,
    Count,
    DerivedState,
    Failed,
    JobError,
    JobFilter,
    JobRecord,
    Progress,
    Report,
    Retried,
    State,
)
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.stores.bounds import MAX_COUNT, MAX_ENQUEUE_BATCH, MAX_SUMMARY_LENGTH
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    TOPIC,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    job,
    make_completed,
    make_failed,
    settle_one,
)

EQUAL, LESS, GREATER, CONTAINS = (
    Comparison.EQUAL,
    Comparison.LESS,
    Comparison.GREATER,
    Comparison.CONTAINS,
)


async def _matching_ids(store: Store, condition: Condition, **fields: Any) -> list[UUID]:
    """The ids of jobs that meet a condition, oldest first, checked against the count and against NOT."""
    where = JobFilter(condition=condition, **fields)
    found = [item.id for item in (await store.list_jobs(where, limit=100)).items]
    count = await store.count(where)
    assert (count.total, count.exact) == (len(found), True)
    others = await store.list_jobs(JobFilter(condition=Not(condition), **fields), limit=100)
    everything = await store.list_jobs(JobFilter(**fields), limit=100)
    assert {*found, *(item.id for item in others.items)} == {item.id for item in everything.items}
    assert len(found) + len(others.items) == len(everything.items), "each job meets it, or meets NOT"
    return found[::-1]


async def test_a_missing_text_is_the_empty_one(store: Store) -> None:
    """Equal to it, before every other, and holding nothing."""
    without, with_key = await enqueue_one(store), await enqueue_one(store, key="k")
    assert await _matching_ids(store, Compare(Field.KEY, EQUAL, "")) == [without]
    assert await _matching_ids(store, Compare(Field.KEY, EQUAL, None)) == [without]
    assert await _matching_ids(store, Compare(Field.KEY, GREATER, "")) == [with_key]
    assert await _matching_ids(store, Compare(Field.KEY, LESS, "k")) == [without]
    assert await _matching_ids(store, Compare(Field.KEY, CONTAINS, "")) == [without, with_key]


async def test_a_missing_limit_key_is_the_empty_text(store: Store) -> None:
    """Also where a topic has limits, which stores may have to note on jobs without a key."""
    await store.set_limits("limited", TopicLimits(concurrency=1))
    without, with_key = (
        await enqueue_one(store, "limited"),
        await enqueue_one(store, "limited", limit_key="k"),
    )
    assert await _matching_ids(store, Compare(Field.LIMIT_KEY, EQUAL, "")) == [without]
    assert await _matching_ids(store, Compare(Field.LIMIT_KEY, EQUAL, "k")) == [with_key]


async def test_a_missing_number_is_neither_smaller_nor_larger(store: Store, clock: FrozenClock) -> None:
    """It equals None, and nothing else."""
    open_ended, done = await enqueue_one(store, "later", max_attempts=None), await make_completed(store)
    now = clock.now()
    assert await _matching_ids(store, Compare(Field.FINISHED_AT, EQUAL, None)) == [open_ended]
    assert await _matching_ids(store, Compare(Field.FINISHED_AT, Comparison.AT_MOST, now)) == [done]
    assert await _matching_ids(store, Compare(Field.FINISHED_AT, GREATER, now)) == []
    assert await _matching_ids(store, Compare(Field.MAX_ATTEMPTS, LESS, 2**63)) == [done]
    assert await _matching_ids(store, Compare(Field.MAX_ATTEMPTS, EQUAL, 2**70)) == []


async def test_texts_are_ordered_by_code_point(store: Store) -> None:
    """Whatever language a database was set up for."""
    names = ["B", "a", "é", "\ue000", "\U0001f0a1"]
    job_ids = [await enqueue_one(store, user_id=name) for name in names]
    for number, name in enumerate(names):
        assert await _matching_ids(store, Compare(Field.USER_ID, LESS, name)) == job_ids[:number]
    assert await _matching_ids(store, Compare(Field.USER_ID, CONTAINS, "é")) == [job_ids[2]]


async def test_conditions_on_states_and_columns_combine(store: Store, clock: FrozenClock) -> None:
    """Derived states, AND, OR and NOT, beside the fields of the filter."""
    done, lost = await make_completed(store), await make_failed(store, priority=5)
    delayed = await enqueue_one(store, delay=60, priority=5)
    ended = AnyOf((InState(State.COMPLETED), InState(State.FAILED)))
    urgent = Compare(Field.PRIORITY, Comparison.AT_LEAST, 5)
    assert await _matching_ids(store, ended) == [done, lost]
    assert await _matching_ids(store, AllOf((urgent, Not(ended)))) == [delayed]
    assert await _matching_ids(store, AnyOf((AllOf((urgent, ended)), InState(DerivedState.DELAYED)))) == [
        lost,
        delayed,
    ]
    assert await _matching_ids(store, urgent, state=State.FAILED) == [lost]
    assert await _matching_ids(store, NEVER) == []
    clock.advance(60)
    assert await _matching_ids(store, InState(DerivedState.DELAYED)) == []


async def test_a_condition_may_have_thousands_of_parts(store: Store) -> None:
    """A rule that lists topics, say; databases have limits of their own for what stands side by side."""
    listed = await enqueue_one(store, "topic-2999")
    await enqueue_one(store, "unlisted")
    some = AnyOf(tuple(Compare(Field.TOPIC, EQUAL, f"topic-{number}") for number in range(3000)))
    assert await _matching_ids(store, some) == [listed]


async def test_values_inside_of_payloads_are_compared_with_their_own_kind(store: Store) -> None:
    """A number is no text, and what is not there equals None."""
    number = await enqueue_one(store, payload=b'{"user":{"id":42,"tags":["x"]}}')
    text = await enqueue_one(store, payload=b'{"user":{"id":"42"}}')
    nothing = await enqueue_one(store, payload=b"{}")
    raw = await enqueue_one(store, payload=b'{"user":{"id":42}}', format=BodyFormat.BYTES)
    # No door lets it in, but a store keeps what it is given.
    broken = await enqueue_one(store, payload=b'{"user":')
    path = ("user", "id")
    assert await _matching_ids(store, ComparePayload(path, EQUAL, 42)) == [number]
    assert await _matching_ids(store, ComparePayload(path, EQUAL, "42")) == [text]
    assert await _matching_ids(store, ComparePayload(path, EQUAL, None)) == [nothing, raw, broken]
    assert await _matching_ids(store, ComparePayload(path, GREATER, 41.5)) == [number]
    assert await _matching_ids(store, ComparePayload(("user", "tags", 0), EQUAL, "x")) == [number]
    either = AnyOf((ComparePayload(path, EQUAL, 42), ContainsText("{}")))
    assert await _matching_ids(store, either) == [number, nothing]


async def test_error_texts_are_told_apart_from_payloads(store: Store) -> None:
    """The errors of all kept attempts, not only of the last."""
    in_payload = await enqueue_one(store, payload=b'"needle"')
    await store.cancel([in_payload])
    in_error = await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Retried(0, JobError("odd", "needle in hay")))
    await settle_one(store, (await claim_one(store)).lease, Failed(JobError("other", "hay")))
    assert await _matching_ids(store, ContainsText("needle")) == [in_payload, in_error]
    assert await _matching_ids(store, ContainsText("needle", in_payload=False)) == [in_error]
    both = AllOf((ContainsText("needle", in_payload=False), ComparePayload((), EQUAL, "needle")))
    assert await _matching_ids(store, both) == []


async def test_the_last_error_is_told_apart_from_earlier_ones(store: Store) -> None:
    """All of it is searched, also what its summary leaves out; of a cancelled job it is the reason."""
    long = "hay" * MAX_SUMMARY_LENGTH + "needle"
    earlier, last, cancelled = [await enqueue_one(store) for _ in range(3)]
    for error in (JobError("odd", "needle"), JobError("other", "hay"), JobError("other", long)):
        claimed = await claim_one(store)
        await settle_one(store, claimed.lease, Retried(0, error) if error.code == "odd" else Failed(error))
    await store.cancel([cancelled])
    assert await _matching_ids(store, ContainsText("needle", in_payload=False)) == [earlier, last]
    assert await _matching_ids(store, LastErrorContains("needle")) == [last]
    assert await _matching_ids(store, LastErrorContains("on request")) == [cancelled]
    assert await _matching_ids(store, Not(LastErrorContains("needle"))) == [earlier, cancelled]


async def test_a_fingerprint_selects_the_jobs_of_a_group(store: Store) -> None:
    """By the last error, in one lane: what a list of failures counts, a filter finds."""
    failed = []
    for number, (topic, code) in enumerate(
        [(TOPIC, "odd"), (TOPIC, "odd"), (TOPIC, "other"), ("else", "odd")]
    ):
        failed.append(await enqueue_one(store, topic))
        error = JobError(code, f"user {number} is missing")
        await settle_one(store, (await claim_one(store, topic)).lease, Failed(error))
    retried = await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Retried(0, JobError("odd", "user 9 is missing")))
    await settle_one(store, (await claim_one(store)).lease, Failed(JobError("other", "user 9 is missing")))
    groups = (await store.failures(JobFilter(), window_seconds=3600, limit=10)).groups
    assert sorted(group.count for group in groups) == [1, 2, 2]
    for group in groups:
        found = await _matching_ids(store, HasFingerprint(group.fingerprint))
        assert len(found) == group.count
        assert (retried in found) == (group.pattern.startswith("other"))
    odd = HasFingerprint(job_fingerprint(TOPIC, groups[0].task, "odd: user 1 is missing"))
    assert await _matching_ids(store, odd) == failed[:2]
    assert await _matching_ids(store, AllOf((Not(odd), InState(State.FAILED)))) == [*failed[2:], retried]
    with_payload = AllOf((odd, ComparePayload((), EQUAL, "nothing")))
    assert await _matching_ids(store, with_payload) == []
    assert await _matching_ids(store, AnyOf((odd, ComparePayload((), EQUAL, "nothing")))) == failed[:2]


@pytest.mark.parametrize("condition", [Compare(Field.PRIORITY, EQUAL, 1), ComparePayload((), EQUAL, "hit")])
async def test_pages_of_a_condition_continue_by_cursor(store: Store, condition: Condition) -> None:
    """Like any other list, offsets included."""
    hits = [
        await enqueue_one(store, priority=index % 2, payload=b'"hit"' if index % 2 else b"0")
        for index in range(10)
    ][::-2]
    where = JobFilter(condition=condition)
    first = await store.list_jobs(where, limit=2)
    second = await store.list_jobs(where, limit=2, cursor=first.cursor)
    third = await store.list_jobs(where, limit=2, cursor=second.cursor)
    assert [item.id for page in (first, second, third) for item in page.items] == hits
    assert third.cursor is None
    assert all(item.payload is None for item in first.items), "lists carry no bodies"
    skipping = await store.list_jobs(where, limit=2, offset=2)
    assert [item.id for item in skipping.items] == hits[2:4]


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
    done, waiting = await make_completed(store), await enqueue_one(store)
    answers = await store.states([waiting, new_id(), done, waiting])
    assert answers == [State.PENDING, None, State.COMPLETED, State.PENDING]


async def test_lists_are_newest_first_and_carry_no_bodies(store: Store) -> None:
    """Everything but payload, result, checkpoint and attempts is what ``get`` shows."""
    await enqueue_one(store, payload=b'"secret"', format=BodyFormat.BYTES, tenant="acme", priority=2)
    claimed = await claim_one(store)
    await store.mark_started([claimed.lease])
    await store.report([Report(claimed.lease, Progress(5, "m", "s"), b'"checkpoint"')])
    await settle_one(store, claimed.lease, Retried(0, BOOM), 1.0)
    await settle_one(store, (await claim_one(store)).lease, Completed(b'"result"'))
    newest = await enqueue_one(store)
    page = await store.list_jobs(JobFilter(), limit=10)
    assert [item.id for item in page.items] == [newest, claimed.lease.job_id]
    for item in page.items:
        assert (item.payload, item.result, item.checkpoint, item.attempts) == (None, None, None, ())
        full = await get_job(store, item.id)
        shown = full.__struct_fields__[: full.__struct_fields__.index("format")]
        assert item == JobRecord(**{name: getattr(full, name) for name in shown})


async def test_an_empty_store_lists_nothing(store: Store) -> None:
    """And has no next page."""
    page = await store.list_jobs(JobFilter(), limit=10)
    assert (page.items, page.cursor, page.partial) == ((), None, False)
    assert (await store.count(JobFilter())).total == 0


async def test_cursors_walk_through_everything_once(store: Store) -> None:
    """Also while new jobs come in; None means there is nothing further."""
    job_ids = await enqueue_many(store, 7)
    seen = []
    cursor = None
    for _ in range(10):
        page = await store.list_jobs(JobFilter(), limit=3, cursor=cursor)
        seen += [item.id for item in page.items]
        await enqueue_one(store)
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == job_ids[::-1]


async def test_a_page_that_ends_exactly_has_no_cursor(store: Store) -> None:
    """A full page is not a promise of another."""
    await enqueue_many(store, 4)
    first = await store.list_jobs(JobFilter(), limit=2)
    assert first.cursor is not None
    second = await store.list_jobs(JobFilter(), limit=2, cursor=first.cursor)
    assert (len(second.items), second.cursor) == (2, None)


async def test_a_cursor_survives_the_deletion_of_its_job(store: Store) -> None:
    """It is a place, not a job."""
    job_ids = await enqueue_many(store, 4)
    page = await store.list_jobs(JobFilter(), limit=2)
    await store.delete([item.id for item in page.items])
    rest = await store.list_jobs(JobFilter(), limit=2, cursor=page.cursor)
    assert [item.id for item in rest.items] == job_ids[1::-1]


async def test_offsets_work_too(store: Store) -> None:
    """Counted from the newest, or from the cursor."""
    job_ids = (await enqueue_many(store, 5))[::-1]
    page = await store.list_jobs(JobFilter(), limit=2, offset=1)
    assert [item.id for item in page.items] == job_ids[1:3]
    after = await store.list_jobs(JobFilter(), limit=2, cursor=page.cursor, offset=1)
    assert [item.id for item in after.items] == job_ids[4:]
    assert (await store.list_jobs(JobFilter(), limit=2, offset=9)).items == ()


async def test_filters_by_what_a_job_is(store: Store) -> None:
    """Topic, task, tenant, key and correlation, each by itself and together."""
    a = await enqueue_one(store, "a", task="x", tenant="t1", key="k1", correlation_id="c1")
    b = await enqueue_one(store, "a", task="y", tenant="t2", key="k1", correlation_id="c2")
    c = await enqueue_one(store, "b", task="x", tenant="t1", correlation_id="c1")
    d = await enqueue_one(store, "b")
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
    first = await enqueue_one(store)
    start = clock.now()
    clock.advance(10)
    second = await enqueue_one(store)
    middle = clock.now()
    clock.advance(10)
    third = await enqueue_one(store)
    assert await _found(store, created_after=middle) == [second, third]
    assert await _found(store, created_before=middle) == [first]
    assert await _found(store, created_after=start, created_before=middle + 1) == [first, second]


async def test_filters_by_state_stored_and_derived(store: Store, clock: FrozenClock) -> None:
    """A derived state is a finer view: its jobs are among those of the stored one."""
    done = await make_completed(store)
    lost = await make_failed(store)
    dropped = await enqueue_one(store)
    await store.cancel([dropped])
    retrying = await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Retried(0, BOOM))
    put_off = await enqueue_one(store, priority=1)
    await settle_one(store, (await claim_one(store)).lease, Retried(60, BOOM))
    running = await enqueue_one(store, priority=2)
    await store.mark_started([(await claim_one(store)).lease])
    claimed = await enqueue_one(store, priority=2)
    await claim_one(store)
    waiting, delayed = await enqueue_one(store), await enqueue_one(store, delay=60)
    assert await _found(store, state=State.COMPLETED) == [done]
    assert await _found(store, state=State.FAILED) == [lost]
    assert await _found(store, state=State.CANCELLED) == [dropped]
    assert await _found(store, state=State.RUNNING) == [running, claimed]
    assert await _found(store, state=State.PENDING) == [retrying, put_off, waiting, delayed]
    assert await _found(store, state=DerivedState.CLAIMED) == [claimed]
    assert await _found(store, state=DerivedState.RETRYING) == [retrying, put_off]
    assert await _found(store, state=DerivedState.DELAYED) == [put_off, delayed]
    assert await _found(store, state=DerivedState.BLOCKED) == []
    clock.advance(60)
    assert await _found(store, state=DerivedState.DELAYED) == [], "due jobs are not delayed, claimed or not"


async def test_filters_by_text(store: Store) -> None:
    """A substring of the payload or of an error's code or message, case by case."""
    in_payload = await enqueue_one(store, payload='{"name":"Éva Needle"}'.encode())
    in_bytes = await enqueue_one(store, payload=b"\xff\x00Needle\x00", format=BodyFormat.BYTES)
    await store.cancel([in_payload, in_bytes])
    in_old_error = await enqueue_one(store)
    await settle_one(
        store, (await claim_one(store)).lease, Retried(0, JobError("boom", 'a "Needle"\nin hay'))
    )
    await settle_one(store, (await claim_one(store)).lease, Failed(JobError("other", "hay")))
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
    job_ids = [await enqueue_one(store, payload=b'"hit"' if index % 2 else b'"miss"') for index in range(8)]
    first = await store.list_jobs(JobFilter(text="hit"), limit=3)
    second = await store.list_jobs(JobFilter(text="hit"), limit=3, cursor=first.cursor)
    assert [item.id for item in (*first.items, *second.items)] == job_ids[7::-2]
    assert second.cursor is None


@pytest.mark.parametrize("extra", [0, 1])
async def test_counts_are_exact_up_to_the_limit_and_say_when_not(store: Store, extra: int) -> None:
    """Ten thousand is exact, one more is "at least ten thousand", unless counters are asked for all."""
    assert MAX_COUNT <= MAX_ENQUEUE_BATCH
    await store.enqueue([job() for _ in range(MAX_COUNT)])
    await store.enqueue([job() for _ in range(extra)])
    count = await store.count(JobFilter())
    assert (count.total, count.exact) == (MAX_COUNT, not extra)
    every = MAX_COUNT + extra
    for where in (
        JobFilter(),
        JobFilter(state=State.PENDING, topic=job().topic),
        JobFilter(tenant=ROOT_TENANT),
    ):
        assert await store.count(where, exact=True) == Count(every), where
    assert await store.count(JobFilter(state=State.FAILED), exact=True) == Count(0)
    # No counters are kept of times: those are walked through, and not without an end.
    found = await store.count(JobFilter(created_after=0), exact=True)
    assert (found.total, found.exact) == (MAX_COUNT, not extra)
