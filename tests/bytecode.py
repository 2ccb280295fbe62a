"""A pytest plugin: compiled modules for the hundreds of processes of a run.

Where the environment forbids writing bytecode, as containers like to, each of them would compile all it
imports, and each worker of xdist would rewrite the assertions of every test. So what belongs to this
repository is compiled before the tests begin; what tests write themselves is not, as the environment wants.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MANY = 100
"""Test files without bytecode: so many are a fresh copy, and not a day's work."""

COLLECT = ("-m", "pytest", "--collect-only", "-q", "-p", "no:xdist")
"""Arguments of Python that rewrite the assertions of test files without running a test."""

_forbidden = sys.dont_write_bytecode
if _forbidden:
    sys.dont_write_bytecode = False  # until the tests have been collected, and with that been rewritten
    if "PYTEST_XDIST_WORKER" not in os.environ:  # once, by the process that starts the others
        compileall.compile_dir(ROOT / "src", quiet=2)


def pytest_configure(config: pytest.Config) -> None:
    """In a fresh copy the tests are rewritten here, once: workers that begin together would each do it."""
    if not config.getoption("numprocesses", None) or config.getoption("file_or_dir"):
        return
    files = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if not _rewritten(path)]
    if len(files) >= MANY:
        cores = os.cpu_count() or 1
        # What they say does not matter, nor how they end: workers tell what is wrong with a test.
        shares = [
            subprocess.Popen(
                [sys.executable, *COLLECT, *files[core::cores]], cwd=ROOT, stdout=subprocess.DEVNULL
            )
            for core in range(cores)
        ]
        for share in shares:
            share.wait()


def _rewritten(path: Path) -> bool:
    return any((path.parent / "__pycache__").glob(f"{path.stem}.*-pytest-*.pyc"))


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = _forbidden
