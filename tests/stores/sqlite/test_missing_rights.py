"""A worker that may not write its file ends at its start, with the remedy and a code that is not zero."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tidewheel import Tidewheel

APP = """
from tidewheel import Tidewheel
app = Tidewheel("sqlite:///jobs.db")
@app.task
def hello() -> None: ...
"""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory with an app and a store, whose modes a test changes."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "jobs.py").write_text(APP)
        with Tidewheel(f"sqlite:///{path}/jobs.db").sync as app:
            app.enqueue("hello")
        yield path
        path.chmod(0o755)


def ended(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command there to its end, as somebody whom modes hold: root is, without two capabilities."""
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root needs setpriv to be held by modes")
        prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    return subprocess.run(
        [*prefix, sys.executable, *command],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize(
    ("file_mode", "directory_mode"), [(0o444, 0o777), (0o444, 0o555), (0o000, 0o777), (0o666, 0o555)]
)
def test_a_worker_that_may_not_write_its_file_ends(
    directory: Path, file_mode: int, directory_mode: int
) -> None:
    """Whichever of the file and its directory it is that may not be written, or not even be read."""
    (directory / "jobs.db").chmod(file_mode)
    directory.chmod(directory_mode)
    answer = ended(directory, "-m", "tidewheel.cli", "worker", "jobs:app")
    assert answer.returncode == 1, answer.stderr
    [line] = [line for line in answer.stderr.splitlines() if line.startswith("error:")]
    assert "this process must be able to write the file and to make others in its directory" in line


def test_processes_that_may_not_write_the_file_end_together(directory: Path) -> None:
    """The first one says why, and no other is tried again and again."""
    (directory / "jobs.db").chmod(0o444)
    directory.chmod(0o777)
    answer = ended(directory, "-m", "tidewheel.cli", "worker", "jobs:app", "--processes", "2")
    assert answer.returncode == 1, answer.stderr
    assert "this process must be able to write the file" in answer.stderr
    assert "starts again" not in answer.stderr


def test_running_until_idle_without_rights_does_not_hang(directory: Path) -> None:
    """It raises what is wrong."""
    (directory / "jobs.db").chmod(0o444)
    directory.chmod(0o777)
    program = (
        "import asyncio, jobs\nasync def main():\n async with jobs.app: await jobs.app.run_until_idle()\n"
    )
    answer = ended(directory, "-c", f"{program}asyncio.run(main())")
    assert answer.returncode == 1
    assert "StoreUnavailable" in answer.stderr
