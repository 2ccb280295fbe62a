"""Rules: what they say, what they refuse, and that their two uses agree."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.access.rule_strategies import requests, rule_texts
from tidewheel import ConfigurationError
from tidewheel.access.rule_expressions import compare_ordered, integer_bound
from tidewheel.access.rules import (
    RuleRequest,
    job_fields,
    paths_open_when_missing,
    read_rule,
    row_filter,
    rule_allows,
)
from tidewheel.core.clock import to_microseconds
from tidewheel.core.conditions import ALWAYS, NEVER, Compare, Comparison, Field, matches, uses_only_columns
from tidewheel.core.model import JobRecord, State
from tidewheel.testing.clock import FrozenClock

NOW = FrozenClock().now()
ADA = RuleRequest(
    {"id": "ada", "role": "staff", "level": 3, "verified": True, "teams": ["mail", "sms"], "org": {"id": 7}},
    "POST",
    {"topic": "mail", "payload": {"user_id": "ada", "size": 10}},
)


def says(text: str, job: dict[str, Any] | None = None, request: RuleRequest = ADA) -> bool:
    return rule_allows(read_rule("enqueue_rule", text, with_body=True), request, job or {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("false", False),
        ("!true", False),
        ("@request.auth.id = 'ada'", True),
        ("'ada' = @request.auth.id", True),
        ('@request.auth.id != "ada"', False),
        ("@request.auth.id ~ 'd'", True),
        ("@request.auth.id ~ 'D'", False),
        ("@request.auth.id !~ 'x'", True),
        ("@request.auth.level > 2 && @request.auth.level <= 3.5", True),
        ("@request.auth.level = '3'", False),
        ("@request.auth.verified = true", True),
        ("@request.auth.verified = 1", False),
        ("@request.auth.teams.1 = 'sms'", True),
        ("@request.auth.teams.9 = null", True),
        ("@request.auth.teams = null", False),
        ("@request.auth.teams = ''", False),
        ("@request.auth.org.id = 7", True),
        ("@request.auth.missing = null", True),
        ("@request.auth.missing = ''", True),
        ("@request.auth.missing = 0", False),
        ("@request.auth.missing = false", False),
        ("@request.auth.missing.deeper.still = ''", True),
        ("@request.auth.id.__class__ = null", True),
        ("@request.method = 'POST'", True),
        ("@request.body.payload.user_id = @request.auth.id", True),
        ("@request.body.payload.size < 11", True),
        ("topic = 'mail'", True),
        ("topic = @request.body.topic", True),
        ("tenant = ''", True),
        ("priority >= 5", True),
        ("priority >= 5.5", False),
        ("5 <= priority", True),
        ("created > '2025-12-31'", True),
        ("created < '2025-12-31T23:59:59+00:00'", False),
        ("state = 'pending'", True),
        ("state = 'delayed'", False),
        ("true || false && false", True),
        ("(true || false) && false", False),
        ("topic = 'it\\'s' || topic = \"ma\\\"il\"", False),
    ],
)
def test_a_rule_says_what_it_says(text: str, expected: bool) -> None:
    """Missing, null and '' are one; kinds do not mix; && binds before ||."""
    job = {"topic": "mail", "priority": 5, "created": NOW, "state": "pending"}
    assert says(text, job) is expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("5000", "@request.body.payload.value > 1000"),
        ("5000", "@request.body.payload.value = 5000"),
        (None, "@request.body.payload.value > 1000"),
        (True, "@request.body.payload.value > 0"),
        (True, "@request.body.payload.value < false"),
        (1, "@request.body.payload.value = true"),
        (1, "@request.body.payload.value ~ 1"),
        (5, "@request.body.payload.value = 'five'"),
        (float("nan"), "@request.body.payload.value > 1000"),
        ({"a": 1}, "@request.body.payload.value = 'a'"),
        ({"banned": 1}, "@request.body.payload.value ~ 'banned'"),
        (["banned"], "@request.body.payload.value = 'banned'"),
        (["banned"], "@request.body.payload.value > 'a'"),
        ([["banned"]], "@request.body.payload.value ~ 'banned'"),
        ([7, "x"], "@request.body.payload.value ~ 'banned'"),
        (["mail"], "'mail' ~ @request.body.payload.value"),
        (["mail"], "topic = @request.body.payload.value"),
        (7, "topic = @request.body.payload.value"),
        (7, "state = @request.body.payload.value"),
        ("5", "priority = @request.body.payload.value"),
        ("5", "priority ~ @request.body.payload.value"),
        (True, "priority >= @request.body.payload.value"),
        (float("nan"), "priority < @request.body.payload.value"),
        ("soon", "created < @request.body.payload.value"),
        ("\x00", "topic = @request.body.payload.value"),
    ],
)
def test_a_comparison_of_different_kinds_holds_in_neither_polarity(value: Any, text: str) -> None:
    """Not as it is, not negated, at any depth; && and || take it as unknown."""
    job = {"topic": "mail", "priority": 5, "created": NOW, "state": "pending"}
    request = RuleRequest(ADA.auth, "POST", {"payload": {"value": value}})
    for rule in (text, f"!({text})", f"!!({text})", f"true && !({text})", f"!({text} && true)"):
        assert not says(rule, job, request), rule
        assert row_filter(read_rule("enqueue_rule", rule, with_body=True), request) == NEVER
    for rule in (f"!({text} && false)", f"{text} || true", f"!(!({text}) && false)"):
        assert says(rule, job, request), rule


@pytest.mark.parametrize(
    ("roles", "has", "has_not"),
    [
        (["banned"], True, False),
        (["admin", "banned"], True, False),
        (["admin"], False, True),
        (["banned?"], False, True),
        ([], False, True),
        ([None], False, True),
        ([1], False, False),
        ("banned,admin", True, False),
        ("admin", False, True),
    ],
)
def test_a_list_contains_its_elements(roles: Any, has: bool, has_not: bool) -> None:
    """``~`` on a list looks for an equal element; one of another kind makes it unknown."""
    request = RuleRequest({"id": "ada", "roles": roles})
    assert says("@request.auth.roles ~ 'banned'", request=request) is has
    assert says("@request.auth.roles !~ 'banned'", request=request) is has_not
    assert says("!(@request.auth.roles ~ 'banned')", request=request) is has_not


@pytest.mark.parametrize("value", [0, 5, False, [], {}, ["a"], 0.5, "a"])
def test_whether_a_value_is_missing_is_known_for_every_kind(value: Any) -> None:
    """``= null`` and ``= ''`` ask whether there is a value, whatever it is."""
    request = RuleRequest({"x": value})
    for nothing in ("''", "null"):
        assert says(f"@request.auth.x != {nothing}", request=request)
        assert not says(f"@request.auth.x = {nothing}", request=request)
        assert says(f"@request.auth.y = {nothing}", request=request)
    assert says("priority != null && created != null", {"priority": 5, "created": NOW})


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("@request.auth.role != 'banned'", ["@request.auth.role"]),
        ("!(@request.auth.role = 'banned')", ["@request.auth.role"]),
        ("@request.auth.roles !~ 'banned'", ["@request.auth.roles"]),
        ("!(@request.auth.role > 'm')", ["@request.auth.role"]),
        ("@request.auth.role < 'm'", ["@request.auth.role"]),
        ("topic = 'a' || @request.auth.role != 'b'", ["@request.auth.role"]),
        ("@request.body.payload.user != @request.auth.id", ["@request.body.payload.user"]),
        ("topic != @request.body.topic", ["@request.body.topic"]),
        ("@request.auth.role != '' && @request.auth.role != 'banned'", []),
        ("@request.auth.role != null && (topic = 'a' || @request.auth.role != 'banned')", []),
        ("!(@request.body.payload.amount > 1000)", []),
        ("@request.auth.id != ''", []),
        ("@request.auth.id = null", []),
        ("@request.auth.role = 'staff'", []),
        ("user_id != @request.auth.id", []),
        ("@request.method != 'GET'", []),
        ("topic != 'a'", []),
        ("true", []),
        ("", []),
    ],
)
def test_rules_that_pass_by_a_missing_value_are_known(text: str, paths: list[str]) -> None:
    """And they do pass then; the others do not."""
    rule = read_rule("enqueue_rule", text, with_body=True)
    assert paths_open_when_missing(rule) == paths
    if paths:
        assert rule_allows(rule, RuleRequest({"id": "ada"}), {"topic": "mail"})


def test_an_empty_rule_is_for_superusers_only() -> None:
    """Nobody else passes, and sees nothing."""
    for text in ("", "  \n"):
        rule = read_rule("manage_rule", text)
        assert not rule_allows(rule, ADA, {})
        assert row_filter(rule, ADA) == NEVER


def test_what_is_known_of_the_request_is_gone_from_the_row_filter() -> None:
    """What is left is about columns alone; where nothing is left it is all jobs or none."""
    rule = read_rule("manage_rule", "@request.auth.role = 'admin' || topic = @request.auth.teams.0")
    assert row_filter(rule, ADA) == Compare(Field.TOPIC, Comparison.EQUAL, "mail")
    assert row_filter(rule, RuleRequest({"role": "admin"})) == ALWAYS
    rule = read_rule("manage_rule", "@request.auth.id != '' && user_id = @request.auth.id")
    assert row_filter(rule, RuleRequest()) == NEVER
    assert row_filter(rule, ADA) == Compare(Field.USER_ID, Comparison.EQUAL, "ada")


@pytest.mark.parametrize(
    "text",
    [
        "user_id = @request.auth.id",
        "@request.auth.id = user_id",
        "user_id != @request.auth.id",
        "topic ~ @request.auth.id",
        "topic !~ @request.auth.id",
        "@request.auth.id = @request.auth.owner",
        "@request.body.payload.user_id = @request.auth.id",
        "'ada,bob' ~ @request.auth.id",
        "'ada,bob' !~ @request.auth.id",
        "!(user_id = @request.auth.id)",
        "!(user_id != @request.auth.id)",
        "!!(topic ~ @request.auth.id)",
        "!(user_id != @request.auth.id || topic = 'other')",
    ],
)
@pytest.mark.parametrize("auth", [{}, {"id": None}, {"id": ""}])
def test_what_a_caller_lacks_is_like_nothing_of_a_job_or_a_body(text: str, auth: dict[str, Any]) -> None:
    """Jobs of no user are not everybody's, and an id that is missing is on no list."""
    rule = read_rule("enqueue_rule", text, with_body=True)
    nobody = RuleRequest(auth, "POST", {"payload": {}})
    assert not rule_allows(rule, nobody, {"topic": "mail", "user_id": None})
    assert row_filter(rule, nobody) == NEVER


