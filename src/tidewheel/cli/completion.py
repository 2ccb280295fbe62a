"""``tidewheel completion``: shell completion of commands, options, topics and tasks.

Names come from the store, if looking is cheap and changes nothing: no store is created or migrated, a server
gets at most 2 seconds, and the user's own code (``--app``) is not run. Bash breaks words at ``:`` and ``=``,
and so breaks URLs. Its script therefore passes the whole line up to the cursor.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import (
    BashComplete,
    ShellComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from tidewheel.cli.terminal import examples, is_terminal
from tidewheel.errors import TidewheelError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tidewheel.core.reports import TaskStats

_BROKEN: Final = 'COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD'
_LINE: Final = 'COMP_LINE="${COMP_LINE:0:$COMP_POINT}"'


class BashCompletion(BashComplete):
    """Told the line as it was typed, up to the cursor."""

    source_template = BashComplete.source_template.replace(_BROKEN, _LINE)

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:  # a script of before
            return super().get_completion_args()
        words = split_arg_string(line)
        typed = words.pop() if len(words) > 1 and not line[-1].isspace() else ""
        return words[1:], typed


def register_bash_completion() -> None:
    """From now on bash is answered by this."""
    add_completion_class(BashCompletion, "bash")


PROGRAM: Final = "tidewheel"
VARIABLE: Final = "_TIDEWHEEL_COMPLETE"
"""By which the script asks this program for what to offer."""

INSTALL_COMMANDS: Final = {
    "bash": "tidewheel completion bash > ~/.local/share/bash-completion/completions/tidewheel",
    "zsh": "echo 'eval \"$(tidewheel completion zsh)\"' >> ~/.zshrc",
    "fish": "tidewheel completion fish > ~/.config/fish/completions/tidewheel.fish",
}


@click.command(epilog=examples(*INSTALL_COMMANDS.values()))
@click.argument("shell", type=click.Choice(list(INSTALL_COMMANDS)), required=False)
def completion(shell: str | None) -> None:
    """Print the script that completes commands in your shell.

    SHELL is bash (4.4 or newer), zsh or fish; left out, it is the one $SHELL names. Commands, options and
    states are completed, and names of topics and tasks that have jobs in the store that --url or the settings
    name. New shells know it once the script is where the shell looks for it: see the examples.
    """
    context = click.get_current_context()
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    register_bash_completion()
    kind = get_completion_class(name) if name in INSTALL_COMMANDS else None
    if kind is None:
        raise click.UsageError(
            f"$SHELL is {os.environ.get('SHELL', '')!r}, for which there is no completion; "
            f"name one of {', '.join(INSTALL_COMMANDS)}",
            context,
        )
    made = kind(context.find_root().command, {}, PROGRAM, VARIABLE)
    # Not the method of bash, which starts one to see its version.
    click.echo(ShellComplete.source(made))
    if is_terminal():
        click.secho(f"to have it in every new {name}: {INSTALL_COMMANDS[name]}", dim=True, err=True)


MAX_SECONDS: Final = 2.0
"""Max seconds to wait for a server. A file is read without a limit: that always ends."""
MAX_NAMES: Final = 200


def topic_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Topics that have jobs."""
    return _names(ctx, incomplete, lambda lane: {lane.topic: "topic"})


def task_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Tasks that have jobs."""
    return _names(ctx, incomplete, lambda lane: {lane.task: "task"})


def task_and_topic_names(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    """Both, for whom either will do; what is both is told to be a task."""
    return _names(ctx, incomplete, lambda lane: {lane.topic: "topic", lane.task: "task"})


def _names(
    ctx: click.Context, incomplete: str, told: Callable[[TaskStats], dict[str, str]]
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        lanes = asyncio.run(_lanes(ctx))
    except (TidewheelError, OSError, TimeoutError):
        return []  # between two keys there is no place for an error; the command itself will say it
    found: dict[str, str] = {}
    for lane in lanes:
        found |= told(lane)
    names = sorted(name for name in found if name and name.startswith(incomplete))
    return [CompletionItem(name, help=found[name]) for name in names[:MAX_NAMES]]


async def _lanes(ctx: click.Context) -> list[TaskStats]:
    from tidewheel.cli.target_options import app_for_completion, database_file, missing_file

    app = app_for_completion(ctx)
    if app is None or app.url.startswith("memory:") or missing_file(app.url) is not None:
        return []
    limit = MAX_SECONDS if database_file(app.url) is None else None
    async with asyncio.timeout(limit), app:
        return await app.task_stats(60)
