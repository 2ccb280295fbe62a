"""New jobs made under a row filter (``NewJob.row_filter``): a job that it hides is not there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidewheel.core.conditions import (
    NEVER,
    AnyOf,
    Compare,
    Comparison,
    Condition,
    Field,
    InState,
    Not,
)
from tidewheel.core.ids import new_id
from tidewheel.core.model import DerivedState, JobFilter, OnDuplicate, State
from tidewheel.errors import KeyInUse, ParentNotFound
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    claim_one,
    enqueue_one,
    get_job,
    job,
    make_cancelled,
    make_completed,
    make_failed,
)

CHOICES = tuple(OnDuplicate)


def _of(user: str) -> Condition:
    return Compare(Field.USER_ID, Comparison.EQUAL, user)


def _priority(value: int) -> Condition:
    return Compare(Field.PRIORITY, Comparison.EQUAL, value)


def _mine(**options: Any) -> Any:
    return job(**({"user_id": "ann", "row_filter": _of("ann"), "key": "k", "payload": b"2"} | options))


async def _numbers(store: Store) -> int:
    return len((await store.list_jobs(JobFilter(), limit=100)).items)


@pytest.mark.parametrize("choice", CHOICES)
async def test_hidden_holder_of_a_key_is_neither_named_nor_replaced(
    store: Store, choice: OnDuplicate
) -> None:
    """In every state: the refusal names the key, and nothing of the job that holds it; nothing is written."""
    makers = {
        "waits": enqueue_one,
        "completed": make_completed,
        "failed": make_failed,
        "cancelled": make_cancelled,
    }
    for name, make in makers.items():
        held = await make(store, key=name, payload=b"1", user_id="ben")
        before = await get_job(store, held)
        with pytest.raises(KeyInUse, match=name) as refusal:
            await store.enqueue([_mine(key=name, on_duplicate=choice, priority=7, delay=60.0)])
        assert str(held) not in str(refusal.value)
        assert await get_job(store, held) == before
    assert await _numbers(store) == len(makers)
    assert await store.check() == []


@pytest.mark.parametrize("choice", CHOICES)
async def test_hidden_holder_that_runs_is_not_named(store: Store, choice: OnDuplicate) -> None:
    """A job in a worker's hands is hidden as well."""
    await enqueue_one(store, key="k", user_id="ben")
    claimed = await claim_one(store)
    before = await get_job(store, claimed.lease.job_id)
    with pytest.raises(KeyInUse):
        await store.enqueue([_mine(on_duplicate=choice)])
    assert await get_job(store, claimed.lease.job_id) == before


async def test_visible_holder_is_named_and_replaced(store: Store) -> None:
    """The filter takes nothing away from those it lets through."""
    held = await enqueue_one(store, key="k", payload=b"1", user_id="ann")
    [kept] = await store.enqueue([_mine()])
    assert (kept.job_id, kept.duplicate, kept.replaced) == (held, True, False)
    [replaced] = await store.enqueue([_mine(on_duplicate=OnDuplicate.REPLACE, payload=b"3")])
    assert (replaced.job_id, replaced.duplicate, replaced.replaced) == (held, True, True)
    assert (await get_job(store, held)).payload == b"3"
    await store.enqueue([_mine(key="free")])
    assert await _numbers(store) == 2


async def test_call_with_one_hidden_holder_writes_nothing(store: Store) -> None:
    """All or none, also of what comes before it, of replacements and of keys that were free."""
    await enqueue_one(store, key="k", user_id="ben")
    held = await enqueue_one(store, key="own", payload=b"1", user_id="ann")
    with pytest.raises(KeyInUse):
        await store.enqueue(
            [
                _mine(key=None),
                _mine(key="free"),
                _mine(key="own", on_duplicate=OnDuplicate.REPLACE),
                _mine(),
            ]
        )
    with pytest.raises(KeyInUse):  # keys are looked at before what jobs run after
        await store.enqueue([_mine(key=None, after=(new_id(),)), _mine()])
    assert await _numbers(store) == 2
    assert (await get_job(store, held)).payload == b"1"
    assert not (await store.enqueue([_mine(key="free")]))[0].duplicate
    assert await store.check() == []


