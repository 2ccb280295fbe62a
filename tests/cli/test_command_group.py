"""``tidewheel`` itself: what it lists, and that it is quick to start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from tests.cli.conftest import Run
from tidewheel import __version__
from tidewheel.cli.command_group import COMMANDS, tidewheel


def _commands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _commands(child, click.Context(child, info_name=name, parent=context))


EVERY_COMMAND = list(_commands(tidewheel, click.Context(tidewheel, info_name="tidewheel")))


def test_help_lists_every_command_with_what_it_does(run: Run) -> None:
    """The first page a newcomer sees names everything there is."""
    answer = run("--help")
    assert answer.code == 0
    for name, entry in COMMANDS.items():
        assert name in answer.out
        assert entry.help in answer.out


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    """Typing the bare name is a question, not an error."""
    assert run().out == run("--help").out
    assert run().code == 0
    assert run("jobs").out == run("jobs", "--help").out
    assert run("jobs").code == 0


def test_version_names_the_version(run: Run) -> None:
    """A bug report needs one line."""
    assert run("--version").out.startswith(f"tidewheel {__version__} (Python 3.")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says_of_itself(name: str) -> None:
    """The list is kept apart from the commands for speed, and must not drift from them."""
    command = tidewheel.get_command(click.Context(tidewheel), name)
    assert command is not None
    assert (command.help or "").splitlines()[0].startswith(COMMANDS[name].help)


@pytest.mark.parametrize(
    ("command", "context"), EVERY_COMMAND, ids=[context.command_path for _, context in EVERY_COMMAND]
)
def test_every_command_and_option_has_a_help_text(command: click.Command, context: click.Context) -> None:
    """Nothing on the command line has to be guessed."""
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, parameter.name
            assert parameter.help.endswith("."), parameter.help
    assert context.command_path in command.get_help(context)


@pytest.mark.parametrize(
    "path", [context.command_path.split()[1:] for _, context in EVERY_COMMAND], ids=" ".join
)
def test_every_command_answers_help(run: Run, path: list[str]) -> None:
    """--help works everywhere and changes nothing."""
    answer = run(*path, "--help")
    assert answer.code == 0
    assert answer.out.startswith(" ".join(["Usage: tidewheel", *path]))


def test_h_is_short_for_help() -> None:
    """The two letters people type first work for commands of commands, too."""
    done = subprocess.run(
        [sys.executable, "-m", "tidewheel.cli", "jobs", "list", "-h"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--created-after" in done.stdout


def test_an_unknown_command_is_a_usage_error_with_a_suggestion(run: Run) -> None:
    """A slip of the finger costs one look."""
    answer = run("job")
    assert answer.code == 2
    assert answer.errors.startswith("error: there is no command 'job'")
    assert "did you mean jobs?" in answer.errors
    assert "demo, worker, serve, beanstalkd, enqueue" in run("frobnicate").errors


def test_an_unknown_option_is_one_line_and_a_hint(run: Run) -> None:
    """Errors of click read like our own."""
    answer = run("stats", "--frobnicate")
    assert answer.code == 2
    assert answer.errors.startswith("error: No such option")
    assert answer.errors.endswith("try: tidewheel stats --help\n")


def test_help_imports_no_command_and_no_table_library() -> None:
    """``tidewheel --help`` stays quick however many commands there are."""
    code = (
        "import sys\n"
        "from tidewheel.cli.command_group import tidewheel\n"
        "try: tidewheel.main(['--help'])\n"
        "except SystemExit: pass\n"
        "loaded = [name for name in sys.modules if name.split('.')[0] in {'rich', 'sqlite3'}\n"
        "          or name.startswith('tidewheel.cli.')\n"
        "          and name.split('.')[2] not in {'command_group', 'error_output'}]\n"
        "sys.exit(repr(loaded) if loaded else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_m_runs_it() -> None:
    """Where no script is on the path, the module is."""
    done = subprocess.run(
        [sys.executable, "-m", "tidewheel.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert __version__ in done.stdout