@pytest.mark.parametrize(
    ("text", "at", "what"),
    [
        ("topic == 'a'", 8, "expected a value"),
        ("topic = 'a' & true", 13, "no part of a rule"),
        ("topic = 'a", 9, "no part of a rule"),
        ("topic", 0, "at its end"),
        ("(true", 0, "at its end"),
        ("true)", 5, "expected && or ||"),
        ("topc = 'a'", 1, "did you mean topic"),
        ("topic = mail", 9, "texts are in quotes"),
        ("true && payload.user = 1", 9, "nothing of a job"),
        ("@request.headers.x = 1", 1, "there are @request.auth"),
        ("@request.body.x = 1", 1, "there is no @request.body.x"),
        ("@request.auth = 1", 1, "say @request.method"),
        ("@collection.users.id = 1", 1, "there is no @collection"),
        ("topic = task", 1, "both sides are of the job"),
        ("'mail' ~ topic", 1, "the left one"),
        ("state = 'faild'", 1, "did you mean failed"),
        ("created > 'yesterday'", 1, "created is a time"),
        ("priority = '5'", 1, "priority is a number"),
        ("len(topic) = 1", 1, "nothing of a job"),
        ("topic.__class__ = 1", 1, "nothing of a job"),
        ("priority > 1e999999999", 12, "no part of a rule"),
        ("priority > 99999999999999999999", 12, "no part of a rule"),
        ("priority = 2**9", 13, "no part of a rule"),
        ("topic = /a+/", 9, "no part of a rule"),
        ("1", 0, "at its end"),
    ],
)
def test_a_bad_rule_is_refused_with_the_character_it_is_wrong_at(text: str, at: int, what: str) -> None:
    """No calls, no attributes, no patterns, no exponents, nothing but what is listed."""
    with pytest.raises(ConfigurationError, match="manage_rule") as caught:
        read_rule("manage_rule", text)
    assert what in str(caught.value)
    if at:
        assert f"at character {at} " in str(caught.value)


