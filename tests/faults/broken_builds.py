"""Builds that are broken on purpose: Tidewheel with one check taken out, and the quick tier run on each.

``python -m tests.faults.broken_builds`` does it for all of them and says which tests noticed. Each must be
noticed by something: a suite of faults that lets these pass would let anything pass.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
QUICK_TIER = (
    "tests/faults",
    "tests/verification/test_checker.py",
    "tests/verification/test_fault_run.py",
    "tests/verification/test_recording_store.py",
    "tests/stores/all_stores/test_conformance.py",
)


@dataclass(frozen=True, slots=True)
class Cut:
    """Words taken out of a file, or replaced, wherever they stand in it."""

    file: str
    words: str
    instead: str = ""


BUILDS = {
    "PostgreSQL without the check of the fence": (
        Cut("stores/postgres/migrations/0001_schema/05_settle.sql", "j.fence = e.fence AND "),
    ),
    "SQLite without the check of the fence": (
        Cut("stores/sqlite/settlements.py", "        or row.fence != lease.fence\n"),
        Cut("stores/sqlite/sql/settlements.sql", "fence = ends.column2 AND "),
        Cut("stores/sqlite/sql/settlements.sql", "fence = :fence AND "),
    ),
    "memory without the check of the fence": (
        Cut("stores/memory/job_table.py", " or job.fence != lease.fence"),
    ),
    "PostgreSQL whose rescue does not check again": (
        Cut(
            "stores/postgres/migrations/0001_schema/04_claim.sql",
            "        ORDER BY leased_until, number LIMIT p_limit\n        FOR UPDATE SKIP LOCKED\n    LOOP",
            "        ORDER BY leased_until, number LIMIT p_limit\n    LOOP",
        ),
    ),
}


def make(name: str, place: Path) -> None:
    """The package with these words taken out; words that are not there are a mistake of this list."""
    package = place / "tidewheel"
    shutil.copytree(ROOT / "src" / "tidewheel", package, ignore=shutil.ignore_patterns("__pycache__"))
    for cut in BUILDS[name]:
        file = package / cut.file
        text = file.read_text("utf-8")
        if cut.words not in text:
            raise SystemExit(
                f"{cut.words!r} is not in {cut.file}: the code has changed, and so must this list"
            )
        file.write_text(text.replace(cut.words, cut.instead), "utf-8")


def noticed_by(name: str, tests: tuple[str, ...] = QUICK_TIER, most: int = 3) -> list[str]:
    """The tests that fail on this build; the first few."""
    with tempfile.TemporaryDirectory() as place:
        make(name, Path(place))
        answer = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--maxfail={most}"),
                *("--tb=no", "-rfE", *tests),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{place}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
            check=False,
        )
    if answer.returncode not in {0, 1, 2}:
        raise SystemExit(f"pytest could not run:\n{answer.stdout}{answer.stderr}")
    return re.findall(r"^(?:FAILED|ERROR) (.{1,300})", answer.stdout, re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=QUICK_TIER, help="what to run on each build")
    tests = tuple(parser.parse_args().tests)
    unnoticed = []
    for name in BUILDS:
        noticed = noticed_by(name, tests)
        print(f"{name}: {'NOT NOTICED' if not noticed else ''}", flush=True)
        for test in noticed:
            print(f"    {test}", flush=True)
        unnoticed += [] if noticed else [name]
    raise SystemExit(bool(unnoticed))


if __name__ == "__main__":
    main()
