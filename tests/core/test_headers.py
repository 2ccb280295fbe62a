"""Texts that travel with a job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewheel.core import headers
from tidewheel.errors import InvalidInput, LimitExceeded

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(st.dictionaries(texts, texts, max_size=5))
def test_what_is_written_is_read(entries: dict[str, str]) -> None:
    """Any names and values; none at all are no headers."""
    written = headers.write_headers(entries)
    assert headers.read_headers(written) == entries
    assert (written is None) == (not entries)


def test_too_much_is_refused_with_the_culprit() -> None:
    """4,096 bytes of JSON are the limit, quotes and escapes included."""
    assert headers.read_headers(headers.write_headers({"a": "x" * 4088})) == {"a": "x" * 4088}
    with pytest.raises(LimitExceeded, match=r"headers are 4,097 bytes.*limit is 4,096.*'a' with 4,089"):
        headers.write_headers(
            {
                "a": "x" * 4089,
            }
        )


@pytest.mark.parametrize("entries", [{"a": 1}, {"a": None}, {1: "a"}, {"a": "\0"}, {"a": "\ud800"}])
def test_what_is_no_text_is_refused(entries: Any) -> None:
    """Every store keeps what is accepted."""
    with pytest.raises(InvalidInput):
        headers.write_headers(entries)


@pytest.mark.parametrize("stored", ["", "00-trace", "[]", '{"a": 1}', "null"])
def test_what_somebody_else_wrote_is_no_headers(stored: str) -> None:
    """A job must not fail for what only travels along."""
    assert headers.read_headers(stored) == {}
