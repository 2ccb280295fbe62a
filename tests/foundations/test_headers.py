"""The texts that travel with a job."""

from __future__ import annotations

import pytest

from windlass import InvalidInput, headers


def test_entries_are_set_one_by_one() -> None:
    """Each part keeps its own, and leaves those of others alone."""
    text = headers.set(headers.set(None, "a", "1"), "b", "é")
    assert headers.read(text) == {"a": "1", "b": "é"}
    assert (headers.get(text, "b"), headers.get(text, "c"), headers.get(None, "a")) == ("é", None, None)
    assert headers.write({}) is None


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "{", '{"a": "\\ud800"}'])
def test_what_is_no_object_of_texts_counts_as_none(text: str) -> None:
    """Whoever wrote it, a job must not fail for it."""
    assert headers.read(text) == {} or "a" in headers.read(text)


def test_headers_have_a_limit() -> None:
    """They are in the row of every job."""
    with pytest.raises(InvalidInput, match="4,096"):
        headers.write({"a": "x" * 4096})
