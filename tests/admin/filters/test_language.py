"""The filter language: what can be written, what it means, and where it says that it cannot be read."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidewheel.admin.filters import MAX_DEPTH, MAX_LENGTH, MAX_TERMS, describe_fields, parse_filter
from tidewheel.admin.filters.fields import STATES
from tidewheel.core.clock import MICROSECONDS, to_microseconds
from tidewheel.core.conditions import (
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
from tidewheel.core.model import DerivedState, State
from tidewheel.core.security_context import SecurityContext, acting_as
from tidewheel.errors import InvalidFilter, InvalidInput

NOW = to_microseconds(datetime(2030, 1, 31, 9, 30, tzinfo=UTC))
MIDNIGHT = to_microseconds(datetime(2030, 1, 31, tzinfo=UTC))
HOUR, DAY = 3600 * MICROSECONDS, 86_400 * MICROSECONDS
EQUAL, LESS, AT_LEAST = Comparison.EQUAL, Comparison.LESS, Comparison.AT_LEAST
AT_MOST = Comparison.AT_MOST


def meaning(query: str) -> Condition:
    return parse_filter(query, now=NOW).condition


def payload(value: Any, *path: str | int, comparison: Comparison = EQUAL) -> Condition:
    return ComparePayload(path, comparison, value)


@pytest.mark.parametrize(
    ("query", "condition"),
    [
        ("", AllOf(())),
        ("  \n ", AllOf(())),
        ("state:failed", InState(State.FAILED)),
        ("STATE:Failed", InState(State.FAILED)),
        ("state:processing", InState(State.RUNNING)),
        ("status:buried", InState(State.FAILED)),
        ("state:delayed", InState(DerivedState.DELAYED)),
        ("topic:mail", Compare(Field.TOPIC, EQUAL, "mail")),
        ("topic = mail", Compare(Field.TOPIC, EQUAL, "mail")),
        ("topic:a,b", AnyOf((Compare(Field.TOPIC, EQUAL, "a"), Compare(Field.TOPIC, EQUAL, "b")))),
        ("topic!=a,b", Not(AnyOf((Compare(Field.TOPIC, EQUAL, "a"), Compare(Field.TOPIC, EQUAL, "b"))))),
        ('task:""', Compare(Field.TASK, EQUAL, "")),
        ("key:*", Not(Compare(Field.KEY, EQUAL, None))),
        ('key:"*"', Compare(Field.KEY, EQUAL, "*")),
        ("user~ada", Compare(Field.USER_ID, Comparison.CONTAINS, "ada")),
        ("user<m", Compare(Field.USER_ID, LESS, "m")),
        ("attempts>2", Compare(Field.ATTEMPT, Comparison.GREATER, 2)),
        ("priority:-5", Compare(Field.PRIORITY, EQUAL, -5)),
        ("max_attempts:none", Compare(Field.MAX_ATTEMPTS, EQUAL, None)),
        ("age>1h", Compare(Field.CREATED_AT, LESS, NOW - HOUR)),
        ("age<=90m", Compare(Field.CREATED_AT, AT_LEAST, NOW - HOUR * 3 // 2)),
        ("created>=2h", Compare(Field.CREATED_AT, AT_MOST, NOW - 2 * HOUR)),
        ("finished>1h", Compare(Field.FINISHED_AT, LESS, NOW - HOUR)),
        ("due>10m", Compare(Field.RUN_AT, LESS, NOW - HOUR // 6)),
        ("due>+1h", Compare(Field.RUN_AT, Comparison.GREATER, NOW + HOUR)),
        ("due<+1h", Compare(Field.RUN_AT, LESS, NOW + HOUR)),
        ("created>=2030-01-31T01:00+01:00", Compare(Field.CREATED_AT, AT_LEAST, MIDNIGHT)),
        ("finished>yesterday", Compare(Field.FINISHED_AT, Comparison.GREATER, MIDNIGHT - 1)),
        ("finished<2030-01-31", Compare(Field.FINISHED_AT, LESS, MIDNIGHT)),
        ("started:none", Compare(Field.STARTED_AT, EQUAL, None)),
        (
            "created:today",
            AllOf(
                (
                    Compare(Field.CREATED_AT, AT_LEAST, MIDNIGHT),
                    Compare(Field.CREATED_AT, LESS, MIDNIGHT + DAY),
                )
            ),
        ),
        ('error:"timed out"', LastErrorContains("timed out")),
        ('any_error:"timed out"', ContainsText("timed out", in_payload=False)),
        ("any_error:*", Not(Compare(Field.ERROR_SUMMARY, EQUAL, None))),
        ("fingerprint:0123456789AB", HasFingerprint("0123456789ab")),
        ("fingerprint:*", Not(Compare(Field.ERROR_SUMMARY, EQUAL, None))),
        ("error:*", Not(Compare(Field.ERROR_SUMMARY, EQUAL, None))),
        ("text:needle", ContainsText("needle")),
        ("needle", ContainsText("needle")),
        ('"a \\"b\\" \\\\"', ContainsText('a "b" \\')),
        ('"OR"', ContainsText("OR")),
        ("ORDER", ContainsText("ORDER")),
        ("payload.user_id:42", AnyOf((payload(42, "user_id"), payload("42", "user_id")))),
        ('payload.user_id:"42"', payload("42", "user_id")),
        ("payload.a.b[0]:true", payload(True, "a", "b", 0)),
        ('payload["a b"].c:null', payload(None, "a b", "c")),
        ("payload.x:*", Not(payload(None, "x"))),
        ("payload.x>=1.5", payload(1.5, "x", comparison=AT_LEAST)),
        ("payload.x~4", payload("4", "x", comparison=Comparison.CONTAINS)),
        ("payload.x:007", payload("007", "x")),
        ("a b", AllOf((ContainsText("a"), ContainsText("b")))),
        ("a AND b", AllOf((ContainsText("a"), ContainsText("b")))),
        ("a OR b c", AnyOf((ContainsText("a"), AllOf((ContainsText("b"), ContainsText("c")))))),
        ("(a OR b) c", AllOf((AnyOf((ContainsText("a"), ContainsText("b"))), ContainsText("c")))),
        ("-state:failed", Not(InState(State.FAILED))),
        ("NOT (a b)", Not(AllOf((ContainsText("a"), ContainsText("b"))))),
        ("NOT NOT a", ContainsText("a")),
    ],
)  # fmt: skip
def test_what_is_written_means(query: str, condition: Condition) -> None:
    """Each form of the reference page, by itself."""
    assert meaning(query) == condition


@pytest.mark.parametrize("field", ["created", "created_at", "started", "finished", "due", "run_at"])
@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_a_duration_is_an_age_in_every_time_field(field: str, operator: str) -> None:
    """``finished>1h`` is older than an hour, as ``age>1h`` is; dates are compared as dates."""
    of_age, of_field = meaning(f"age{operator}1h"), meaning(f"{field}{operator}1h")
    assert isinstance(of_age, Compare)
    assert isinstance(of_field, Compare)
    assert (of_field.comparison, of_field.value) == (of_age.comparison, of_age.value)
    older, newer = meaning(f"{field}<2030-01-30T09:30Z"), meaning(f"{field}>1d")
    assert older == newer


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("finished>1h", "finished before 2030-01-31 08:30:00 UTC (more than 1h ago)"),
        ("age>=90m", "created at or before 2030-01-31 08:00:00 UTC (at least 1h 30m ago)"),
        ("created<2d", "created after 2030-01-29 09:30:00 UTC (less than 2d ago)"),
        ("due<10m", "due after 2030-01-31 09:20:00 UTC (less than 10m ago, or not yet)"),
        ("due<=+1h", "due at or before 2030-01-31 10:30:00 UTC (at most 1h from now)"),
        ("created:today", "created from 2030-01-31 00:00:00 UTC until 2030-02-01 00:00:00 UTC"),
        ("created!=today", "not created from 2030-01-31 00:00:00 UTC until 2030-02-01 00:00:00 UTC"),
        ("finished>2030-01-30", "finished at or after 2030-01-31 00:00:00 UTC"),
        ("finished<=2030-01-30", "finished before 2030-01-31 00:00:00 UTC"),
        ("started>2030-01-31T09:00Z", "started after 2030-01-31 09:00:00 UTC"),
    ],
)
def test_comparisons_of_times_are_spelled_out(query: str, words: str) -> None:
    """A preview names the moment that is meant and its side, under OR and NOT as well."""
    assert parse_filter(query, now=NOW).time_explanations == ((query, words),)
    assert parse_filter(f"topic:a -({query} OR {query})", now=NOW).time_explanations == ((query, words),) * 2
    assert parse_filter("topic:a finished:none", now=NOW).time_explanations == ()


@pytest.mark.parametrize(
    ("query", "position", "length", "reason"),
    [
        ("state:faild", 6, 5, "did you mean failed?"),
        ("a stat:failed", 2, 4, "did you mean state?"),
        ("http://example.com", 0, 4, "a text to look for goes in quotes"),
        ("topic:mail state:", 17, 1, "the end stands where a value is expected after :"),
        ("topic:mail,", 11, 1, "after ,"),
        ('topic:"no topic"', 6, 10, "a topic is 1 to 200 characters"),
        ("(a", 0, 1, "never closed"),
        ("a)", 1, 1, "closes nothing"),
        ("()", 1, 1, "')' stands where a term is expected"),
        ("a OR", 4, 1, "the end stands where a term is expected"),
        ("OR a", 0, 2, "'OR' stands where a term is expected"),
        ("a AND AND b", 6, 3, "'AND' stands"),
        ('x "open', 2, 1, "this quote is never closed"),
        ("a - b", 2, 1, "a minus negates the term right behind it"),
        ("=5", 0, 1, "has no field before it"),
        ("user.name:x", 0, 9, "only payload has"),
        ("state>failed", 0, 6, "state cannot be compared with >; use : = !="),
        ("age:1h", 0, 4, "for example age>1h"),
        ("age>5", 4, 1, "no duration"),
        ("age>9999999999w", 4, 11, "too long"),
        ("priority<1,2", 11, 1, "one value only"),
        ("priority:high", 9, 4, "no whole number"),
        ("created>soon", 8, 4, "no time"),
        ("created>-2h", 8, 3, "a duration is an age already: write 2h"),
        ("finished:1h", 9, 2, "compare with > or <"),
        ("due!=+1h", 5, 3, "compare with > or <"),
        ("fingerprint:nope", 12, 4, "it must be 12 hexadecimal digits"),
        ("created>2030-01-31T09:00", 8, 16, "no time zone"),
        ("tenant:a/b", 7, 3, "tenant is 'a/b'"),
        ("x" * (MAX_LENGTH + 5), MAX_LENGTH, 5, "1,005 characters; the limit is 1,000"),
        ("(" * (MAX_DEPTH + 2) + "a" + ")" * (MAX_DEPTH + 2), MAX_DEPTH + 1, 1, "deeper than 20"),
        ("a " * (MAX_TERMS + 1), 2 * MAX_TERMS, 1, "more than 50 terms"),
        ("user:\x00", 5, 1, "NUL"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_pointed_at(query: str, position: int, length: int, reason: str) -> None:
    """Where it is, what was found, and what could stand there."""
    with pytest.raises(InvalidFilter) as raised:
        meaning(query)
    error = raised.value
    assert reason in error.reason
    assert (error.position, error.length) == (position, length)
    assert f"at character {position + 1}" in error.reason


def test_carets_stand_under_what_is_meant() -> None:
    """Whatever stands before it, also in a long text and beside characters that move the cursor."""
    with pytest.raises(InvalidFilter) as raised:
        meaning("topic:mail\n\tstate:faild a")
    assert str(raised.value).splitlines()[1:] == ["  topic:mail  state:faild a", "                    ^^^^^"]
    with pytest.raises(InvalidFilter) as raised:
        meaning("x" * 500 + " state:faild " + "y" * 400)
    _, line, carets = str(raised.value).splitlines()
    start = carets.index("^")
    assert line[start : start + carets.count("^")] == "faild"
    assert len(line) < 130
    # Two columns for each of 日本, none for the accent that follows its letter.
    with pytest.raises(InvalidFilter) as raised:
        meaning("日本 e\u0301 priority:日本")
    assert str(raised.value).splitlines()[2] == "  " + " " * len("____ e priority:") + "^^^^"


def test_another_tenant_is_refused_as_everywhere() -> None:
    """By the rule of the keyword ``tenant``."""
    with acting_as(SecurityContext("acme")), pytest.raises(InvalidFilter, match="acts as tenant 'acme'"):
        meaning("tenant:globex")
    with pytest.raises(InvalidFilter, match="tenant_uuids"):
        parse_filter("tenant:globex", now=NOW, uuids=True)


@pytest.mark.parametrize("query", [None, 5, b"state:failed"])
def test_only_texts_are_filters(query: Any) -> None:
    """Anything else is told what it is."""
    with pytest.raises(InvalidInput, match="where is"):
        parse_filter(query, now=NOW)


@given(st.text(st.one_of(st.sampled_from('ab:=!<>~()"\\-,.*[]0 \n'), st.characters()), max_size=60))
@example("payload[" + "9" * 30 + "]:1")
@example("created>+-1h")
@example("payload.x:1e999")
@example("-" * 30)
@settings(max_examples=max(300, settings().max_examples))
def test_any_text_is_read_or_pointed_at(query: str) -> None:
    """Nothing but ``InvalidFilter``, with a place in the text or at its end; what was read is stable."""
    _is_read_or_pointed_at(query)


def _is_read_or_pointed_at(query: str) -> None:
    try:
        parsed = parse_filter(query, now=NOW)
    except InvalidFilter as error:
        place = error.position
    else:
        place = 0
        again = parse_filter(str(parsed), now=NOW)
        assert again.condition == parsed.condition
        assert str(again) == str(parsed)
    assert 0 <= place <= len(query)


words = st.sampled_from(
    ["state", "topic", "payload.a", "age", "x", "OR", "NOT", "(", ")", "-", ":", "=", ">", "~"]
)
values = st.sampled_from(["failed", "1h", "42", '"a b"', "*", "none", "today", ","])


@given(st.lists(st.one_of(words, values, st.just(" ")), max_size=20).map("".join))
def test_texts_that_look_like_filters_are_read_or_pointed_at(query: str) -> None:
    """The same with the pieces of the language, which random characters rarely make."""
    _is_read_or_pointed_at(query)


def test_every_example_can_be_read_and_every_field_is_documented() -> None:
    """What completion shows works, and the page has every name and state."""
    page = (Path(__file__).parents[3] / "docs/reference/filter-language.md").read_text("utf-8")
    for field in describe_fields():
        assert meaning(field.example) != AllOf(())
        row = next(line for line in page.splitlines() if line.startswith(f"| `{field.name}` |"))
        assert all(f"`{alias}`" in row for alias in field.aliases)
        assert f"`{field.example}`" in row
    assert {str(state) for state in (*State, *DerivedState)} <= STATES.keys()
    states = (Path(__file__).parents[3] / "docs/reference/states.md").read_text("utf-8").lower()
    spelled = re.sub(r"[_\s]", "", states)
    assert not [name for name in STATES if name.replace("_", "") not in spelled]
