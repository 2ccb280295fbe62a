"""No claim is lost between the tiers of the suite."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.tiers import EXTENDED_ONLY, FIRST, SAMPLED, TIERS, Tiers, collected

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tiers(pytestconfig: pytest.Config) -> Tiers:
    """The tiers of the whole suite, which a run of named files has not collected."""
    tiers = pytestconfig.stash[TIERS]
    return tiers if pytestconfig.option.markexpr == FIRST else collected()


def test_every_claim_has_a_case_in_the_first_tier(tiers: Tiers) -> None:
    """A claim that only the extended tier checks is listed in tests/tiers.py with its reason."""
    assert tiers.lost() == []


def test_every_listed_exception_is_needed(tiers: Tiers) -> None:
    """A claim that was renamed, or has a case in the first tier, leaves the list."""
    assert [name for name in EXTENDED_ONLY if name not in tiers.extended or name in tiers.first] == []


def test_what_is_sampled_is_there() -> None:
    """A test that was renamed would run in full again."""
    for place in SAMPLED:
        path, _, name = place.partition("::")
        assert f"def {name}" in (ROOT / path).read_text("utf-8"), place


def test_the_default_choice_is_the_first_tier() -> None:
    """Paths on the command line replace the default choice only while both places say the same."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    assert FIRST in options["addopts"]
    assert '-m "extended and not long"' in (ROOT / ".ci/run").read_text("utf-8")


@pytest.mark.parametrize("processes", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_named_file_runs_in_both_tiers(processes: tuple[str, ...]) -> None:
    """Whoever works on a file sees all its cases, also with several processes."""
    options = ("-q", "-k", "a_look_tells_depth", "tests/telemetry/test_metric_gauges.py")
    command = [sys.executable, "-m", "pytest", *processes, *options]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT)
    assert "2 passed" in said.stdout, said.stdout  # in memory and on SQLite
