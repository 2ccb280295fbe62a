"""The order of test files is about files that are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.bytecode import COLLECT
from tests.distribution import LONGEST
from tests.patience import PATIENCE

HERE = Path(__file__).parent


def test_every_file_that_begins_early_exists() -> None:
    """A file that was renamed would begin last again, and nobody would notice but by the time it takes."""
    assert [name for name in LONGEST if not (HERE / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)


def test_a_fresh_copy_can_be_collected_before_its_processes_begin() -> None:
    """Or each of them rewrites every test, which takes as long as a tenth of the run."""
    command = [sys.executable, *COLLECT, __file__]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert said.returncode == 0, said.stdout
