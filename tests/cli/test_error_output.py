"""How commands fail: one line, an exit code, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import COMMAND, Project
from tests.patience import PATIENCE
from tidewheel import Tidewheel

needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGINT to one process")


def test_an_error_of_tidewheel_is_one_line(run: Run, project: Project) -> None:
    """No traceback, no usage text: what is wrong and what to do."""
    answer = run("stats", "--url", "nowhere://jobs")
    assert answer.code == 2
    assert answer.out == ""
    assert answer.errors.startswith("error: 'nowhere://jobs' names no store Tidewheel knows")
    assert answer.errors.count("\n") == 1


def test_a_database_that_is_not_there_is_not_made_by_looking(run: Run, project: Project) -> None:
    """Who asks in the wrong directory hears so, and finds no empty file there later."""
    for command in (
        ["stats"],
        ["jobs", "list"],
        ["topics"],
        ["jobs", "delete", "--state", "failed", "--yes"],
    ):
        answer = run(*command)
        assert answer.code == 1
        assert "there is no database" in answer.errors
        assert str(project.directory / "tidewheel.db") in answer.errors
    assert not (project.directory / "tidewheel.db").exists()


def test_a_store_that_cannot_be_used_is_one_line(run: Run, project: Project) -> None:
    """A file that is no database is the store's own error, told plainly."""
    (project.directory / "broken.db").write_text("this is no database, but long enough to look like one" * 50)
    answer = run("stats", "--url", "sqlite:///broken.db")
    assert answer.code == 1
    assert answer.errors.startswith("error: ")
    assert answer.errors.count("\n") == 1


def test_debugging_shows_where_an_error_came_from(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who ask get the traceback, by option or by environment."""
    assert "Traceback" in run("stats", "--url", "nowhere://jobs", "--traceback").errors
    monkeypatch.setenv("TIDEWHEEL_DEBUG", "1")
    assert "Traceback" in run("stats", "--url", "nowhere://jobs").errors
    monkeypatch.setenv("TIDEWHEEL_DEBUG", "0")
    assert "Traceback" not in run("stats", "--url", "nowhere://jobs").errors


def test_url_and_app_together_are_refused(run: Run) -> None:
    """Two stores were named; guessing one would be worse."""
    answer = run("stats", "--url", "sqlite:///a.db", "--app", "jobs:app")
    assert answer.code == 2
    assert "--url and --app" in answer.errors


def test_the_url_comes_from_the_environment_and_from_pyproject(
    run: Run, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --url the settings decide, the environment before the file."""
    project.write("pyproject.toml", '[tool.tidewheel]\nurl = "sqlite:///from_file.db"\n')
    assert run("migrate", "--json").json["url"] == "sqlite:///from_file.db"
    monkeypatch.setenv("TIDEWHEEL_URL", "sqlite:///from_environment.db")
    assert run("migrate", "--json").json["url"] == "sqlite:///from_environment.db"
    assert run("migrate", "--json", "--url", "sqlite:///given.db").json["url"] == "sqlite:///given.db"
    assert (project.directory / "given.db").exists()


def test_a_reader_that_goes_away_is_met_with_silence(project: Project, within: Within) -> None:
    """``tidewheel jobs list --json | head -1`` prints a line and nothing else."""

    async def fill(app: Tidewheel) -> None:
        await app.enqueue_many("mail", [{}] * 200)

    within(fill)
    process = subprocess.Popen(
        [*COMMAND, "jobs", "list", "--json", "--limit", "200", "--url", project.url],
        cwd=project.directory,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        assert process.stdout.readline() == b"{" + os.linesep.encode()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.wait(PATIENCE) == 141


@needs_signals
def test_ctrl_c_is_quiet(project: Project) -> None:
    """Stopping to wait is no error worth a traceback."""
    with project.start("enqueue", "mail", "--wait", "60", "--url", project.url) as process:
        process.wait_for(r"^[0-9a-f-]{36}$")
        process.signal(signal.SIGINT)
        assert process.wait() == 130
        assert "".join(process.seen[1:]) == ""


def test_output_that_cannot_show_a_character_does_not_fail(project: Project, within: Within) -> None:
    """A payload with a snowman is shown as an escape on a terminal that knows only ASCII."""

    async def fill(app: Tidewheel) -> str:
        return str((await app.enqueue("mail", {"weather": "☃"})).id)

    job_id = within(fill)
    done = subprocess.run(
        [*COMMAND, "jobs", "show", job_id, "--url", project.url],
        cwd=project.directory,
        env=project.environment(PYTHONIOENCODING="ascii"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"\\u2603" in done.stdout


def test_the_url_of_a_file_with_spaces_is_found(run: Run, project: Project) -> None:
    """A percent-encoded path is the file it means."""
    assert run("migrate", "--url", "sqlite:///my%20jobs.db").code == 0
    assert Path("my jobs.db").exists()
    assert run("stats", "--url", "sqlite:///my%20jobs.db").code == 0
