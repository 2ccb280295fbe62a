"""The README's promises about itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

README = ROOT / "README.md"


def command(mark: str) -> str:
    """The only block with this mark, which is one line."""
    (found,) = [block for block in blocks(README) if block.mark == mark]
    assert found.language == "sh"
    (line,) = found.text.splitlines()
    return line


def test_the_demo_command_is_there_once_and_on_one_line() -> None:
    """A newcomer copies one line and sees jobs run."""
    line = command("demo-command")
    assert line.startswith("python3 -m venv ")
    assert "tidewheel demo" in line
    assert README.read_text("utf-8").count(line) == 1


def test_the_test_command_is_there_once_and_on_one_line() -> None:
    """A newcomer copies one line and runs the whole suite."""
    line = command("test-command")
    assert line.startswith("python3 -m venv ")
    assert "/pytest " in line
    assert README.read_text("utf-8").count(line) == 1


def test_the_example_is_fifteen_lines() -> None:
    """The first example stays short enough to be read."""
    (example,) = [block for block in blocks(README) if block.mark == "file: jobs.py"]
    assert len([line for line in example.text.splitlines() if line.strip()]) <= 15


@pytest.mark.skipif(os.name == "nt", reason="bash and venv/bin are what CI and the README commands speak")
def test_ci_runs_the_readme_commands_as_written(tmp_path: Path) -> None:
    """CI reads its commands from the README, so the two cannot drift apart."""
    shown = subprocess.run(
        [str(ROOT / ".ci/run"), "--show"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert shown.stdout.splitlines() == [command("test-command"), command("demo-command")]


@pytest.mark.skipif(os.name == "nt", reason="bash and venv/bin are what CI and the README commands speak")
def test_ci_refuses_a_readme_without_its_commands(tmp_path: Path) -> None:
    """A command that cannot be found is a failure, not an empty success."""
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci/run"
    script.write_text((ROOT / ".ci/run").read_text("utf-8"), "utf-8")
    (tmp_path / "README.md").write_text("```sh\npytest\n```\n", "utf-8")
    shown = subprocess.run(["bash", str(script), "--show"], capture_output=True, text=True, check=False)
    assert shown.returncode != 0
    assert "test-command" in shown.stderr
