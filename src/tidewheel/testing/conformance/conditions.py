"""Lists and counts by a condition: what no index serves, looked for newest first."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tidewheel.conditions import (
    NEVER,
    AllOf,
    AnyOf,
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    Field,
    HasFingerprint,
    HoldsText,
    InState,
    LastErrorHolds,
    Not,
)
from tidewheel.fingerprints import of_job
from tidewheel.limits import TopicLimits
from tidewheel.model import BodyFormat, JobError, JobFilter, Shown, State
from tidewheel.outcome import Failed, Retried
from tidewheel.stores.protocol import SUMMARY_LENGTH, Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import TOPIC, claim_one, completed, end, failed, put

EQUAL, LESS, GREATER, CONTAINS = (
    Comparison.EQUAL,
    Comparison.LESS,
    Comparison.GREATER,
    Comparison.CONTAINS,
)


async def _meeting(store: Store, condition: Condition, **fields: Any) -> list[UUID]:
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
    without, with_key = await put(store), await put(store, key="k")
    assert await _meeting(store, Compare(Field.KEY, EQUAL, "")) == [without]
    assert await _meeting(store, Compare(Field.KEY, EQUAL, None)) == [without]
    assert await _meeting(store, Compare(Field.KEY, GREATER, "")) == [with_key]
    assert await _meeting(store, Compare(Field.KEY, LESS, "k")) == [without]
    assert await _meeting(store, Compare(Field.KEY, CONTAINS, "")) == [without, with_key]


async def test_a_missing_limit_key_is_the_empty_text(store: Store) -> None:
    """Also where a topic has limits, which stores may have to note on jobs without a key."""
    await store.set_limits("limited", TopicLimits(concurrency=1))
    without, with_key = await put(store, "limited"), await put(store, "limited", limit_key="k")
    assert await _meeting(store, Compare(Field.LIMIT_KEY, EQUAL, "")) == [without]
    assert await _meeting(store, Compare(Field.LIMIT_KEY, EQUAL, "k")) == [with_key]


async def test_a_missing_number_is_neither_smaller_nor_larger(store: Store, clock: FrozenClock) -> None:
    """It equals None, and nothing else."""
    open_ended, done = await put(store, "later", max_attempts=None), await completed(store)
    now = clock.now()
    assert await _meeting(store, Compare(Field.FINISHED_AT, EQUAL, None)) == [open_ended]
    assert await _meeting(store, Compare(Field.FINISHED_AT, Comparison.AT_MOST, now)) == [done]
    assert await _meeting(store, Compare(Field.FINISHED_AT, GREATER, now)) == []
    assert await _meeting(store, Compare(Field.MAX_ATTEMPTS, LESS, 2**63)) == [done]
    assert await _meeting(store, Compare(Field.MAX_ATTEMPTS, EQUAL, 2**70)) == []


async def test_texts_are_ordered_by_code_point(store: Store) -> None:
    """Whatever language a database was set up for."""
    names = ["B", "a", "é", "\ue000", "\U0001f0a1"]
    job_ids = [await put(store, user_id=name) for name in names]
    for number, name in enumerate(names):
        assert await _meeting(store, Compare(Field.USER_ID, LESS, name)) == job_ids[:number]
    assert await _meeting(store, Compare(Field.USER_ID, CONTAINS, "é")) == [job_ids[2]]


async def test_conditions_on_states_and_columns_combine(store: Store, clock: FrozenClock) -> None:
    """Derived states, AND, OR and NOT, beside the fields of the filter."""
    done, lost = await completed(store), await failed(store, priority=5)
    delayed = await put(store, delay=60, priority=5)
    ended = AnyOf((InState(State.COMPLETED), InState(State.FAILED)))
    urgent = Compare(Field.PRIORITY, Comparison.AT_LEAST, 5)
    assert await _meeting(store, ended) == [done, lost]
    assert await _meeting(store, AllOf((urgent, Not(ended)))) == [delayed]
    assert await _meeting(store, AnyOf((AllOf((urgent, ended)), InState(Shown.DELAYED)))) == [lost, delayed]
    assert await _meeting(store, urgent, state=State.FAILED) == [lost]
    assert await _meeting(store, NEVER) == []
    clock.advance(60)
    assert await _meeting(store, InState(Shown.DELAYED)) == []


async def test_a_condition_may_have_thousands_of_parts(store: Store) -> None:
    """A rule that lists topics, say; databases have limits of their own for what stands side by side."""
    listed = await put(store, "topic-2999")
    await put(store, "unlisted")
    some = AnyOf(tuple(Compare(Field.TOPIC, EQUAL, f"topic-{number}") for number in range(3000)))
    assert await _meeting(store, some) == [listed]


async def test_values_inside_of_payloads_are_compared_with_their_own_kind(store: Store) -> None:
    """A number is no text, and what is not there equals None."""
    number = await put(store, payload=b'{"user":{"id":42,"tags":["x"]}}')
    text = await put(store, payload=b'{"user":{"id":"42"}}')
    nothing = await put(store, payload=b"{}")
    raw = await put(store, payload=b'{"user":{"id":42}}', format=BodyFormat.BYTES)
    broken = await put(store, payload=b'{"user":')  # no door lets it in, but a store keeps what it is given
    path = ("user", "id")
    assert await _meeting(store, ComparePayload(path, EQUAL, 42)) == [number]
    assert await _meeting(store, ComparePayload(path, EQUAL, "42")) == [text]
    assert await _meeting(store, ComparePayload(path, EQUAL, None)) == [nothing, raw, broken]
    assert await _meeting(store, ComparePayload(path, GREATER, 41.5)) == [number]
    assert await _meeting(store, ComparePayload(("user", "tags", 0), EQUAL, "x")) == [number]
    either = AnyOf((ComparePayload(path, EQUAL, 42), HoldsText("{}")))
    assert await _meeting(store, either) == [number, nothing]


async def test_error_texts_are_told_apart_from_payloads(store: Store) -> None:
    """The errors of all kept attempts, not only of the last."""
    in_payload = await put(store, payload=b'"needle"')
    await store.cancel([in_payload])
    in_error = await put(store)
    await end(store, (await claim_one(store)).lease, Retried(0, JobError("odd", "needle in hay")))
    await end(store, (await claim_one(store)).lease, Failed(JobError("other", "hay")))
    assert await _meeting(store, HoldsText("needle")) == [in_payload, in_error]
    assert await _meeting(store, HoldsText("needle", in_payload=False)) == [in_error]
    both = AllOf((HoldsText("needle", in_payload=False), ComparePayload((), EQUAL, "needle")))
    assert await _meeting(store, both) == []


async def test_the_last_error_is_told_apart_from_earlier_ones(store: Store) -> None:
    """All of it is searched, also what its summary leaves out; of a cancelled job it is the reason."""
    long = "hay" * SUMMARY_LENGTH + "needle"
    earlier, last, cancelled = [await put(store) for _ in range(3)]
    for error in (JobError("odd", "needle"), JobError("other", "hay"), JobError("other", long)):
        claimed = await claim_one(store)
        await end(store, claimed.lease, Retried(0, error) if error.code == "odd" else Failed(error))
    await store.cancel([cancelled])
    assert await _meeting(store, HoldsText("needle", in_payload=False)) == [earlier, last]
    assert await _meeting(store, LastErrorHolds("needle")) == [last]
    assert await _meeting(store, LastErrorHolds("on request")) == [cancelled]
    assert await _meeting(store, Not(LastErrorHolds("needle"))) == [earlier, cancelled]


async def test_a_fingerprint_selects_the_jobs_of_a_group(store: Store) -> None:
    """By the last error, in one lane: what a list of failures counts, a filter finds."""
    failed = []
    for number, (topic, code) in enumerate(
        [(TOPIC, "odd"), (TOPIC, "odd"), (TOPIC, "other"), ("else", "odd")]
    ):
        failed.append(await put(store, topic))
        error = JobError(code, f"user {number} is missing")
        await end(store, (await claim_one(store, topic)).lease, Failed(error))
    retried = await put(store)
    await end(store, (await claim_one(store)).lease, Retried(0, JobError("odd", "user 9 is missing")))
    await end(store, (await claim_one(store)).lease, Failed(JobError("other", "user 9 is missing")))
    groups = (await store.failures(JobFilter(), window_seconds=3600, limit=10)).groups
    assert sorted(group.count for group in groups) == [1, 2, 2]
    for group in groups:
        found = await _meeting(store, HasFingerprint(group.fingerprint))
        assert len(found) == group.count
        assert (retried in found) == (group.pattern.startswith("other"))
    odd = HasFingerprint(of_job(TOPIC, groups[0].task, "odd: user 1 is missing"))
    assert await _meeting(store, odd) == failed[:2]
    assert await _meeting(store, AllOf((Not(odd), InState(State.FAILED)))) == [*failed[2:], retried]
    with_payload = AllOf((odd, ComparePayload((), EQUAL, "nothing")))
    assert await _meeting(store, with_payload) == []
    assert await _meeting(store, AnyOf((odd, ComparePayload((), EQUAL, "nothing")))) == failed[:2]


@pytest.mark.parametrize("condition", [Compare(Field.PRIORITY, EQUAL, 1), ComparePayload((), EQUAL, "hit")])
async def test_pages_of_a_condition_continue_by_cursor(store: Store, condition: Condition) -> None:
    """Like any other list, offsets included."""
    hits = [
        await put(store, priority=index % 2, payload=b'"hit"' if index % 2 else b"0") for index in range(10)
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