async def test_refused_call_does_not_hurt_others_written_with_it(store: Store) -> None:
    """Stores write what comes at the same time together; only the call that meets a hidden job is refused."""
    await enqueue_one(store, key="k", user_id="ben")
    calls = [
        [_mine(key="a")],
        [_mine()],
        [job(key="k", topic="reports")],
        [job(key="k")],
        [_mine(key=None, after=(new_id(),))],
        [_mine(key="b")],
    ]
    answers = await asyncio.gather(*(store.enqueue(call) for call in calls), return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, KeyInUse, list, list, ParentNotFound, list]
    assert await _numbers(store) == 4
    assert await store.check() == []


async def test_hidden_job_cannot_be_run_after(store: Store) -> None:
    """The refusal is word for word that for a job that never was, whatever has become of the hidden one."""
    missing = new_id()
    with pytest.raises(ParentNotFound) as unknown:
        await store.enqueue([_mine(key=None, after=(missing,))])
    for make in (enqueue_one, make_completed, make_failed, make_cancelled):
        parent = await make(store, user_id="ben")
        before = await get_job(store, parent)
        with pytest.raises(ParentNotFound) as hidden:
            await store.enqueue([_mine(key=None, after=(parent,))])
        assert str(hidden.value) == str(unknown.value).replace(str(missing), str(parent))
        assert await get_job(store, parent) == before
        seen = await make(store, "seen", user_id="ann")
        [child] = await store.enqueue([_mine(key=None, topic="children", after=(seen,))])
        assert [one.job_id for one in (await get_job(store, child.job_id)).after] == [seen]
    assert await store.check() == []


CONDITIONS: tuple[tuple[Condition, bool], ...] = (
    (NEVER, False),
    (Not(NEVER), True),
    (Not(_of("ben")), False),
    (AnyOf((_of("ann"), _priority(3))), True),
    (Compare(Field.TOPIC, Comparison.CONTAINS, "ai"), True),
    (Compare(Field.KEY, Comparison.GREATER, "k'; --"), False),
    (Compare(Field.CORRELATION_ID, Comparison.EQUAL, ""), True),
    (Compare(Field.CORRELATION_ID, Comparison.EQUAL, 'ä"\\$1'), False),
    (Compare(Field.STARTED_AT, Comparison.EQUAL, None), True),
    (InState(State.PENDING), True),
    (InState(DerivedState.DELAYED), True),
    (InState(DerivedState.BLOCKED), False),
    (InState(State.FAILED), False),
)
"""Conditions, and whether a delayed job of ben's with the key ``k`` and the priority 3 meets them."""


async def test_every_condition_on_columns_is_understood(store: Store, clock: FrozenClock) -> None:
    """Texts, numbers, times and states, those that depend on the time included."""
    held = await enqueue_one(store, key="k", user_id="ben", priority=3, delay=60.0)
    for only, meets in CONDITIONS:
        child = _mine(key=None, row_filter=only, after=(held,))
        if meets:
            assert (await store.enqueue([_mine(row_filter=only)]))[0].job_id == held, only
            await store.enqueue([child])
            continue
        with pytest.raises(KeyInUse):
            await store.enqueue([_mine(row_filter=only)])
        with pytest.raises(ParentNotFound):
            await store.enqueue([child])
    clock.advance(61)
    with pytest.raises(KeyInUse):
        await store.enqueue([_mine(row_filter=InState(DerivedState.DELAYED))])


async def test_job_that_leaves_the_view_is_not_replaced_any_more(store: Store) -> None:
    """The condition is looked at with the write: of two that replace at once, the one whose filter the other
    one's change takes the job out of never writes after it.
    """
    other = store.sibling()
    await other.open()
    try:
        for turn in range(20):
            key = f"k{turn}"
            held = await enqueue_one(store, key=key, priority=0)
            first = job(
                key=key, on_duplicate=OnDuplicate.REPLACE, priority=0, row_filter=_priority(0), payload=b"1"
            )
            last = job(key=key, on_duplicate=OnDuplicate.REPLACE, priority=5, payload=b"2")
            filtered, plain = await asyncio.gather(
                store.enqueue([first]), other.enqueue([last]), return_exceptions=True
            )
            assert not isinstance(plain, BaseException)
            assert isinstance(filtered, KeyInUse) or filtered[0].replaced  # type: ignore[index]
            record = await get_job(store, held)
            assert (record.payload, record.priority) == (b"2", 5)
    finally:
        await other.close()
