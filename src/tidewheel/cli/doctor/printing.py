"""A report on a terminal: wrapped where words end, with the lines that matter in colour."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

import click

from tidewheel.cli.terminal import console, is_terminal

WIDEST: Final = 100
"""Prose in longer lines is hard to read, whatever the terminal's width."""
_STYLES: Final = (
    (("# Kept", "# Well"), "bold green"),
    (("# ", "- BROKEN", "- WRONG", "**"), "bold red"),
    (("- in doubt", "- not tried"), "yellow"),
    (("## ",), "bold"),
)


def print_report(lines: Sequence[str]) -> None:
    """As it is in a pipe."""
    if not is_terminal():
        click.echo("\n".join(lines))
        return
    from rich.text import Text

    terminal = console()
    width = min(terminal.width, WIDEST)
    rows = 0
    for line in lines:
        text = _wrapped(line, width)
        rows += text.count("\n") + 1
        terminal.print(Text(text, style=_style(line)))
    if rows >= terminal.height:  # the verdict has scrolled away, and is what was asked for
        terminal.print(Text(f"\n{lines[0].removeprefix('# ')}", style=_style(lines[0])))


def _style(line: str) -> str:
    return next((style for beginnings, style in _STYLES if line.startswith(beginnings)), "")


def _wrapped(line: str, width: int) -> str:
    if line.startswith("|") or len(line) <= width:
        return line
    item = line.lstrip(" ")
    indent = len(line) - len(item) + (2 if item.startswith("- ") else 0)
    return textwrap.fill(
        line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
