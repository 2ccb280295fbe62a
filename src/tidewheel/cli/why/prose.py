"""Sentences on a terminal: wrapped where words end, one on a line in a pipe."""

from __future__ import annotations

import re
import shlex
import textwrap
from typing import Final

import click

from tidewheel.answers import Finding, Severity
from tidewheel.cli.terminal import console, is_terminal
from tidewheel.wording import printable

WIDEST: Final = 100
"""Prose in longer lines is hard to read, whatever the terminal's width."""
COMMAND_INDENT: Final = 4
"""Of a command on a line of its own: the less, the more of them fit."""
INDENT: Final = 10
"""Of what is said of a finding, right of how bad it is."""
_COMMAND: Final = re.compile(
    r"""tidewheel[ ](?:jobs|topics)[ ][a-z-]+(?:[ ](?:--[a-z-]+|'[^']*'(?:"'"'[^']*')*|[^\s;']+))*""",
    re.VERBOSE,
)
"""As remedies have them: up to a semicolon or the end, with arguments as ``shlex.quote`` writes them."""
SEVERITY_COLOURS: Final = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}


def say(text: str, *, label: str = "", indent: int = 0, fg: str | None = None, bold: bool = False) -> int:
    """A sentence below its own beginning, with a label before it in the style given; the rows it took."""
    text = printable(text)
    if is_terminal():
        width = min(console().width, WIDEST) - 1
        # A command is copied whole or not at all: nothing is broken but at spaces.
        text = textwrap.fill(
            text,
            max(20, width),
            initial_indent=" " * max(indent, len(label)),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )[len(label) :]
    elif label:
        text = f"{'' if label.endswith(' ') else ' '}{text}"
    click.echo(click.style(label, fg=fg, bold=bold) + text)
    return text.count("\n") + 1


def say_command(command: str, what_for: str) -> None:
    """A command to copy: on a line of its own, never wrapped by us."""
    click.echo(f"  {click.style(printable(what_for) + ':', dim=True)}")
    click.echo(f"{' ' * COMMAND_INDENT}{printable(command)}")


def say_finding(finding: Finding, *, options: str = "", brief: bool = False) -> int:
    """What is wrong, then what to do, and which jobs it is about; how many rows that took.

    ``options``: what the commands in it have to be told, too. ``brief``: no more than what to do first.
    """
    colour = SEVERITY_COLOURS[finding.severity]
    rows = say(finding.title, label=f"{finding.severity.upper():9} ", indent=INDENT, fg=colour, bold=True)
    if not brief:
        rows += say(finding.explanation, label=" " * INDENT, indent=INDENT)
    rows += _say_remedy(finding.remedy, options, brief=brief)
    if not brief and finding.where is not None and shlex.quote(finding.where) not in finding.remedy:
        rows += _say_alone(f"tidewheel jobs list --where {shlex.quote(finding.where)}{options}", "see: ")
    return rows


def _say_remedy(remedy: str, options: str, *, brief: bool) -> int:
    """A command in it has a line of its own, and is told which store it is about."""
    command = _COMMAND.search(remedy)
    if command is None:
        first = remedy.partition("; ")[0].partition(". ")[0] if brief else remedy
        return say(first, label=f"{'do: ':>{INDENT}}", indent=INDENT, bold=True)
    whole = command[0] + (options if " --where " in command[0] else without_tenant(options))
    before, after = remedy[: command.start()].rstrip(), remedy[command.end() :].lstrip("; ")
    if before:
        rows = say(before, label=f"{'do: ':>{INDENT}}", indent=INDENT, bold=True) + _say_alone(whole)
    else:
        rows = _say_alone(whole, "do: ")
    if after and not brief:
        rows += say(f"{after[0].upper()}{after[1:]}", label=" " * INDENT, indent=INDENT)
    return rows


def _say_alone(command: str, label: str = "") -> int:
    """A command is copied: not wrapped by us, and nothing before it but its label."""
    text, indent = printable(command), INDENT if label else COMMAND_INDENT
    click.echo(click.style(f"{label:>{indent}}", bold=True) + text)
    return -(-(indent + len(text)) // console().width) if is_terminal() else 1


def without_tenant(options: str) -> str:
    """An id and a topic need none."""
    return options.partition(" --tenant ")[0]
