"""Names that come from outside, as messages about them quote and compare them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidewheel
from tidewheel.access.rule_parser import parse_rule
from tidewheel.admin.filters import check_filter, check_state
from tidewheel.core.names import MAX_SUGGESTED_LENGTH, MAX_SUGGESTIONS, clip, suggest
from tidewheel.errors import ConfigurationError, TidewheelError
from tidewheel.settings import load_settings
from tidewheel.tasks.payload_errors import describe_mismatch

HOSTILE = "nmae" * 100_000


class Counted:
    """Known names that are read one by one."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Counted:
        return self

    def __next__(self) -> str:
        self.read += 1
        return f"name{self.read}"


def test_a_near_name_is_suggested() -> None:
    """A typing error in a name of ordinary length."""
    assert suggest("requeu", ["cancel", "delete", "requeue"]) == " (did you mean requeue?)"
    assert suggest("something else", ["cancel", "delete"]) == ""


def test_a_long_name_is_compared_with_none() -> None:
    """Comparing takes time that grows with the length, and the name may come from anyone."""
    known = Counted()
    assert suggest("x" * (MAX_SUGGESTED_LENGTH + 1), known) == ""
    assert known.read == 0


def test_a_name_is_compared_with_a_limited_number() -> None:
    """Also where the known names have no end."""
    known = Counted()
    assert suggest("nmae7", known) == " (did you mean name7?)"
    assert known.read == MAX_SUGGESTIONS


def test_one_module_searches_for_near_names() -> None:
    """The limits of ``suggest`` hold because nothing else compares texts by likeness."""
    package = Path(tidewheel.__file__).parent
    users = [path.name for path in package.rglob("*.py") if "difflib" in path.read_text("utf-8")]
    assert users == ["names.py"]


def test_a_clipped_text_says_how_long_it_was() -> None:
    """Up to its limit a text stays as it is."""
    assert clip("abc", 3) == "abc"
    assert clip("abcd" * 500, 3) == "abc… (2,000 characters)"


@pytest.mark.parametrize(
    "refuse",
    [
        lambda: check_filter({"where": f"{HOSTILE}:1"}, now=0),
        lambda: check_state(HOSTILE),
        lambda: load_settings({HOSTILE: 1}),
        lambda: load_settings({}, environment={"TIDEWHEEL_LEASE": HOSTILE}),
        lambda: parse_rule("manage_rule", f"{HOSTILE} = 1", with_body=False),
    ],
    ids=["filter", "state", "unknown setting", "value of a setting", "rule"],
)
def test_a_refusal_does_not_repeat_a_long_value(refuse: object) -> None:
    """Messages reach logs and other people's terminals."""
    assert callable(refuse)
    with pytest.raises((TidewheelError, ConfigurationError)) as refused:
        refuse()
    assert len(str(refused.value)) < 5000


def test_a_payload_with_a_long_unknown_member_is_refused_briefly() -> None:
    """Both in the message and in what is kept of it with a job."""
    error = ValueError(f"Object contains unknown field `{HOSTILE}`")
    refusal = describe_mismatch("mail", error, b"{}", ["name"])
    assert len(str(refusal)) < 1000
    assert refusal.message_without_value is not None
    assert len(refusal.message_without_value) < 1000
