"""A pytest plugin: compiled modules for the hundreds of processes of a run.

Where the environment forbids writing bytecode, as containers like to, each of them would compile all it
imports, and each worker of xdist would rewrite the assertions of every test. So what belongs to this
repository is compiled before the tests begin; what tests write themselves is not, as the environment wants.
"""

from __future__ import annotations

import compileall
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_forbidden = sys.dont_write_bytecode
if _forbidden:
    sys.dont_write_bytecode = False  # until the tests have been collected, and with that been rewritten
    if "PYTEST_XDIST_WORKER" not in os.environ:  # once, by the process that starts the others
        compileall.compile_dir(ROOT / "src", quiet=2)


def pytest_collection_finish() -> None:
    sys.dont_write_bytecode = _forbidden
