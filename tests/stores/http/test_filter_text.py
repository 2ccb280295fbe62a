"""A condition as text means the condition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.admin.filters import parse_filter
from tidewheel.core.conditions import (
    ALWAYS,
    NEVER,
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
    Path,
    matches,
)
from tidewheel.core.ids import new_id
from tidewheel.core.model import AttemptRecord, DerivedState, JobError, JobRecord, State
from tidewheel.errors import NotOverHttp
from tidewheel.stores.http.filter_text import condition_to_text

NOW = 1_767_225_600_000_000

texts = st.sampled_from(["", "a", "mail", "a b", 'say "hi"', "back\\slash", "42", "none", "*", "é(,)"])
numbers = st.sampled_from([0, 1, -3, 42, NOW, NOW + 1, None])
comparisons = st.sampled_from(Comparison)
_steps: list[str | int] = ["user", "an id", 0, 1, 'q"']
paths: st.SearchStrategy[Path] = st.lists(st.sampled_from(_steps), max_size=2).map(tuple)
values = st.sampled_from(["", "42", "x", 'q"', 42, -1, 0.5, 1e300, True, False, None])


def comparable(field: Field) -> st.SearchStrategy[Condition]:
    good = texts.filter(bool) if field in {Field.TOPIC, Field.TASK, Field.TENANT} else texts
    if field in {Field.TOPIC, Field.TENANT}:
        good = st.sampled_from(["a", "mail", "root"])
    if field in {Field.CREATED_AT, Field.RUN_AT, Field.STARTED_AT, Field.FINISHED_AT}:
        times = st.sampled_from([0, NOW, NOW + 1, NOW - 86_400_000_000, None])
        return st.builds(Compare, st.just(field), comparisons, times)
    return st.builds(Compare, st.just(field), comparisons, good if field.is_text else numbers)


leaves: st.SearchStrategy[Condition] = st.one_of(
    st.sampled_from([field for field in Field if field is not Field.ERROR_SUMMARY]).flatmap(comparable),
    st.builds(Compare, st.just(Field.ERROR_SUMMARY), st.just(Comparison.EQUAL), st.sampled_from([None, ""])),
    st.sampled_from([InState(state) for state in (*State, *DerivedState)]),
    st.builds(ComparePayload, paths, comparisons, values),
    st.builds(ContainsText, texts.filter(bool), st.booleans()),
    st.sampled_from([ALWAYS, NEVER]),
    paths.map(
        lambda path: AnyOf(
            (ComparePayload(path, Comparison.EQUAL, 42), ComparePayload(path, Comparison.EQUAL, "42"))
        )
    ),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, max_size=3).map(lambda parts: AllOf(tuple(parts))),
        st.lists(inner, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
    ),
    max_leaves=5,
)


def a_job(payload: bytes, **fields: object) -> JobRecord:
    given = {
        "id": new_id(), "number": 1, "tenant": "root", "topic": "mail", "task": "a", "state": State.PENDING,
        "priority": 0, "attempt": 1, "max_attempts": None, "created_at": NOW, "run_at": NOW + 1,
        "payload": payload, **fields,
    }  # fmt: skip
    return JobRecord(**given)  # type: ignore[arg-type]


FAILED = AttemptRecord(1, "w", NOW, NOW, JobError("boom", 'say "hi" 42'))
JOBS = [
    a_job(b'{"user":42,"an id":{"user":"42"}}', key="a b"),
    a_job(b'{"user":"42"}', state=State.FAILED, error_summary='boom: say "hi" 42', attempts=(FAILED,)),
    a_job(b'[0.5,{"user":true}]', topic="a", priority=42, blocked=1, correlation_id='say "hi"'),
    a_job(b'"x"', state=State.RUNNING, started_at=NOW, worker="a", max_attempts=42, run_at=NOW),
    a_job(b"null", task="", state=State.CANCELLED, finished_at=NOW + 1, user_id="42", attempt=0),
]


@given(conditions)
def test_a_written_condition_is_read_as_the_same(condition: Condition) -> None:
    """Whatever a filter asks of a job, its text asks the same: over HTTP nothing is found that would not be
    found beside the database, and nothing is missing.
    """
    read = parse_filter(condition_to_text(condition), now=NOW).condition
    assert [matches(read, job, NOW) for job in JOBS] == [matches(condition, job, NOW) for job in JOBS]


@pytest.mark.parametrize(
    "typed",
    ["payload.user.id:42", 'error:"timed out" state:failed', "age>1h OR -key:a", "created:today", "error:*"],
)
def test_what_was_typed_arrives(typed: str) -> None:
    """A filter somebody has typed is written again so that it means the same."""
    condition = parse_filter(typed, now=NOW).condition
    assert parse_filter(condition_to_text(condition), now=NOW + 1).condition == condition


@pytest.mark.parametrize(
    "condition",
    [
        Compare(Field.ERROR_SUMMARY, Comparison.CONTAINS, "x"),
        Compare(Field.CREATED_AT, Comparison.LESS, -1),
        ComparePayload((), Comparison.LESS, float("inf")),
    ],
)
def test_what_cannot_be_said_is_refused(condition: Condition) -> None:
    """Rather no answer than one to another question."""
    with pytest.raises(NotOverHttp, match="no words for"):
        condition_to_text(condition)
