"""Rules, requests and values at random: few names, so that they meet."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidewheel.access.rule_expressions import NUMBER_FIELDS, RULE_FIELDS, Operator
from tidewheel.access.rules import RuleRequest
from tidewheel.core.model import DerivedState, State

texts = st.sampled_from(["", "a", "b", "x", "root", "other", "u", "s", "c", "failed", "é", "k1", "\ue000"])
numbers = st.sampled_from([-1, 0, 1, 5, 0.5, -1.5, 2.0])
moments = st.sampled_from(["2026-01-01T00:00:10Z", "2026-01-01", "2027-01-01T00:00+02:00"])
literals = st.one_of(
    texts.map(lambda text: f"'{text}'"),
    texts.map(lambda text: f'"{text}"'),
    numbers.map(str),
    st.sampled_from(["true", "false", "null"]),
)
paths = st.sampled_from(
    [
        "@request.auth.id",
        "@request.auth.role",
        "@request.auth.level",
        "@request.auth.teams",
        "@request.auth.teams.0",
        "@request.auth.nothing.at.all",
        "@request.auth.since",
        "@request.method",
    ]
)
operators = st.sampled_from([str(operator) for operator in Operator])
equals = st.sampled_from(["=", "!="])
orders = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    """One that the parser takes: what it refuses is tried elsewhere."""
    field = draw(st.sampled_from([*RULE_FIELDS, *RULE_FIELDS, ""]))
    if not field:
        return f"{draw(st.one_of(literals, paths))} {draw(operators)} {draw(st.one_of(literals, paths))}"
    operator = draw(operators)
    value = draw(paths)
    if draw(st.booleans()):
        if field == "state":
            operator = draw(equals)
            value = "'" + draw(st.sampled_from([*State, *DerivedState])) + "'"
        elif field == "created":
            value = "'" + draw(moments) + "'"
        elif field in NUMBER_FIELDS:
            value = str(draw(numbers))
        else:
            value = draw(literals)
    if operator not in ("~", "!~") and draw(st.booleans()):
        return f"{value} {operator} {field}"
    return f"{field} {operator} {value}"


rule_texts: st.SearchStrategy[str] = st.recursive(
    st.one_of(comparisons(), comparisons(), comparisons(), st.sampled_from(["true", "false"])),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: f"{pair[0]} && {pair[1]}"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}) || {pair[1]}"),
        inner.map(lambda text: f"!({text})"),
    ),
    max_leaves=8,
)
plain: st.SearchStrategy[Any] = st.one_of(
    texts,
    numbers,
    st.none(),
    st.booleans(),
    st.sampled_from([10**400, -(10**400), 2**63, 1e308, float("inf"), float("nan"), 1e300]),
    st.sampled_from(["\x00", "\ud800", "a\x00", [], {}, ["a"], "2026-01-01T00:00:10Z", 1767225610]),
)
requests = st.builds(
    RuleRequest,
    auth=st.fixed_dictionaries(
        {},
        optional={
            "id": plain,
            "role": plain,
            "level": plain,
            "teams": st.lists(plain, max_size=2),
            "since": plain,
        },
    ),
    method=st.sampled_from(["GET", "POST", "a"]),
)
