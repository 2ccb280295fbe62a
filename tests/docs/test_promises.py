"""Every promise names the tests that try to break it, and they are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGES = ("docs/explanation/promises.md", "docs/explanation/faults.md", "docs/explanation/side-effects.md")
_FUNCTION = re.compile(r"^\s*(?:async )?def (\w+)", re.MULTILINE)
_TEST = re.compile(r"`((?:tests|src/tidewheel/testing)/[\w/]+\.py)(?:::(\w+))?`")


def _named(page: str) -> list[tuple[str, str]]:
    return _TEST.findall((ROOT / page).read_text("utf-8"))


@cache
def _functions(path: Path) -> frozenset[str]:
    return frozenset(_FUNCTION.findall(path.read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_is_named_is_there(page: str) -> None:
    """A promise whose test was renamed away would be a promise without one."""
    named = _named(page)
    assert len(named) > 10
    for file, function in named:
        path = ROOT / file
        assert path.is_file(), f"{page} names {file}, which is not there"
        if function:
            assert function in _functions(path), f"{page} names {file}::{function}, which is not there"


def test_every_promise_names_a_test() -> None:
    """Or says what it waits for."""
    text = (ROOT / "docs/explanation/promises.md").read_text("utf-8")
    promises = re.split(r"^## (?=\d+\. )", text, flags=re.MULTILINE)[1:]
    assert len(promises) == 8
    for promise in promises:
        body = promise.split("\n## ")[0]
        title = body.splitlines()[0]
        assert _TEST.search(body) or "not in 0.1" in body, f"promise {title!r} names no test"


def test_every_rule_for_side_effects_names_a_test() -> None:
    """Each numbered rule has a row, and each row a test; what was not to be built has none."""
    text = (ROOT / "docs/explanation/side-effects.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+(?:\.\d+)?)[^|]*\|(.*)$", text, flags=re.MULTILINE)
    numbers = {number for number, _ in rows}
    sections = {"2": 4, "3": 3, "4": 5, "5": 3, "6": 3, "7": 4, "8": 6, "10": 4}
    expected = {f"{section}.{rule + 1}" for section, rules in sections.items() for rule in range(rules)}
    assert numbers >= expected
    for number, row in rows:
        assert number.startswith("10.") or _TEST.search(row), number
