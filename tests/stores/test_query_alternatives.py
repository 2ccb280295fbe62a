"""What conditions say of columns that have indexes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tidewheel.core.conditions import (
    AllOf,
    AnyOf,
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    Field,
    HoldsText,
    InState,
    Not,
)
from tidewheel.core.model import JobFilter, Shown, State
from tidewheel.stores.query_plan import MOST, alternatives
from tidewheel.testing.agreement.strategies import conditions

FAILED, CANCELLED, RUNNING = (InState(state) for state in (State.FAILED, State.CANCELLED, State.RUNNING))


def _topic(*topics: str) -> Condition:
    return AnyOf(tuple(Compare(Field.TOPIC, Comparison.EQUAL, topic) for topic in topics))


def _worker(name: str) -> Condition:
    return Compare(Field.WORKER, Comparison.EQUAL, name)


def _said(where: JobFilter) -> list[tuple[str | None, State | Shown | None]]:
    return [(one.topic, one.state) for one in alternatives(where)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (AnyOf((FAILED, CANCELLED)), [(None, State.FAILED), (None, State.CANCELLED)]),
        (AllOf((AnyOf((FAILED, RUNNING)), HoldsText("x"))), [(None, State.RUNNING), (None, State.FAILED)]),
        (Not(AnyOf((FAILED, CANCELLED))), [(None, state) for state in list(State)[:3]]),
        (AnyOf((InState(Shown.RETRYING), InState(Shown.DELAYED))), [(None, State.PENDING)]),
        (AnyOf((InState(Shown.CLAIMED), FAILED)), [(None, State.RUNNING), (None, State.FAILED)]),
        (Not(InState(Shown.CLAIMED)), [(None, None)]),
        (AnyOf((FAILED, HoldsText("x"))), [(None, None)]),
        (_worker("anna"), [(None, state) for state in list(State)[1:]]),
        (Not(_worker("anna")), [(None, None)]),
        (_worker(""), [(None, None)]),
        (AnyOf((_worker("anna"), InState(State.PENDING))), [(None, None)]),
        (_topic("b", "a"), [("a", None), ("b", None)]),
        (AllOf((_topic("a", "b"), Not(_topic("b")))), [("a", None)]),
        (AllOf((_topic("a", "b"), FAILED)), [("a", State.FAILED), ("b", State.FAILED)]),
        (AnyOf((_topic("a"), Compare(Field.TOPIC, Comparison.CONTAINS, "b"))), [(None, None)]),
        (AnyOf((_topic("a"), FAILED)), [(None, None)]),
        (Not(_topic("a")), [(None, None)]),
        (_topic(*map(str, range(MOST + 1))), [(None, None)]),
        (AllOf((_topic(*map(str, range(MOST))), AnyOf((FAILED, RUNNING)))),
         [(topic, None) for topic in sorted(map(str, range(MOST)))]),
        (AllOf((FAILED, Not(FAILED))), []),
        (AllOf((FAILED, InState(Shown.DELAYED))), []),
        (ComparePayload((), Comparison.EQUAL, 1), [(None, None)]),
    ],
)  # fmt: skip
def test_what_can_be_one_of_a_few_becomes_a_filter_each(
    condition: Condition, expected: list[tuple[str | None, State | None]]
) -> None:
    """And what can be anything, or too many things, stays as it is."""
    assert _said(JobFilter(condition=condition)) == expected


def test_fields_that_are_told_are_not_asked_again() -> None:
    """They are what is walked through already."""
    where = JobFilter(topic="c", state=Shown.DELAYED, condition=AllOf((_topic("a", "b"), FAILED)))
    assert alternatives(where) == [where]
    assert alternatives(JobFilter(topic="c")) == [JobFilter(topic="c")]


def test_jobs_without_a_key_have_no_index_to_walk() -> None:
    """A filter cannot ask for what is missing."""
    keys = AnyOf(tuple(Compare(Field.KEY, Comparison.EQUAL, key) for key in ("k", "")))
    assert alternatives(JobFilter(condition=keys)) == [JobFilter(condition=keys)]


@given(condition=conditions)
@settings(max_examples=100)
def test_there_are_never_too_many_and_no_two_are_the_same(condition: Condition) -> None:
    """Whether these are the right ones is told by the stores, which are compared with each other."""
    found = alternatives(JobFilter(condition=condition))
    assert len(found) <= MOST
    assert len({(one.topic, one.key, one.correlation_id, one.state) for one in found}) == len(found)
