"""Random conditions, for the machine and for whoever compares what a condition means in two places."""

from __future__ import annotations

from hypothesis import strategies as st

from tidewheel.clock import seconds_to_microseconds
from tidewheel.conditions import (
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
from tidewheel.model import Shown, State

TIMES = frozenset({Field.CREATED_AT, Field.RUN_AT, Field.STARTED_AT, Field.FINISHED_AT})
TEXTS = sorted(field for field in Field if field.is_text)
NUMBERS = sorted(field for field in Field if not field.is_text and field not in TIMES)

comparisons = st.sampled_from(Comparison)
texts_compared = st.sampled_from(
    [
        None,
        "",
        "a",
        "b",
        "x",
        "y",
        "root",
        "other",
        "k",
        "c",
        "u",
        "s",
        "anna",
        "boom: it broke",
        "é",
        "Z",
        "🂡",
    ]
)
numbers_compared = st.sampled_from([None, -1, 0, 1, 2, 3, 5, 2**63 - 1, 2**63, -(2**63), -(2**80)])
seconds_compared = st.sampled_from([None, -3600, 0, 1, 30, 60, 90, 3600])

columns: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Compare, st.sampled_from(TEXTS), comparisons, texts_compared),
    st.builds(Compare, st.sampled_from(NUMBERS), comparisons, numbers_compared),
    st.builds(Compare, st.sampled_from(sorted(TIMES)), comparisons, seconds_compared),
    st.builds(InState, st.sampled_from([*State, *Shown])),
)
"""What databases tell by themselves. Times are seconds since some start, see ``since``."""

texts_searched = st.sampled_from(["hit", "é", "boom", "it broke", "nowhere", '"'])
topics, tasks = st.sampled_from(["a", "b"]), st.sampled_from(["", "x"])

bodies: st.SearchStrategy[Condition] = st.one_of(
    st.builds(
        ComparePayload,
        st.sampled_from([(), ("name",), ("n",), ("list", 0), ("list", 1, "name"), ("nowhere",)]),
        comparisons,
        st.sampled_from([None, "", "hit", "é", "1", 1, 1.0, 1.5, 0, True, False, 10**30]),
    ),
    st.builds(HoldsText, texts_searched, st.booleans()),
    st.builds(LastErrorHolds, texts_searched),
    st.builds(HasFingerprint, st.builds(of_job, topics, tasks, st.sampled_from([None, "boom: it broke"]))),
)


def combined(leaf: st.SearchStrategy[Condition], most: int = 8) -> st.SearchStrategy[Condition]:
    """Leaves under NOT, AND and OR, with up to so many of them."""
    return st.recursive(
        leaf,
        lambda part: st.one_of(
            st.builds(Not, part),
            st.builds(AllOf, st.lists(part, max_size=3).map(tuple)),
            st.builds(AnyOf, st.lists(part, max_size=3).map(tuple)),
        ),
        max_leaves=most,
    )


column_conditions = combined(columns)
conditions = combined(st.one_of(columns, columns, bodies))


def since(condition: Condition, start: int) -> Condition:
    """The same, its seconds as times after ``start``."""
    match condition:
        case Compare(field, comparison, int(seconds)) if field in TIMES:
            return Compare(field, comparison, start + seconds_to_microseconds(seconds))
        case Not(part):
            return Not(since(part, start))
        case AllOf(parts):
            return AllOf(tuple(since(part, start) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(since(part, start) for part in parts))
        case _:
            return condition
