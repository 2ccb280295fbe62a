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
    ContainsText,
    Field,
    InState,
    Not,
)
from tidewheel.core.model import DerivedState, JobFilter, State
from tidewheel.stores.query_plan import MAX_ALTERNATIVES, split_filter
from tidewheel.testing.agreement.strategies import conditions

FAILED, CANCELLED, RUNNING = (InState(state) for state in (State.FAILED, State.CANCELLED, State.RUNNING))


def _topic(*topics: str) -> Condition:
    return AnyOf(tuple(Compare(Field.TOPIC, Comparison.EQUAL, topic) for topic in topics))


def _worker(name: str) -> Condition:
    return Compare(Field.WORKER, Comparison.EQUAL, name)


def _said(where: JobFilter) -> list[tuple[str | None, State | DerivedState | None]]:
    return [(one.topic, one.state) for one in split_filter(where)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (AnyOf((FAILED, CANCELLED)), [(None, State.FAILED), (None, State.CANCELLED)]),
        (AllOf((AnyOf((FAILED, RUNNING)), ContainsText("x"))), [(None, State.RUNNING), (None, State.FAILED)]),
        (Not(AnyOf((FAILED, CANCELLED))), [(None, state) for state in list(State)[:3]]),
        (AnyOf((InState(DerivedState.RETRYING), InState(DerivedState.DELAYED))), [(None, State.PENDING)]),
        (AnyOf((InState(DerivedState.CLAIMED), FAILED)), [(None, State.RUNNING), (None, State.FAILED)]),
        (Not(InState(DerivedState.CLAIMED)), [(None, None)]),
        (AnyOf((FAILED, ContainsText("x"))), [(None, None)]),
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
        (_topic(*map(str, range(MAX_ALTERNATIVES + 1))), [(None, None)]),
        (AllOf((_topic(*map(str, range(MAX_ALTERNATIVES))), AnyOf((FAILED, RUNNING)))),
         [(topic, None) for topic in sorted(map(str, range(MAX_ALTERNATIVES)))]),
        (AllOf((FAILED, Not(FAILED))), []),
        (AllOf((FAILED, InState(DerivedState.DELAYED))), []),
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
    where = JobFilter(topic="c", state=DerivedState.DELAYED, condition=AllOf((_topic("a", "b"), FAILED)))
    assert split_filter(where) == [where]
    assert split_filter(JobFilter(topic="c")) == [JobFilter(topic="c")]


def test_jobs_without_a_key_have_no_index_to_walk() -> None:
    """A filter cannot ask for what is missing."""
    keys = AnyOf(tuple(Compare(Field.KEY, Comparison.EQUAL, key) for key in ("k", "")))
    assert split_filter(JobFilter(condition=keys)) == [JobFilter(condition=keys)]


@given(condition=conditions)
@settings(max_examples=100)
def test_there_are_never_too_many_and_no_two_are_the_same(condition: Condition) -> None:
    """Whether these are the right ones is told by the stores, which are compared with each other."""
    found = split_filter(JobFilter(condition=condition))
    assert len(found) <= MAX_ALTERNATIVES
    assert len({(one.topic, one.key, one.correlation_id, one.state) for one in found}) == len(found)
