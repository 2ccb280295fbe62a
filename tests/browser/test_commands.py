"""What the UI tells people to type."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from tests.docs.pages import ROOT
from tidewheel.cli.command_group import tidewheel

_command = re.compile(r"(?:code[=:] ?\{?[\"'`]|\\n|<code[^>]*>|text=\{`)tidewheel ((?:\\\"|[^\"<`\n])+)")


def commands() -> list[str]:
    sources = sorted((ROOT / "ui/src").rglob("*.svelte"))
    found = {given for path in sources for given in _command.findall(path.read_text("utf-8"))}
    return sorted(given.replace('\\"', '"').replace("${unknown}", "send") for given in found)


@pytest.mark.parametrize("given", commands())
def test_the_command_line_understands_it(given: str) -> None:
    """Copied from an empty page, by somebody who begins: nothing is done here, but all of it is parsed."""
    command: click.Command | None = tidewheel
    context, name, rest = click.Context(tidewheel), "tidewheel", shlex.split(given)
    while isinstance(command, click.Group):
        name, *rest = rest
        context, command = click.Context(command, parent=context), command.get_command(context, name)
    assert command is not None, f"there is no command {name}"
    command.make_context(name, rest, parent=context)


def test_commands_are_found() -> None:
    """Where the pattern above finds nothing, the test above tests nothing."""
    assert {"keys create --name billing --scope enqueue", "demo", "superusers create NAME"} <= set(commands())
