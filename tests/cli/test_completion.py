"""``tidewheel completion``, and what is offered when Tab is pressed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import COMMAND, Project, on_terminal
from tests.patience import PATIENCE
from tidewheel import ConfigurationError, Tidewheel
from tidewheel.cli.command_group import COMMANDS
from tidewheel.cli.target_options import app_for_completion

Press = Callable[..., list[str]]


def _run(
    command: list[str], project: Project, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        cwd=project.directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.fixture
def press(project: Project) -> Press:
    """What Tab offers after these words, the last of them half typed, as the script asks for it."""

    def press(*words: str, **environment: str) -> list[str]:
        asked = project.environment(
            _TIDEWHEEL_COMPLETE="fish_complete",
            COMP_WORDS=" ".join(("tidewheel", *words)),
            COMP_CWORD=words[-1],
            **environment,
        )
        done = _run(list(COMMAND), project, asked)
        assert (done.returncode, done.stderr) == (0, "")
        return [line.partition(",")[2].partition("\t")[0] for line in done.stdout.splitlines() if line]

    return press


@pytest.fixture
def jobs(within: Within) -> None:
    async def fill(app: Tidewheel) -> None:
        await app.enqueue("mail", {})
        await app.enqueue("maps", {})
        await app.enqueue("reports", {})

    within(fill)


def test_commands_options_and_states_are_offered(press: Press) -> None:
    """Without a store, and without importing what is not used."""
    assert press("") == list(COMMANDS)
    assert press("jo") == ["jobs"]
    assert press("jobs", "re") == ["requeue"]
    assert press("jobs", "list", "--st") == ["--state"]
    assert press("jobs", "list", "--state", "f") == ["failed"]
    assert press("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.usefixtures("jobs")
def test_topics_with_jobs_are_offered(press: Press, project: Project) -> None:
    """Of the store that the words so far name, or the settings."""
    assert press("topics", "--url", project.url, "purge", "ma") == ["mail", "maps"]
    assert press("topics", "pause", "--url", project.url, "ma") == ["mail", "maps"]
    assert press("topics", "resume", "r", TIDEWHEEL_URL=project.url) == ["reports"]
    assert press("jobs", "list", "--url", project.url, "--topic", "map") == ["maps"]
    assert press("enqueue", "--url", project.url, "ma") == ["mail", "maps"]


def test_tab_makes_no_store_and_runs_no_code(press: Press, project: Project) -> None:
    """Whoever presses it in the wrong directory leaves nothing behind, and an app is not imported."""
    project.write("loud.py", "raise SystemExit('imported')")
    before = sorted(path.name for path in project.directory.iterdir())
    assert press("topics", "pause", "ma") == []
    assert press("topics", "--app", "loud:app", "pause", "ma") == []
    assert press("topics", "--url", "postgresql://127.0.0.1:1/none", "pause", "ma") == []
    assert press("topics", "--url", "nonsense", "pause", "ma") == []
    assert sorted(path.name for path in project.directory.iterdir()) == before


@pytest.mark.parametrize(
    ("shell", "mark"), [("bash", "COMPREPLY"), ("zsh", "#compdef tidewheel"), ("fish", "complete ")]
)
def test_each_shell_gets_its_script(run: Run, shell: str, mark: str) -> None:
    """In its own language, with the name of the program in it."""
    answer = run("completion", shell)
    assert answer.code == 0
    assert mark in answer.out
    assert "_TIDEWHEEL_COMPLETE" in answer.out


def test_the_shell_is_that_of_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is one we know nothing of."""
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert run("completion").out == run("completion", "fish").out
    monkeypatch.setenv("SHELL", "/bin/ksh")
    answer = run("completion")
    assert answer.code == 2
    assert "name one of bash, zsh, fish" in answer.errors


def test_a_terminal_is_told_where_to_put_it(project: Project) -> None:
    """The script alone helps nobody."""
    with on_terminal(project, "completion", "bash") as terminal:
        assert terminal.wait() == 0
    assert "to have it in every new bash: tidewheel completion bash >" in terminal.text


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.usefixtures("jobs")
def test_a_real_bash_completes_with_it(project: Project, tmp_path: Path) -> None:
    """The script is loaded, and its function called as bash calls it."""
    program = tmp_path / "bin" / "tidewheel"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidewheel.cli "$@"\n')
    program.chmod(0o755)
    script = """
        source <(tidewheel completion bash)
        press() {
            COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
            _tidewheel_completion tidewheel
            echo "${COMPREPLY[@]}"
        }
        press tidewheel jobs l
        press tidewheel topics pause ma
        press tidewheel topics --url "$TIDEWHEEL_URL" pause rep
        press tidewheel jobs list --state=fai
        press tidewheel jobs list --where "'a b'" --topic map
    """
    environment = project.environment(TIDEWHEEL_URL=project.url)
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    done = _run(["bash", "--norc", "-c", script], project, environment)
    assert (done.stdout.splitlines(), done.stderr) == (["list", "mail maps", "reports", "failed", "maps"], "")


def test_a_url_and_a_token_of_the_project_are_used_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names come from the server of the file, which gets the token of the file and no other."""
    text = '[tool.tidewheel]\nurl = "http://127.0.0.1:9"\ntoken = "tw_of_the_file"\n'
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    app = app_for_completion(click.Context(click.Command("topics")))
    assert app is not None
    assert (app.url, app.settings.token) == ("http://127.0.0.1:9", "tw_of_the_file")
    monkeypatch.setenv("TIDEWHEEL_TOKEN", "tw_of_the_user")
    with pytest.raises(ConfigurationError, match="would get your token"):
        app_for_completion(click.Context(click.Command("topics")))
