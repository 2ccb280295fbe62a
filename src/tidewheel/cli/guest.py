"""The commands as guests in the command line of a framework, which knows the app they are about."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from tidewheel.cli.root import tidewheel
from tidewheel.cli.terminal import make_streams_safe


def run_about(reference: str, words: Sequence[str], *, prog_name: str) -> NoReturn:
    """``tidewheel …`` about the app at ``reference``, unless the words name another. Exits with its code."""
    arguments = _completed(list(words), reference)
    # Where the commands read what to tell the processes they start, which are plain ``tidewheel``.
    sys.argv = ["tidewheel", *arguments]
    make_streams_safe()
    tidewheel.main(arguments, prog_name=prog_name)


def _completed(words: list[str], reference: str) -> list[str]:
    """The words with the reference put where their command wants it."""
    command: click.Command = tidewheel
    index = 0
    while index < len(words) and isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[index])
        if found is None:
            return words  # an option, or no such command: it says so best itself
        command, index = found, index + 1
    names = {option for parameter in command.params for option in (parameter.name, *parameter.opts)}
    if "app_reference" in names:
        return [*words[:index], reference, *words[index:]]
    named = any(word.partition("=")[0] in {"--app", "--url"} for word in words)
    if "--app" in names and not named:
        return [*words[:index], "--app", reference, *words[index:]]
    return words
