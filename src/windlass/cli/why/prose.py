"""Sentences on a terminal: wrapped where words end, one on a line in a pipe."""

from __future__ import annotations

import shlex
import textwrap
from typing import Final

import click

from windlass.answers import Finding, Severity
from windlass.cli.terminal import console, is_terminal
from windlass.wording import printable

WIDEST: Final = 100
"""Prose in longer lines is hard to read, whatever the terminal's width."""
INDENT: Final = 10
"""Of what is said of a finding, right of how bad it is."""
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
    click.echo(f"    {printable(command)}")


def say_finding(finding: Finding, *, options: str = "", brief: bool = False) -> int:
    """What is wrong, then what to do, and which jobs it is about; how many rows that took.

    ``brief``: no more than what to do first.
    """
    colour = SEVERITY_COLOURS[finding.severity]
    rows = say(finding.title, label=f"{finding.severity.upper():9} ", indent=INDENT, fg=colour, bold=True)
    if not brief:
        rows += say(finding.explanation, label=" " * INDENT, indent=INDENT)
    remedy = finding.remedy.partition("; ")[0].partition(". ")[0] if brief else finding.remedy
    rows += say(remedy, label=f"{'do: ':>{INDENT}}", indent=INDENT, bold=True)
    if not brief and finding.where is not None and shlex.quote(finding.where) not in finding.remedy:
        # A command is copied: not wrapped by us, and nothing before it but its label.
        command = f"windlass jobs list --where {shlex.quote(finding.where)}{options}"
        click.echo(click.style(f"{'see: ':>{INDENT}}", bold=True) + printable(command))
        rows += 1
    return rows