def test_rules_have_limits() -> None:
    """Length, depth, terms and the parts of a path; a rule at its limits is read."""
    read_rule("manage_rule", "(" * 20 + "true" + ")" * 20)
    read_rule("manage_rule", " && ".join(["true"] * 100))
    for text, what in (
        ("(" * 21 + "true" + ")" * 21, "deeper than 20"),
        ("!" * 21 + "true", "deeper than 20"),
        ("(" * 1999 + "1", "deeper than 20"),
        (" && ".join(["true"] * 101), "at most 100 terms"),
        ("true " + " " * 2000, "the limit is 2,000"),
        ("@request.auth" + ".a" * 10 + " = 1", "at most 10 parts"),
    ):
        with pytest.raises(ConfigurationError, match=what):
            read_rule("manage_rule", text)


jobs = st.builds(
    JobRecord,
    id=st.just(UUID(int=1)),
    number=st.just(1),
    tenant=st.sampled_from(["root", "other"]),
    topic=st.sampled_from(["a", "b"]),
    task=st.sampled_from(["", "x"]),
    state=st.sampled_from(State),
    priority=st.sampled_from([-1, 0, 5, 2**62]),
    attempt=st.sampled_from([0, 1, 2]),
    max_attempts=st.just(3),
    created_at=st.sampled_from([NOW, NOW + 10_000_000, 0]),
    run_at=st.sampled_from([NOW - 1, NOW + 1]),
    key=st.sampled_from([None, "k1"]),
    correlation_id=st.sampled_from([None, "c", "\U0001f0a1"]),
    user_id=st.sampled_from([None, "u", "a"]),
    service_id=st.sampled_from([None, "s"]),
)


