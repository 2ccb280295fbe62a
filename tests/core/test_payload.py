"""The one door for bodies."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import math
import uuid
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.core import payload
from tidewheel.errors import InvalidPayload, LimitExceeded

LIMIT = 65_536

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(payload.MIN_INTEGER, payload.MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=20,
)


def encode(value: Any) -> bytes:
    return payload.encode(value, limit=LIMIT)


@given(values)
def test_what_is_accepted_is_read_back_as_it_was(value: Any) -> None:
    """Equal by our decoder and by the standard library's: any language reads the same."""
    body = encode(value)
    assert payload.decode(body) == value
    assert json.loads(body) == value


@given(values)
def test_a_body_is_plain_utf8_without_nul(value: Any) -> None:
    """Every database can store it as text."""
    body = encode(value)
    assert "\x00" not in body.decode("utf-8")
    assert b"\\u0000" not in body.replace(b"\\\\", b"")


@given(
    st.dictionaries(texts, st.integers(0, 9) | st.dictionaries(texts, texts, max_size=2), max_size=4),
    st.randoms(),
)
def test_the_hash_of_a_payload_ignores_the_order_of_its_keys(value: dict[str, Any], random: Any) -> None:
    """Equal payloads have equal keys, however they were written."""
    items = list(value.items())
    random.shuffle(items)
    assert payload.canonical_hash(encode(value)) == payload.canonical_hash(encode(dict(items)))


def test_different_payloads_have_different_hashes() -> None:
    """Also where only a type or an order of a list differs."""
    different = [
        {},
        [],
        {"a": 1},
        {"a": "1"},
        {"a": [1, 2]},
        {"a": [2, 1]},
        {"a": None},
        {"a": 1, "b": 1},
        0,
        False,
    ]
    assert len({payload.canonical_hash(encode(value)) for value in different}) == len(different)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    label: str | None = None


class Box(msgspec.Struct):
    points: list[Point]


class Model(pydantic.BaseModel):
    when: dt.datetime = pydantic.Field(serialization_alias="at")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1), {"x": 1, "label": None}),
        (Box([Point(1, "é")]), {"points": [{"x": 1, "label": "é"}]}),
        (Model(when=dt.datetime(2026, 1, 2, tzinfo=dt.UTC)), {"at": "2026-01-02T00:00:00Z"}),
        (Colour.RED, "red"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC), "2026-01-02T03:04:00Z"),
        ((1, 2), [1, 2]),
        ({1: "a"}, {"1": "a"}),
    ],
)
def test_the_usual_python_values_are_written_as_json(value: Any, expected: Any) -> None:
    """Dataclasses, Structs, models, enums, ids, times and tuples need no help."""
    assert payload.decode(encode(value)) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "not finite"),
        ({"a": [math.inf]}, "not finite"),
        ({"a": None, "b": "null", "c": math.nan}, "not finite"),
        (-math.inf, "not finite"),
        ("a\x00b", "NUL"),
        ({"a\x00": 1}, "NUL"),
        ([{"deep": ["\x00"]}], "NUL"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        (2**63, "2\\^63"),
        (2**64 - 1, "2\\^63"),
        (2**64, "2\\^63"),
        (-(2**63) - 1, "2\\^63"),
        ({"n": [10**400]}, "2\\^"),
        (object(), "object"),
        ({1j}, "complex|set|JSON"),
        (lambda: 1, "function"),
        ({"a": msgspec.Raw(b"[1,")}, "Raw"),
    ],
)
def test_what_no_store_could_give_back_is_refused(value: Any, message: str) -> None:
    """With the reason and a remedy, before anything is written."""
    with pytest.raises(InvalidPayload, match=message):
        encode(value)


@pytest.mark.parametrize(
    "value", [2**63 - 1, -(2**63), 1.5e300, "\\u0000 written out", "9" * 30, 1e19, None, "null", [[]] * 70]
)
def test_what_only_looks_suspicious_passes(value: Any) -> None:
    """The quick look at the text is followed by an exact one."""
    assert payload.decode(encode({"v": value})) == {"v": value}


def _nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def test_the_deepest_payload_allowed_is_accepted() -> None:
    """64 levels, and not one more."""
    assert payload.decode(encode(_nested(payload.MAX_DEPTH))) == _nested(payload.MAX_DEPTH)
    with pytest.raises(InvalidPayload, match="64 levels"):
        encode(_nested(payload.MAX_DEPTH + 1))


