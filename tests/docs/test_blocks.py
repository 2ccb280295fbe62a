"""Code in the documents runs, as it stands there.

All blocks of a page run in one empty directory, in order. Python blocks run unless the comment above them
says ``not run: why``; ``file: name`` gives the file a name. Shell blocks run where the comment says ``run``.
A block marked ``output`` is what the block before it prints. ``tests/examples`` has the marks of examples.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, pages
from tests.examples.walkthrough import MARKS

LONGEST_SECONDS = 60
SDK_MARKS = {"server", "example", "types"}
"""Blocks that ``tests/sdk`` runs."""
NO_PLUGINS = "-p no:schemathesis -p no:anyio -p no:xdist -p no:hypothesispytest"
"""What our own tests have installed and a reader of the pages has not; loading it takes seconds each time."""

PAGES = [page for page in pages() if any(block.language == "python" for block in blocks(page))]


def run(command: list[str], directory: Path, place: str, **more: str) -> str:
    scripts = sysconfig.get_path("scripts")
    path = os.pathsep.join([str(Path(sys.executable).parent), scripts, os.environ.get("PATH", "")])
    program = shutil.which(command[0], path=path)
    assert program is not None, f"{place}: there is no program {command[0]}"
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIDEWHEEL_", "PYTEST_"))
    }
    done = subprocess.run(
        [program, *command[1:]],
        cwd=directory,
        env={**kept, "PATH": path, "PYTHONUTF8": "1", "PYTEST_ADDOPTS": NO_PLUGINS, **more},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{place} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_block(block: Block, directory: Path, number: int) -> str:
    if block.language == "python":
        name = block.mark.removeprefix("file: ") if block.mark else f"block_{number}.py"
        (directory / name).write_text(block.text + "\n", "utf-8")
        return run([sys.executable, name], directory, block.place, PYTHONWARNINGS="error")
    return "".join(run(shlex.split(line), directory, block.place) for line in block.text.splitlines())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """What a reader copies from a page works, and prints what the page says."""
    printed = ""
    for number, block in enumerate(blocks(page)):
        if block.mark == "output":
            assert printed.strip() == block.text.strip(), block.place
        elif (block.language == "python" and not block.mark.startswith("not run: ")) or block.mark == "run":
            printed = run_block(block, tmp_path, number)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_mark_is_understood(page: Path) -> None:
    """A misspelt mark must not keep a block from being run."""
    for block in blocks(page):
        words = block.mark
        known = words in {"", "run", "output", "demo-command", "test-command", *MARKS, *SDK_MARKS}
        assert known or words.startswith(("file: ", "not run: ")), f"{block.place}: {words!r}"
        assert block.language, f"{block.place} names no language"