@given(text=rule_texts, request=requests, job=jobs)
@settings(max_examples=max(500, settings().max_examples))
def test_deciding_at_once_and_filtering_rows_agree(text: str, request: RuleRequest, job: JobRecord) -> None:
    """Whatever the rule, the caller and the job: numbers beyond 64 bits, texts no database has, lists."""
    rule = read_rule("manage_rule", text)
    condition = row_filter(rule, request)
    assert uses_only_columns(condition)
    decided = rule_allows(rule, request, job_fields(job, NOW))
    assert matches(condition, job, NOW) == decided, condition
    opposite = rule_allows(read_rule("manage_rule", f"!({text})"), request, job_fields(job, NOW))
    assert not (decided and opposite), "a rule and its opposite never both hold"


@given(text=st.text(st.sampled_from(list("@request.auth.id topic='\"&|!()<>~\\ 1-true")), max_size=60))
@settings(max_examples=300)
def test_nonsense_is_refused_or_read_and_nothing_else(text: str) -> None:
    """No other error comes out of a rule, whatever is in it."""
    try:
        rule = read_rule("manage_rule", text)
    except ConfigurationError:
        return
    assert rule_allows(rule, ADA, {"topic": "a"}) in (True, False)


def test_the_clock_of_these_tests_is_where_they_think_it_is() -> None:
    """Comparisons of created would otherwise all be the same."""
    from datetime import UTC, datetime

    assert to_microseconds(datetime(2026, 1, 1, tzinfo=UTC)) == NOW


@pytest.mark.parametrize("comparison", [one for one in Comparison if one is not Comparison.CONTAINS])
def test_a_bound_for_whole_numbers_means_what_the_number_says(comparison: Comparison) -> None:
    """Fractions, infinities and what 64 bits cannot hold: no database is asked for those."""
    values = [
        0,
        1,
        -1,
        0.5,
        -0.5,
        1.5,
        2.0,
        -2.0,
        2**53 + 1,
        2**63 - 1,
        2**63,
        -(2**63),
        -(2**63) - 1,
        10**400,
    ]
    values += [1e18, 1e19, -1e19, 1e308, float("inf"), -float("inf"), float("nan"), -(10**400)]
    for value in values:
        bound = integer_bound(comparison, value)
        assert isinstance(bound, bool) or -(2**63) <= bound < 2**63
        for number in (-(2**62), -2, -1, 0, 1, 2, 2**53, 2**53 + 1, 2**62):
            expected = compare_ordered(number, comparison, value)
            found = bound if isinstance(bound, bool) else compare_ordered(number, comparison, bound)
            assert found == expected, (number, comparison, value, bound)