@pytest.mark.parametrize(
    "depth", [100, 300, 500, 700, 800, 850, 900, 920, 940, 960, 980, 1000, 5000, 100_000]
)
def test_a_payload_of_any_depth_is_refused_not_crashed_on(depth: int) -> None:
    """Neither the stack nor the interpreter gives way."""
    with pytest.raises(InvalidPayload, match="nested too deep"):
        encode(_nested(depth))


def test_a_wide_payload_is_not_a_deep_one() -> None:
    """Many brackets side by side are fine."""
    value: list[Any] = [{"a": []} for _ in range(500)]
    assert payload.decode(encode(value)) == value


def test_a_payload_that_contains_itself_is_refused() -> None:
    """It has no end."""
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidPayload, match="deep"):
        encode(value)


def test_the_size_limit_is_exact_and_names_both_numbers() -> None:
    """Bytes, not characters."""
    assert len(payload.encode("é" * 49, limit=100)) == 100
    with pytest.raises(LimitExceeded, match=r"102 bytes; the limit is 100 \(max_payload_bytes\)"):
        payload.encode("é" * 50, limit=100)


def test_raw_bytes_pass_as_they_are_within_the_limit() -> None:
    """NUL and invalid UTF-8 included."""
    assert payload.check_bytes(b"\x00\xff", limit=2) == b"\x00\xff"
    with pytest.raises(LimitExceeded, match="3 bytes; the limit is 2"):
        payload.check_bytes(b"abc", limit=2)


@pytest.mark.parametrize("text", ["", "{", "{'a': 1}", "NaN", b"\xff", '"\\ud800"', "[1,]"])
def test_text_that_is_not_json_is_refused(text: str | bytes) -> None:
    """What a command line or a request brings is checked like everything else."""
    with pytest.raises(InvalidPayload, match="payload"):
        encode(payload.parse(text))


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_deep_json_text_is_refused(depth: int) -> None:
    """Reading it does not exhaust the stack either."""
    with pytest.raises(InvalidPayload, match="deep"):
        encode(payload.parse("[" * depth + "]" * depth))


@given(values)
def test_parsing_what_was_encoded_gives_the_value(value: Any) -> None:
    """The two doors fit."""
    assert payload.parse(encode(value)) == value


ONCE = (
    b"{}",
    b'{"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]}',
    b'{"a:b": "c:d", "a\\u003ab2": "x\\u003ay"}',
    b'{"a": "\\\\u003a", "time": "12:30:00"}',
    b'{"n": 123456789012345678901234567890, "m": 1e400, "t": "\\ud83d\\ude00"}',
    b'[{"a": 1}, {"a": 1}]',
    b"nonsense: {",
    b"\xff",
)
TWICE = (
    (b'{"a": 1, "a": 1}', "a"),
    (b'{"a": 1, "\\u0061": 2}', "a"),
    (b'{"x": [{"b": {"c:d": 1, "c\\u003ad": 2}}]}', "c:d"),
    (b'{"a": "1:2", "a": "\\u003a\\u003a"}', "a"),
    (b'{"n": 123456789012345678901234567890, "b": 1, "b": 2}', "b"),
    (b'{"": 1, "": 2}', ""),
)


@pytest.mark.parametrize("body", ONCE)
def test_members_of_one_name_each_pass(body: bytes) -> None:
    """Names may come again in other objects, colons may be anywhere; what is no JSON is for others to say."""
    payload.refuse_duplicate_members(body)


@pytest.mark.parametrize(("body", "name"), TWICE)
def test_member_that_is_there_twice_is_refused(body: bytes, name: str) -> None:
    """However it is spelled, however deep, whatever else makes the quick look fail."""
    with pytest.raises(payload.DuplicateMember, match="twice") as refusal:
        payload.refuse_duplicate_members(body)
    assert refusal.value.name == name


@given(values, st.booleans())
def test_no_json_that_an_encoder_writes_has_a_member_twice(value: Any, escaped: bool) -> None:
    """It passes, with escapes and without."""
    payload.refuse_duplicate_members(json.dumps(value, ensure_ascii=escaped).encode())
