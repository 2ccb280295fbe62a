"""The order of test files is about files that are there."""

from __future__ import annotations

from pathlib import Path

from tests.distribution import LONGEST

HERE = Path(__file__).parent


def test_every_file_that_begins_early_exists() -> None:
    """A file that was renamed would begin last again, and nobody would notice but by the time it takes."""
    assert [name for name in LONGEST if not (HERE / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)
