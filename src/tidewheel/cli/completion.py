"""``tidewheel completion``: the script a shell needs to complete our commands."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

from tidewheel.cli.bash import use_own_words
from tidewheel.cli.terminal import examples, is_terminal

PROGRAM: Final = "tidewheel"
VARIABLE: Final = "_TIDEWHEEL_COMPLETE"
"""By which the script asks this program for what to offer."""

LOADING: Final = {
    "bash": "tidewheel completion bash > ~/.local/share/bash-completion/completions/tidewheel",
    "zsh": "echo 'eval \"$(tidewheel completion zsh)\"' >> ~/.zshrc",
    "fish": "tidewheel completion fish > ~/.config/fish/completions/tidewheel.fish",
}


@click.command(epilog=examples(*LOADING.values()))
@click.argument("shell", type=click.Choice(list(LOADING)), required=False)
def completion(shell: str | None) -> None:
    """Print the script that completes commands in your shell.

    SHELL is bash (4.4 or newer), zsh or fish; left out, it is the one $SHELL names. Commands, options and
    states are completed, and names of topics and tasks that have jobs in the store that --url or the settings
    name. New shells know it once the script is where the shell looks for it: see the examples.
    """
    context = click.get_current_context()
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    use_own_words()
    kind = get_completion_class(name) if name in LOADING else None
    if kind is None:
        raise click.UsageError(
            f"$SHELL is {os.environ.get('SHELL', '')!r}, for which there is no completion; "
            f"name one of {', '.join(LOADING)}",
            context,
        )
    made = kind(context.find_root().command, {}, PROGRAM, VARIABLE)
    # Not the method of bash, which starts one to see its version.
    click.echo(ShellComplete.source(made))
    if is_terminal():
        click.secho(f"to have it in every new {name}: {LOADING[name]}", dim=True, err=True)
